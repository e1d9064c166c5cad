"""How do a deleted job's checkpoints go, without anybody waiting for it?"""

from __future__ import annotations

import errno
from pathlib import Path

from swell.errors import Conflict
from swell.model.job import JobId
from swell.removal import Eraser


class CheckpointFolders:
    """One folder per job; those that users named themselves are elsewhere and are never touched."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._eraser = Eraser(root)

    def erase(self, job: JobId) -> None:
        """It is no longer there when this returns."""
        try:
            self._eraser.erase(str(job))
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            folder = self._root / str(job)
            raise Conflict(
                f"the checkpoints of job {job} cannot be removed: something is mounted on {folder}; unmount it first"
            ) from error
