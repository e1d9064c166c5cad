"""Somebody's shell, and a server beside it whose clock and worker are in the test's hands."""

from __future__ import annotations

import os
import time
from importlib.metadata import entry_points
from pathlib import Path

from click.testing import CliRunner

from api.service import USER, Service
from server import Result
from swell.cli.root import swell
from swell.config import Config


class Clock:
    """The real one, and as many seconds ahead of it as a test says."""

    ahead_s = 0.0

    def now(self) -> float:
        return time.time() + self.ahead_s

    def busy(self) -> float:
        return time.thread_time()


class Shell:
    """Commands find the server as they would find a real one: by its state folder."""

    def __init__(self, folder: Path, config: Config | None = None) -> None:
        self.clock = Clock()
        self.service = Service(folder / "state", clock=self.clock, config=config)
        state = self.service.state
        self._lock = state.lock("server")
        state.token.write_text(USER)
        state.write_json(state.server_file, {"socket": str(state.server_socket), "pid": os.getpid()})
        self.service.worker.sync()

    def close(self) -> None:
        self.service.close()

    def type(self, command: str, *words: str) -> Result:
        """One line, run to its end."""
        found = swell if command == "swell" else entry_points(group="console_scripts")[command].load()
        variables = {"SWELL_STATE": str(self.service.state.root), "LOGNAME": "ann"}
        done = CliRunner().invoke(found, list(words), prog_name=command, env=variables)
        return Result(done.exit_code, done.stdout, done.stderr)
