"""Who keeps the worker of this machine alive?"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from swell.process import spawn_detached, wait_for_end
from swell.state import StateFolder

WORKER_ENDS_S = 5.0
RESPAWN_S = 1.0  # a worker that dies at once is not started again faster than this


class WorkerSupervisor(threading.Thread):
    """Keeps one worker alive on this machine. It is in a session of its own: it and its tasks outlive us."""

    def __init__(self, state: StateFolder) -> None:
        super().__init__(name="worker-supervisor", daemon=True)
        self._state = state
        self._spawned: subprocess.Popen[bytes] | None = None
        self.is_closing = False

    def close(self) -> None:
        """A server that ends in order takes its worker along; tasks stay, and the next worker takes them up."""
        self.is_closing = True
        if self._spawned is not None:  # it may not have its lock yet
            self._spawned.terminate()
        holder = self._state.lock_holder("worker")
        if holder:
            with contextlib.suppress(ProcessLookupError):
                os.kill(holder, signal.SIGTERM)
        self.join(WORKER_ENDS_S)

    def run(self) -> None:
        while not self.is_closing:
            holder = self._state.lock_holder("worker")
            if holder:
                wait_for_end(holder)
            else:
                self._spawned = self._spawn()
                self._spawned.wait()
            if not self.is_closing:
                time.sleep(RESPAWN_S)

    def _spawn(self) -> subprocess.Popen[bytes]:
        argv: list[Any] = [sys.executable, "-m", "swell.worker", "--state", str(self._state.root)]
        if self._state.socket is not None:
            argv += ["--socket", str(self._state.socket)]
        return spawn_detached(argv, self._state.worker_log)
