"""Which running jobs end because their user has far too much on the disk, which is everybody's?

Above the limit no job of theirs starts (`planner/quota.py`). A margin above it, the largest of their running jobs are
stopped and fail, so many that together they have what is above: that is the one that writes most, or, of many that
write a little each, several. What they wrote stays, so nothing more happens until there is another margin more, or the
jobs that are left would end for what others wrote. A server that starts again has forgotten what it did, and acts
once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from swell.controller.livejob import LiveJob
from swell.controller.yielding import Stop, stop
from swell.model.attempt import Failure
from swell.model.job import JobId, JobState
from swell.model.quota import MIB, DiskUse
from swell.model.reason import Code, Evidence
from swell.store import Changes

CAUSE = "its user's logs and checkpoints take far more of the disk than they may"


def jobs_to_end(use: DiskUse, acted_at: int, sizes: Mapping[JobId, int]) -> tuple[JobId, ...]:
    """The largest of the running jobs, whose bytes are `sizes`; a job without any is never the cause.

    `acted_at`: what the user had when jobs were last ended for it; 0: never, since they were last within their limit.
    """
    above = use.bytes - max(use.bytes_max, acted_at)
    if above <= use.margin:
        return ()
    ends: list[JobId] = []
    for job in sorted((job for job, size in sizes.items() if size), key=lambda job: (-sizes[job], job)):
        if above <= 0:
            break
        ends.append(job)
        above -= sizes[job]
    return tuple(ends)


class DiskLimit:
    """Remembers at how much jobs of a user were last ended."""

    def __init__(self, use: Callable[[str], DiskUse | None], sizes: Callable[[str], Mapping[JobId, int]]) -> None:
        self.use = use  #: of a user; None: nothing limits it
        self._sizes = sizes  #: bytes that each of a user's jobs surely has, those that have ended, too
        self._acted_at: dict[str, int] = {}
        self._acts_at: dict[str, int] = {}  #: in this cycle, which may still break off

    def enforce(self, jobs: Iterable[LiveJob], changes: Changes) -> list[Stop]:
        running: dict[str, dict[JobId, LiveJob]] = {}
        for job in jobs:
            if job.attempt is not None and job.state is not JobState.STOPPING:
                running.setdefault(job.owner, {})[job.id] = job
        self._acted_at = {user: at for user, at in self._acted_at.items() if self._is_over(user)}
        self._acts_at = {}
        return [end for user in sorted(running) for end in self._of_user(user, running[user], changes)]

    def recorded(self) -> None:
        """What `enforce` said last is on disk."""
        self._acted_at |= self._acts_at

    def _is_over(self, user: str) -> bool:
        use = self.use(user)
        return use is not None and use.is_over

    def _of_user(self, user: str, running: Mapping[JobId, LiveJob], changes: Changes) -> list[Stop]:
        use, everything = self.use(user), self._sizes(user)
        if use is None:
            return []
        use = replace(use, bytes=sum(everything.values()))
        sizes = {job: size for job, size in everything.items() if job in running}
        ends = jobs_to_end(use, self._acted_at.get(user, 0), sizes)
        if ends:
            self._acts_at[user] = use.bytes
        return [one for job in ends for one in _end(running[job], use, sizes[job], changes)]


def _end(job: LiveJob, use: DiskUse, size: int, changes: Changes) -> list[Stop]:
    evidence: Evidence = {"job": job.id, "user": job.owner, "job_mib": round(size / MIB, 1)}
    evidence |= {"disk_mib": round(use.bytes / MIB, 1), "disk_mib_max": use.bytes_max // MIB}
    return stop(job, changes, CAUSE, None, Failure(Code.DISK_LIMIT, evidence))
