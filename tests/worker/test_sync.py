"""What a worker tells a server it has not met before."""

from __future__ import annotations

import http.server
import json
import os
import socketserver
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from swell.machine.boot_clock import clock
from swell.machine.sockets import listen_on
from swell.machine.state_folder import StateFolder
from swell.machine.worker_folder import WorkerFolder
from swell.machine.worker_options import WorkerOptions
from swell.model.cluster import Node
from swell.model.job import AttemptId
from swell.model.launch import RunSeen, TaskSeen, run_document, task_document
from swell.worker.last_heard import NEVER
from swell.worker.sync import (
    PORTION_BYTES,
    Desired,
    NotReached,
    Outbox,
    Refused,
    ServerLink,
    WorkerConnection,
    address_of,
    keep_environment,
)

ATTEMPT = AttemptId(3, 1)
ENDED = TaskSeen(ATTEMPT, 0, "a", 0, 1.0, 2.0, 0)
FINISHED = RunSeen(ATTEMPT, "a", 1, (), 0, True)


class FakeServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Stands for the server process on the wire; keeps every report that says something."""

    daemon_threads = True

    def __init__(self, state: StateFolder) -> None:
        super().__init__("", Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listen_on(state.server_socket, mode=0o600)
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
def state(tmp_path: Path) -> StateFolder:
    made = StateFolder(tmp_path)
    made.secret(made.worker_token)
    return made


@pytest.fixture
def server(state: StateFolder) -> Iterator[FakeServer]:
    with FakeServer(state) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def _next_news(link: ServerLink, woken: threading.Event) -> tuple[Desired | None, bool]:
    """The answer to what was told before may wake us late, with nothing new."""
    while True:
        assert woken.wait(10)
        woken.clear()
        if (news := link.take()) != (None, False):
            return news


def test_a_new_server_is_told_the_whole_story_before_any_part_of_it(server: FakeServer, state: StateFolder) -> None:
    """A server died after it had been told that a task ended; the next one was told only that the run was finished,
    took the task for never begun, and ran it again."""
    woken = threading.Event()
    options = WorkerOptions(f"unix:{state.server_socket}", state.worker_token, state.root)
    folder, node = WorkerFolder(state.root), Node("a", 1000, 1000)
    link = ServerLink(options, folder, address_of(options), node, boot_id="boot", wake=woken.set)
    link.start()
    assert woken.wait(10)
    assert link.take() == (None, True)
    link.tell_all([], [])
    link.tell([ENDED], [])
    assert len(server.wait_for("first")["tasks"]) == 1

    server.id = "second"
    woken.clear()
    link.tell([], [FINISHED])  # half a story; whoever gets it must see that it was not meant for it
    assert _next_news(link, woken) == (None, True)
    link.tell_all([ENDED], [FINISHED])
    whole = server.wait_for("second")
    assert (len(whole["tasks"]), len(whole["runs"])) == (1, 1)
    assert link.take() == (None, False)


def link_elsewhere(root: Path, *, boot_id: str = "boot") -> ServerLink:
    options = WorkerOptions("https://box.lab:8443", root / "token", root)
    folder, node = WorkerFolder(root), Node("b", 1000, 1000)
    return ServerLink(options, folder, address_of(options), node, boot_id=boot_id, wake=lambda: None)


def hear(link: ServerLink, at: float) -> None:
    answer = {"store": "s", "server": "first", "version": 0, "launches": None}
    link._take_answer(link.connection(), answer, asked_at=at)


def test_a_worker_elsewhere_that_is_started_again_goes_on_with_its_lease(tmp_path: Path) -> None:
    """It began a new one, however long the server had been out of reach: its tasks ran at two places."""
    assert link_elsewhere(tmp_path).heard_at == NEVER
    at = clock() / 2  # also on a machine that was started a minute ago
    first = link_elsewhere(tmp_path)
    hear(first, at)
    hear(first, at + 0.5)  # too soon to be written again
    assert (first.heard_at, link_elsewhere(tmp_path).heard_at) == (at + 0.5, at)
    hear(first, at + 5.0)
    assert link_elsewhere(tmp_path).heard_at == at + 5.0
    assert link_elsewhere(tmp_path, boot_id="next").heard_at == NEVER


@pytest.mark.parametrize("text", ["", "[]", '{"boot_id": "boot"}', '{"boot_id": "boot", "heard_at": 1e300}'])
def test_a_note_of_the_lease_that_cannot_be_is_none(tmp_path: Path, text: str) -> None:
    WorkerFolder(tmp_path).heard.write_text(text)
    assert link_elsewhere(tmp_path).heard_at == NEVER


def test_the_worker_of_the_servers_own_machine_holds_no_lease(state: StateFolder) -> None:
    options = WorkerOptions(f"unix:{state.server_socket}", state.worker_token, state.root)
    folder, node = WorkerFolder(state.root), Node("a", 1000, 1000)
    link = ServerLink(options, folder, address_of(options), node, boot_id="boot", wake=lambda: None)
    assert link.heard_at > NEVER
    hear(link, clock())
    assert not folder.heard.exists()


def test_a_million_ends_are_told_in_portions_and_runs_after_all_tasks() -> None:
    """One report of all of them was larger than what a server takes of a worker elsewhere."""
    tasks = {(ATTEMPT, n): replace(ENDED, index=n, problem="\u20ac" * 4000) for n in range(500)}
    runs = {AttemptId(job, 1): replace(FINISHED, attempt=AttemptId(job, 1), held="1," * 100_000) for job in range(20)}
    outbox, told_tasks, told_runs, sizes = Outbox(dict(tasks), dict(runs), is_urgent=True), {}, {}, []
    while outbox:
        sending, outbox = outbox.split()
        assert not sending.runs or told_tasks.keys() | sending.tasks.keys() == tasks.keys()
        documents = [*map(task_document, sending.tasks.values()), *map(run_document, sending.runs.values())]
        sizes.append(len(json.dumps(documents)))
        told_tasks |= sending.tasks
        told_runs |= sending.runs
    assert (told_tasks, told_runs) == (tasks, runs)
    assert max(sizes) < 2 * PORTION_BYTES
    assert len(sizes) < 20


def test_what_wakes_the_server_is_sent_once_though_there_is_nothing_to_tell() -> None:
    sending, rest = Outbox(is_urgent=True).split()
    assert not sending
    assert not rest


class OneFile:
    """Stands for a connection: two threads of a worker fetch one environment at the same moment."""

    def __init__(self) -> None:
        self.both = threading.Barrier(2)

    def get(self, path: str) -> dict[str, Any]:
        self.both.wait(10)
        return {"path": path}


def test_two_threads_that_keep_one_environment_do_not_get_in_each_others_way(tmp_path: Path, monkeypatch) -> None:
    """One of them renamed the other's half of a file, which the other then did not find."""
    folder, line, failed = WorkerFolder(tmp_path), OneFile(), list[Exception]()
    written = threading.Barrier(2)
    fsync = os.fsync

    def wait_for_the_other(descriptor: int) -> None:
        fsync(descriptor)
        written.wait(10)

    monkeypatch.setattr(os, "fsync", wait_for_the_other)
    folder.environments.mkdir(parents=True)

    def keep() -> None:
        try:
            keep_environment(folder, "e" * 64, line)  # type: ignore[arg-type]
        except Exception as error:  # noqa: BLE001  whatever it is, it is told
            failed.append(error)

    threads = [threading.Thread(target=keep) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert [path.name for path in folder.environments.iterdir()] == ["e" * 64]
    assert folder.read_json(folder.environments / ("e" * 64)) == {"path": f"/api/v1/workers/environments/{'e' * 64}"}


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NotReached("Connection refused"), "the server https://box.lab:8443 cannot be reached"),
        (FileNotFoundError(2, "No such file or directory", ".environments/a"), "the exchange with the server failed"),
        (OSError(28, "No space left on device"), "the exchange with the server failed"),
        (ValueError("this server keeps store b"), "the exchange with the server failed"),
        (Refused("403: no"), "the server refuses this worker"),
    ],
)
def test_only_a_server_that_does_not_answer_cannot_be_reached(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception, said: str
) -> None:
    link = link_elsewhere(tmp_path)
    for _ in range(3):
        link._note_failure(error)
    (line,) = caplog.messages
    assert line.startswith(said)


def test_what_breaks_on_the_way_to_the_server_is_told_from_what_breaks_here(tmp_path: Path) -> None:
    line = link_elsewhere(tmp_path).connection()
    with pytest.raises(FileNotFoundError):  # of the token
        line.post({})
    (tmp_path / "token").write_text("x")
    options = WorkerOptions(f"unix:{tmp_path}/nobody", tmp_path / "token", tmp_path)
    with pytest.raises(NotReached):
        WorkerConnection(address_of(options), dict).get("/")
