"""Where is a task's log, and what does it say from an offset on?

Every engine that keeps logs on the server's machine keeps them in the same folders: ATTEMPT/INDEX/log, and beside it an
`index` of when what was written (`model/logindex.py`). The embedded worker's tasks write theirs themselves; what
pods say is copied there (`kubernetes/logs.py`).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from swell.model.job import AttemptId
from swell.model.logindex import offset_at


class LogFolder:
    def __init__(self, root: Path) -> None:
        self._root = root

    def _path(self, attempt: AttemptId, index: int) -> Path:
        return self._root / str(attempt) / str(index) / "log"

    def size(self, attempt: AttemptId, index: int) -> int | None:
        try:
            return self._path(attempt, index).stat().st_size
        except FileNotFoundError:
            return None

    def read(self, attempt: AttemptId, index: int, offset: int, limit: int) -> tuple[int, bytes]:
        """A dropped beginning is a hole in the file: it is stepped over, offsets stay true."""
        try:
            descriptor = os.open(self._path(attempt, index), os.O_RDONLY)
        except FileNotFoundError:
            return offset, b""
        try:
            start = _first_kept(descriptor, offset)
            return start, os.pread(descriptor, limit, start)
        finally:
            os.close(descriptor)

    def offset_at(self, attempt: AttemptId, index: int, moment: float) -> int | None:
        try:
            data = self._path(attempt, index).with_name("index").read_bytes()
        except FileNotFoundError:
            return None
        return offset_at(data, moment)

    def erase(self, attempt: AttemptId) -> None:
        shutil.rmtree(self._root / str(attempt), ignore_errors=True)


def _first_kept(descriptor: int, offset: int) -> int:
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError:  # ENXIO: the offset is at or beyond the end
        return offset
