"""Which history goes, and when?"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path

from swell.engines import Engine
from swell.errors import Conflict
from swell.machine.removal import Eraser
from swell.model.job import AttemptId, JobId
from swell.store import JobRecord
from swell.store.jobstore import JobStore


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


FORGET_PER_CYCLE_MAX = 200  # old jobs removed at once; keeps one transaction short


class Retention:
    def __init__(
        self,
        store: JobStore,
        engine: Engine,
        *,
        keep_s: float | None,
        erase_checkpoints: Callable[[JobId], None],
        forgotten: Callable[[JobId], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._engine = engine
        self._keep_s = keep_s  #: None: for ever
        self._erase_checkpoints = erase_checkpoints  #: of a job that kept them with us; must not block
        self._forgotten = forgotten  #: told of every job that goes
        self._forget_after = 0.0

    def delete(self, jobs: Sequence[JobRecord], *, by: str, origin: str) -> Future[None]:
        """With their checkpoints: somebody has asked for it."""
        for job in jobs:
            if not job.state.has_ended:
                raise Conflict(f"job {job.id} ({job.name}) is {job.state}; cancel it first: swell cancel {job.id}")
        for job in jobs:
            if job.spec.checkpoints is None:
                self._erase_checkpoints(job.id)
        return self._forget(jobs, by=by, origin=origin)

    def forget_old(self, now: float) -> None:
        """History older than the retention goes, with its logs. A job's age counts from its end, not from its log's.

        Its checkpoints stay: they are somebody's work, and nobody has asked for them to go.
        """
        if self._keep_s is None:
            return
        before = now - self._keep_s
        if before < self._forget_after:
            return
        old = self._store.ended_before(before, FORGET_PER_CYCLE_MAX)
        if old:
            self._forget([self._store.job(job) for job in old], by="retention").result()
        if len(old) < FORGET_PER_CYCLE_MAX:
            self._store.forget_events(before).result()
            self._forget_after = before + self._keep_s / 100

    def _forget(self, jobs: Sequence[JobRecord], *, by: str, origin: str = "") -> Future[None]:
        for job in jobs:
            for number in range(1, job.attempts + 1):
                self._engine.erase(AttemptId(job.id, number))
            self._forgotten(job.id)
        return self._store.forget([job.id for job in jobs], by=by, origin=origin)
