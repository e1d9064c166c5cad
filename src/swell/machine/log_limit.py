"""How long may a log grow?

Above the size limit the beginning of the file is dropped by punching a hole: the disk gets its blocks back and every
offset stays true.
"""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

from swell.machine.users import open_without_waiting
from swell.model.logindex import pack_entry

LOG_BYTES_MAX = 1 << 30  # 1 GiB per task; a runaway print loop fills a disk in minutes otherwise
DROP_STEP = 64 << 20  # dropped in pieces of this size, so that it happens rarely
_KEEP_SIZE, _PUNCH_HOLE = 1, 2


def drop_beginning(log: Path, size: int, dropped: int, *, bytes_max: int = LOG_BYTES_MAX, step: int = DROP_STEP) -> int:
    """How much is dropped by now, given how much was; raises `OSError` where the file system cannot."""
    if size - dropped <= bytes_max:
        return dropped
    until = (size - bytes_max) // step * step + step
    descriptor = open_without_waiting(log, os.O_WRONLY)
    try:
        _fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, 0, until)
    finally:
        os.close(descriptor)
    return until


def _fallocate(descriptor: int, mode: int, offset: int, length: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fallocate(descriptor, mode, ctypes.c_int64(offset), ctypes.c_int64(length)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


class LogWatch:
    """One task's log, looked at once a second while it lives."""

    def __init__(self, folder: Path, *, size: int = 0, bytes_max: int = LOG_BYTES_MAX, step: int = DROP_STEP) -> None:
        """`size`: how much of it is in the index already."""
        self._log = folder / "log"
        self._index = folder / "index"
        self._size = size
        self._dropped = 0
        self._bytes_max = bytes_max
        self._step = step

    def look(self) -> None:
        try:
            size = self._log.lstat().st_size
            if size > self._size:
                with self._index.open("ab") as file:
                    file.write(pack_entry(self._size, time.time()))
            self._size = size
            self._dropped = drop_beginning(self._log, size, self._dropped, bytes_max=self._bytes_max, step=self._step)
        except OSError:  # a full disk, an erased folder, a log that its user keeps shut: the log itself is what matters
            return
