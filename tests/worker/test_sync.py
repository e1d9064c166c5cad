"""What a worker tells a server it has not met before."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swell.model.cluster import Node
from swell.model.job import AttemptId
from swell.model.launch import RunSeen, TaskSeen
from swell.state import StateFolder
from swell.worker.sync import ServerLink

ATTEMPT = AttemptId(3, 1)
ENDED = TaskSeen(ATTEMPT, 0, "a", 0, 1.0, 2.0, 0)
FINISHED = RunSeen(ATTEMPT, "a", 1, (), 0, True)


class FakeServer(http.server.ThreadingHTTPServer):
    """Stands for the server process on the wire; keeps every report that says something."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.id = "first"
        self.reports: list[dict[str, Any]] = []
        self.came = threading.Condition()

    def wait_for(self, server: str) -> dict[str, Any]:
        """The first report that is meant for this server process."""

        def found() -> dict[str, Any] | None:
            return next((report for report in self.reports if report["server"] == server), None)

        with self.came:
            assert self.came.wait_for(lambda: found() is not None, timeout=10), self.reports
        report = found()
        assert report is not None
        return report


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeServer

    def do_POST(self) -> None:
        report = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.came:
            if report["tasks"] or report["runs"]:
                self.server.reports.append(report)
            self.server.came.notify_all()
            answer = {"store": "s", "server": self.server.id, "version": 0, "launches": None}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_a_new_server_is_told_the_whole_story_before_any_part_of_it(server: FakeServer, tmp_path: Path) -> None:
    """A server died after it had been told that a task ended; the next one was told only that the run was finished,
    took the task for never begun, and ran it again."""
    state = StateFolder(tmp_path)
    state.write_json(state.server_file, {"url": f"http://127.0.0.1:{server.server_address[1]}"})
    state.secret(state.worker_token)
    woken = threading.Event()
    link = ServerLink(state, Node("a", 1000, 1000), wake=woken.set)
    link.start()
    assert woken.wait(10)
    assert link.take() == (None, True)
    link.tell_all([], [])
    link.tell([ENDED], [])
    assert len(server.wait_for("first")["tasks"]) == 1

    server.id = "second"
    woken.clear()
    link.tell([], [FINISHED])  # half a story; whoever gets it must see that it was not meant for it
    assert woken.wait(10)
    assert link.take() == (None, True)
    link.tell_all([ENDED], [FINISHED])
    whole = server.wait_for("second")
    assert (len(whole["tasks"]), len(whole["runs"])) == (1, 1)
    assert link.take() == (None, False)
