"""When was each part of a log written, and how long may it grow?

Beside every log stands an index: pairs of (offset, time), one a second at most while it grows. Above the size limit
its beginning is dropped (`loglimit.py`). The task goes on appending and notices nothing.
"""

from __future__ import annotations

import time
from pathlib import Path

from swell.loglimit import DROP_STEP, LOG_BYTES_MAX, drop_beginning
from swell.model.logindex import pack_entry


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
            size = self._log.lstat().st_size
            if size > self._size:
                with self._index.open("ab") as file:
                    file.write(pack_entry(self._size, time.time()))
            self._size = size
            self._dropped = drop_beginning(self._log, size, self._dropped, bytes_max=self._bytes_max, step=self._step)
        except OSError:  # a full disk or an erased folder: the log itself is what matters
            return
