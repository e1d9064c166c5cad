"""A worker that is not the server's own, as a process: an address, a token and a folder are all that it knows.

with RemoteWorker(server, tmp_path, "second", "--cpus", "1") as worker:
    ...
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from server import PATIENCE_S, SWELL, Server, ended
from swell.client.connection import path


class RemoteWorker:
    """`swell worker` in a folder of its own. `before`: words before the command, as `ip netns exec NAME`."""

    def __init__(
        self,
        server: Server,
        folder: Path,
        name: str,
        *options: str,
        url: str | None = None,
        before: Sequence[str] = (),
        token: Path | None = None,
        env: dict[str, str] | None = None,
    ) -> None:
        self.server, self.name = server, name
        self.folder = folder / f"worker-{name}"
        self.log = folder / f"worker-{name}.log"
        self.token = token or make_token(server, folder, name)
        self._options, self._before, self._url = options, tuple(before), url
        self._env = env or {}
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def words(self) -> list[str]:
        url = self._url or str(self.server.state.read_json(self.server.state.server_file)["url"])
        told = ["--server", url, "--token-file", str(self.token), "--folder", str(self.folder), "--name", self.name]
        return [*self._before, SWELL, "worker", *told, *self._options]

    def start(self) -> None:
        env = {key: text for key, text in self.server.environment().items() if key != "SWELL_STATE"}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", env={**env, **self._env}
            )

    def __enter__(self) -> RemoteWorker:
        self.start()
        self.until_node(lambda node: node is not None and node["reachable"])
        return self

    def __exit__(self, *_: object) -> None:
        """Told again and again: what it runs is not waited for."""
        until = time.monotonic() + PATIENCE_S
        while self.process is not None and self.process.poll() is None and time.monotonic() < until:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.5)
        self.kill()

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            with ended(self.process.pid):
                os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def node(self) -> dict[str, Any] | None:
        """What the server says of it; None: it does not know it."""
        nodes = self.server.client().connection.json("GET", path("nodes"))["nodes"]
        return next((node for node in nodes if node["name"] == self.name), None)

    def until_node(self, is_true: Any, *, patience_s: float = PATIENCE_S) -> Any:
        until = time.monotonic() + patience_s
        while not is_true(node := self.node()):
            assert self.process is None or self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < until, f"still {node}; {self.log.read_text()[-2000:]}"
            time.sleep(0.05)
        return node

    def until_forgotten(self) -> None:
        """By the server's next look at its workers."""
        until = time.monotonic() + PATIENCE_S
        while (node := self.node()) is not None:
            assert time.monotonic() < until, f"still {node}"
            time.sleep(0.05)

    def until_said(self, text: str) -> None:
        """In its log."""
        until = time.monotonic() + PATIENCE_S
        while text not in self.log.read_text():
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.05)

    def wait(self, patience_s: float = PATIENCE_S) -> int:
        """Until it has gone by itself: its exit code."""
        assert self.process is not None
        return self.process.wait(patience_s)


def processes_of(server: Server, job: int, attempt: int) -> list[int]:
    """Whatever carries the attempt's marks, on all workers of this machine, and in namespaces of the network, too.

    Other tests have a job of that number, too, at the same time: their store is another one.
    """
    store = server.state.read_json(server.state.server_file)["store"]
    marks = {f"SWELL_STORE={store}".encode(), f"SWELL_ATTEMPT={job}.{attempt}".encode()}
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if marks <= set((entry / "environ").read_bytes().split(b"\0")):
                found.append(int(entry.name))
    return found


def make_token(server: Server, folder: Path, name: str, *options: str) -> Path:
    made = server.swell("token", "create", name, "--scope", "worker", *options)
    assert made.code == 0, made
    token = folder / f"{name}.token"
    token.write_text(made.stdout)
    return token
