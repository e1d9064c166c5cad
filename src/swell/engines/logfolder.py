"""Where is a task's log, and what does it say from an offset on?

Every engine that keeps logs on the server's machine keeps them in the same folders: ATTEMPT/INDEX/log, and beside it an
`index` of when what was written (`model/logindex.py`). The embedded worker's tasks write theirs themselves; what
pods say is copied there (`kubernetes/logs/`). What lies there and is no file (a link, a pipe) is no log.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from swell.machine.removal import Eraser
from swell.machine.users import open_without_waiting
from swell.model.job import AttemptId
from swell.model.logindex import offset_at

INDEX_BYTES_MAX = 16 << 20  # an entry a second at most: twelve days of writing without a pause


NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EWOULDBLOCK)


class LogFolder:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._eraser: Eraser | None = None  #: None: nothing was erased yet

    def _path(self, attempt: AttemptId, index: int) -> Path:
        return self._root / str(attempt) / str(index) / "log"

    def size(self, attempt: AttemptId, index: int) -> int | None:
        try:
            found = self._path(attempt, index).lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def read(self, attempt: AttemptId, index: int, offset: int, limit: int) -> tuple[int, bytes]:
        """A dropped beginning is a hole in the file: it is stepped over, offsets stay true."""
        descriptor = _opened(self._path(attempt, index))
        if descriptor is None:
            return offset, b""
        try:
            start = _first_kept(descriptor, offset)
            return start, os.pread(descriptor, limit, start)
        finally:
            os.close(descriptor)

    def offset_at(self, attempt: AttemptId, index: int, moment: float) -> int | None:
        descriptor = _opened(self._path(attempt, index).with_name("index"))
        if descriptor is None:
            return None
        with os.fdopen(descriptor, "rb") as file:
            return offset_at(file.read(INDEX_BYTES_MAX), moment)

    def erase(self, attempt: AttemptId) -> None:
        """It is no longer there when this returns; the disk gets its room back a little later."""
        if self._eraser is None:
            self._eraser = Eraser(self._root)
        self._eraser.erase(str(attempt))


def _opened(path: Path) -> int | None:
    """None: there is no such file, or none that its user lets anybody open now."""
    try:
        descriptor = open_without_waiting(path)
    except OSError as error:
        if error.errno not in NO_FILE:
            raise
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def _first_kept(descriptor: int, offset: int) -> int:
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError:  # ENXIO: nothing was written from there on to the end, which a task can set as far off as it likes
        return max(offset, os.fstat(descriptor).st_size)
