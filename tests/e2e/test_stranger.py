"""Nobody of ours shows a token to, or takes an order from, a port that somebody else has taken."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from server import Gate, Server
from swell.model.job import AttemptId
from swell.model.launch import LaunchRole
from worker.test_environment import LAUNCH

pytestmark = pytest.mark.slow

TRAINS = """
import sys, swell_sdk
run = swell_sdk.attach()
for epoch in run.epochs(1):
    print("ready", flush=True)
    sys.stdin.readline()
    run.metric("loss", 0.25)
"""


class Stranger(ThreadingHTTPServer):
    """Listens where a server was, and answers its worker with an order."""

    daemon_threads = True

    def __init__(self, port: int, proof: Path) -> None:
        super().__init__(("127.0.0.1", port), Listening)
        self.told: list[str] = []  #: every request, with its head
        here, roles = socket.gethostname(), (LaunchRole(("touch", str(proof))),)
        self.order = replace(LAUNCH, attempt=AttemptId(999, 1), node=here, nodes=(here,), roles=roles)


class Listening(BaseHTTPRequestHandler):
    server: Stranger

    def _answer(self) -> None:
        self.server.told.append(f"{self.requestline}\n{self.headers}")
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or b"{}")
        launches = [self.server.order.to_document()] if "store" in asked else []
        order = {"store": asked.get("store"), "server": "x", "version": asked.get("version", 0) + 1}
        body = json.dumps({**order, "launches": launches}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = _answer  # noqa: N815  the names are http.server's

    def log_message(self, *_: object) -> None:
        pass


def port_of(server: Server) -> int:
    return urlsplit(server.state.read_json(server.state.server_file)["url"]).port or 0


@pytest.fixture
def training(own_server: Server, gate: Gate, tmp_path: Path) -> int:
    """A job of one epoch, which ends when the gate is opened."""
    script = tmp_path / "train.py"
    script.write_text(TRAINS)
    job = own_server.start("--", "sh", "-c", f"exec {sys.executable} {script} < {gate}")
    own_server.until_output(job, b"ready")
    return job


@pytest.fixture
def stranger(own_server: Server, training: int, tmp_path: Path) -> Iterator[Stranger]:
    """The server was killed, and its port is somebody else's."""
    port = port_of(own_server)
    own_server.kill()
    with Stranger(port, tmp_path / "proof") as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


def test_who_takes_the_port_of_a_dead_server_is_told_nothing_and_obeyed_by_nobody(
    own_server: Server, stranger: Stranger, training: int, gate: Gate, tmp_path: Path
) -> None:
    """A user of the same machine listened on the port of somebody's killed server, answered the worker's sync with a
    command, which ran as the server's owner, and was shown the tokens of the worker, the owner and the jobs."""
    worker = own_server.state.lock_holder("worker")
    found = own_server.swell("ps")
    assert (found.code, found.stdout) == (1, "")
    assert found.stderr == (
        f"swell: no server is running for {own_server.root}; start one with `swell up -d`, or name another folder with "
        "--state\n"
    )
    own_server.up()
    assert port_of(own_server) != stranger.server_address[1]
    gate.open()
    document = own_server.until(training, "succeeded", "failed")
    assert (document["state"], document["metrics"], document["attempts"]) == ("succeeded", {"loss": 0.25}, 1)
    assert own_server.state.lock_holder("worker") == worker, "it was asked while the stranger listened"
    assert (stranger.told, (tmp_path / "proof").exists()) == ([], False)


def test_a_job_that_runs_on_after_its_server_was_stopped_tells_a_stranger_nothing(
    own_server: Server, training: int, gate: Gate, tmp_path: Path
) -> None:
    port = port_of(own_server)
    assert own_server.down().code == 0
    with Stranger(port, tmp_path / "proof") as stranger:
        threading.Thread(target=stranger.serve_forever, daemon=True).start()
        own_server.up()
        gate.open()
        assert own_server.until(training, "succeeded", "failed")["metrics"] == {"loss": 0.25}
        stranger.shutdown()
    assert stranger.told == []


def test_a_state_folder_whose_path_is_too_long_for_a_socket_works_all_the_same(tmp_path: Path, gate: Gate) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    script = tmp_path / "train.py"
    script.write_text(TRAINS)
    with Server(folder) as server:
        job = server.start("--", "sh", "-c", f"exec {sys.executable} {script} < {gate}")
        server.until_output(job, b"ready")
        gate.open()
        assert server.until(job, "succeeded", "failed")["metrics"] == {"loss": 0.25}
        mode = server.state.server_socket.stat().st_mode & 0o777
        assert (len(os.fsencode(server.state.server_socket)) > 107, mode) == (True, 0o600)
