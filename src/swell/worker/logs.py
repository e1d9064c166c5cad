"""When was each part of a log written, and how long may it grow?

Beside every log stands an index: pairs of (offset, time), one a second at most while it grows. Above the size limit
the beginning of the file is dropped by punching a hole: the disk gets its blocks back and every offset stays
true. The task goes on appending and notices nothing.
"""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

from swell.model.logindex import pack_entry

LOG_BYTES_MAX = 1 << 30  # 1 GiB per task; a runaway print loop fills a disk in minutes otherwise
DROP_STEP = 64 << 20  # dropped in pieces of this size, so that it happens rarely
_KEEP_SIZE, _PUNCH_HOLE = 1, 2


class LogWatch:
    """One task's log, looked at once a second while it lives."""

    def __init__(self, folder: Path, *, bytes_max: int = LOG_BYTES_MAX, step: int = DROP_STEP) -> None:
        self._log = folder / "log"
        self._index = folder / "index"
        self._size = 0
        self._dropped = 0
        self._bytes_max = bytes_max
        self._step = step

    def look(self) -> None:
        try:
            size = self._log.stat().st_size
            if size > self._size:
                with self._index.open("ab") as file:
                    file.write(pack_entry(self._size, time.time()))
            self._size = size
            if size - self._dropped > self._bytes_max:
                self._drop(size)
        except OSError:  # a full disk or an erased folder: the log itself is what matters
            return

    def _drop(self, size: int) -> None:
        until = (size - self._bytes_max) // self._step * self._step + self._step
        descriptor = os.open(self._log, os.O_WRONLY)
        try:
            _fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, 0, until)
            self._dropped = until
        finally:
            os.close(descriptor)


def _fallocate(descriptor: int, mode: int, offset: int, length: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fallocate(descriptor, mode, ctypes.c_int64(offset), ctypes.c_int64(length)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
