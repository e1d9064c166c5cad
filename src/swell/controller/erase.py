"""How do a deleted job's checkpoints go, without anybody waiting for it?

Removing gigabytes takes seconds, and neither the loop nor the API has them. A folder is renamed, which takes no time,
and removed by a thread of its own. What a killed server has renamed and not removed, the next one removes.
"""

from __future__ import annotations

import logging
import queue
import shutil
import threading
from pathlib import Path

from swell.model.job import JobId

PREFIX = ".erased-"

log = logging.getLogger(__name__)


class CheckpointFolders:
    """One folder per job; those that users named themselves are elsewhere and are never touched."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._doomed: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for left in root.glob(f"{PREFIX}*"):
            self._doomed.put(left)
        threading.Thread(target=self._run, name="checkpoint-eraser", daemon=True).start()

    def erase(self, job: JobId) -> None:
        """It is no longer there when this returns."""
        doomed = self._root / f"{PREFIX}{job}"
        try:
            (self._root / str(job)).rename(doomed)
        except FileNotFoundError:
            return  # it made no checkpoint
        self._doomed.put(doomed)

    def _run(self) -> None:
        while True:
            folder = self._doomed.get()
            try:
                shutil.rmtree(folder)
            except OSError as error:
                log.warning("the checkpoints in %s could not be removed: %s", folder, error)
