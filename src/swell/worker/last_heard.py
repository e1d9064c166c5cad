"""When was the server last heard, by this process or by an earlier one in the same folder?

A worker on another machine may run tasks for as long as its lease. A worker that is started again goes on with the
lease of the one before: a new lease would let its tasks run while the server starts them elsewhere.
"""

from __future__ import annotations

import contextlib
import math
import threading

from swell.machine.boot_clock import clock
from swell.machine.worker_folder import WorkerFolder

NOTED_S = 2.0  # at most one write in so long; a lease that is read again ends so much earlier
NEVER = -math.inf


class HeardNote:
    """Thread-safe. In the worker's folder: the last time the server was heard, and the boot whose clock that is."""

    def __init__(self, folder: WorkerFolder, boot_id: str) -> None:
        self._folder = folder
        self._boot_id = boot_id
        self._noted_at = NEVER
        self._mutex = threading.Lock()

    def noted(self) -> float:
        """`NEVER`: nobody has noted it, or it was before this boot."""
        found = self._folder.read_json(self._folder.heard)
        at = found.get("heard_at")
        if found.get("boot_id") != self._boot_id or not isinstance(at, float) or not 0 <= at <= clock():
            return NEVER
        return at

    def write(self, at: float) -> None:
        """Where the disk takes nothing, an earlier time stays there: its lease ends earlier."""
        with self._mutex:
            if at - self._noted_at < NOTED_S:
                return
            self._noted_at = at
            with contextlib.suppress(OSError):
                self._folder.write_json(self._folder.heard, {"boot_id": self._boot_id, "heard_at": at})
