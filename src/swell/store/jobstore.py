"""What does the controller need of a store?

SQLite keeps it on disk (`store.py`), a simulation in memory (`memory.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Protocol

from swell.model.job import JobId
from swell.model.quota import NO_QUOTA, Quota
from swell.model.usage import Account, DayOfUse, Used
from swell.store.accepting import PLAINLY, Acceptance
from swell.store.changes import Changes
from swell.store.records import AttemptRecord, JobRecord, NewJob, TaskRecord


class JobStore(Protocol):
    """A future is done when what it stands for is as durable as this store makes anything."""

    def accept(self, jobs: Sequence[NewJob], how: Acceptance = PLAINLY) -> Future[list[JobRecord]]:
        """Accept all jobs or none. A key that was used before is answered with the jobs of the first time."""

    def accept_each(
        self, jobs: Mapping[str, NewJob], *, origin: str = "", quota: Quota = NO_QUOTA
    ) -> Future[list[JobRecord | None]]:
        """Accept each job under a key of its own. None: the job of that key has been deleted."""

    def request_cancel(
        self, jobs: Sequence[JobId], *, by: str, grace_s: float | None, origin: str = ""
    ) -> Future[None]: ...

    def take_over(self) -> Future[int]:
        """The next generation: where several servers can share a store, all that earlier ones write is refused."""

    def record(self, changes: Changes) -> Future[None]:
        """Write all of the changes, or none."""

    def unstorable(self, changes: Changes) -> Future[dict[JobId, str]]:
        """Whose part of what could not be recorded cannot be, and why. Nothing is written."""

    def forget(self, jobs: Sequence[JobId], *, by: str, origin: str = "") -> Future[None]:
        """Delete jobs that have ended, with their attempts and tasks; their events stay."""

    def forget_events(self, before: float) -> Future[None]: ...

    def generation(self) -> int: ...

    def job(self, job: JobId) -> JobRecord:
        """Raises `NotFound`."""

    def jobs(self, wanted: Sequence[JobId]) -> dict[JobId, JobRecord]:
        """Jobs that are not there are left out."""

    def active(self) -> list[JobRecord]:
        """Jobs that have not ended, by id."""

    def open_attempts(self) -> list[AttemptRecord]:
        """Attempts that have not ended."""

    def tasks(self, job: JobId) -> list[TaskRecord]:
        """The tasks of the job, sorted by attempt and index."""

    def ended_before(self, moment: float, limit: int) -> list[JobId]: ...

    def newest_trained(self, each: int) -> list[JobRecord]:
        """So many jobs of each user, the last of theirs that have ended and had told of their training, by id."""

    def with_notice_due(self) -> list[JobRecord]: ...

    def arrivals(self, count: int) -> list[float]:
        """When the last jobs were submitted, oldest first."""

    def usage(self, *, since: str) -> list[DayOfUse]:
        """What each owner used on each day, sorted by day, then owner."""

    def usage_totals(self) -> dict[str, Used]: ...

    def accounts(self) -> dict[str, Account]: ...
