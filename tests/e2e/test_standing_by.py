"""A second server of one state folder waits, and is the server a moment after the first was killed."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from server import PATIENCE_S, Server
from swell.server.standing_by import REFUSAL

pytestmark = pytest.mark.slow

ELSEWHERE = "127.0.0.3"
TAKES_OVER_S = 10.0  # what docs/kubernetes.md promises; it takes one or two


class Standby:
    """A process beside `swell up -d`, at an address of its own, as a second pod has one."""

    def __init__(self, server: Server) -> None:
        with socket.create_server((ELSEWHERE, 0)) as listener:
            self.port = int(listener.getsockname()[1])
        address = f"{ELSEWHERE}:{self.port}"
        words = ("--state", str(server.root), "--stand-by", "--listen", address, "--plain-http")
        log = server.folder / "standby.log"
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "swell.server", *words], env=server.environment(), stderr=file
            )

    def ask(self, path: str, *, token: str = "", method: str = "GET") -> tuple[int, Any]:
        connection = http.client.HTTPConnection(ELSEWHERE, self.port, timeout=PATIENCE_S)
        connection.request(method, path, headers={"Authorization": f"Bearer {token}"} if token else {})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    def until(self, status: str, *, within_s: float = PATIENCE_S) -> None:
        end = time.monotonic() + within_s
        while (found := self._status()) != status:
            assert time.monotonic() < end, f"{found!r} instead of {status!r} after {within_s} s"
            assert self.process.poll() is None
            time.sleep(0.02)

    def _status(self) -> str:
        try:
            return str(self.ask("/readyz")[1]["status"])
        except OSError:
            return ""


@contextmanager
def beside(server: Server) -> Iterator[Standby]:
    made = Standby(server)
    try:
        made.until("standby")
        yield made
    finally:
        made.process.kill()
        made.process.wait()


def test_it_takes_over_within_seconds_and_jobs_go_on(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        job = server.start("--", "sleep", "1000")
        server.until(job, "running")
        with beside(server) as standby:
            assert standby.ask("/healthz") == (200, {"status": "ok"})
            token = server.state.token.read_text().strip()
            status, listed = standby.ask("/api/v1/jobs", token=token)
            assert (status, [one["id"] for one in listed["jobs"]]) == (200, [job])
            assert [standby.ask("/api/v1/jobs", token=wrong)[0] for wrong in ("", "wrong")] == [401, 401]
            refused = (503, {"error": {"kind": "Unavailable", "message": REFUSAL}})
            assert standby.ask(f"/api/v1/jobs/{job}/cancel", token=token, method="POST") == refused
            assert [one["id"] for one in server.jobs()] == [job]  # commands in its container ask the first

            server.kill()
            standby.until("ok", within_s=TAKES_OVER_S)

            assert server.state.lock_holder("server") == standby.process.pid
            assert server.until(job, "running")["attempts"] == 1
            assert server.start("--", "true") > job
            server.cancel_all()


def test_a_standby_that_is_told_to_stop_ends_in_order_and_the_server_goes_on(tmp_path: Path) -> None:
    with Server(tmp_path) as server, beside(server) as standby:
        standby.process.send_signal(signal.SIGTERM)
        assert standby.process.wait(PATIENCE_S) == 0
        assert server.jobs() == []
