"""Where do logs go that workers elsewhere send?

Into the folder from which logs are served (`engines/logfolder.py`), beside those that tasks on the server's own machine
write there themselves. A piece that is here already is ignored; a hole stays a hole, so offsets are true.
"""

from __future__ import annotations

import os
from pathlib import Path

from swell.machine.log_limit import LogWatch
from swell.machine.users import open_without_waiting
from swell.model.job import AttemptId

WATCHES_MAX = 10_000  # logs of which we remember how much was dropped; of others it is dropped again
LOG_OFFSET_MAX = 1 << 50  # a petabyte; nothing writes that


class ReceivedLogs:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._watches: dict[tuple[AttemptId, int], LogWatch] = {}

    def write(self, attempt: AttemptId, index: int, offset: int, data: bytes) -> int:
        """How far the log reaches now."""
        folder = self._root / str(attempt) / str(index)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = open_without_waiting(folder / "log", os.O_WRONLY | os.O_CREAT)
        size = os.fstat(descriptor).st_size
        watch = self._watch(attempt, index, folder, size)
        try:
            new = data[max(0, size - offset) :]
            start = max(offset, size)
            while new:
                written = os.pwrite(descriptor, new, start)
                new, start = new[written:], start + written
            return max(size, start) if data else size
        finally:
            os.close(descriptor)
            watch.look()

    def _watch(self, attempt: AttemptId, index: int, folder: Path, size: int) -> LogWatch:
        """`size`: of what was there before we knew of it, whose times are in the index already."""
        if len(self._watches) > WATCHES_MAX:
            self._watches.clear()
        return self._watches.setdefault((attempt, index), LogWatch(folder, size=size))
