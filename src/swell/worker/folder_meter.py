"""Is there room in a worker's folder for another task, and does its disk take anything?"""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from swell.machine.tree_size import TooDeep, entry_sizes

MEASURE_S = 30.0  # between two measurements, which look at every file
FREE_BYTES_MIN = 4 << 20  # of the disk: a task needs some files before it writes its first line
DISK_PROBLEMS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)  # they pass; a task is not failed for them

log = logging.getLogger(__name__)


class FolderMeter:
    """Measures in a thread of its own: a folder with a million files takes a while, and the worker has none."""

    def __init__(self, folder: Path, mib_max: int | None, *, wake: Callable[[], None]) -> None:
        self._folder = folder
        self._bytes_max = None if mib_max is None else mib_max << 20  #: None: no limit but the disk's
        self._wake = wake  #: it has become too large, or is no longer
        self._is_large = False
        self._was_full = False

    @property
    def is_full(self) -> bool:
        is_full = self._is_large or self._disk_is_full()
        if is_full != self._was_full:
            self._was_full = is_full
            log.warning("%s is %s", self._folder, "full: no new tasks are accepted" if is_full else "no longer full")
        return is_full

    def _disk_is_full(self) -> bool:
        try:
            disk = os.statvfs(self._folder)
        except OSError:  # what is wrong with it is said where it is used
            return False
        return disk.f_bavail * disk.f_frsize < FREE_BYTES_MIN

    def start(self) -> None:
        if self._bytes_max is not None:
            threading.Thread(target=self._run, name="folder-meter", daemon=True).start()

    def _run(self) -> None:
        while True:
            self.measure()
            time.sleep(MEASURE_S)

    def measure(self) -> None:
        assert self._bytes_max is not None
        was_large = self._is_large
        try:
            self._is_large = sum(entry_sizes(self._folder.parent, self._folder.name)) > self._bytes_max
        except (OSError, TooDeep) as error:
            log.warning("%s cannot be measured: %s", self._folder, error)
        if self._is_large != was_large:
            self._wake()


def disk_trouble(error: OSError) -> str:
    return f"the disk of the worker's folder takes nothing ({error.strerror}); what has not begun waits until it does"
