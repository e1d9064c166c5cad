"""What does the store answer?

Every question is one statement on a connection of its own, so readers wait for nobody, the writer included.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Select, bindparam, func, select, true
from sqlalchemy.engine import Engine

from swell.errors import NotFound
from swell.model.job import AttemptId, JobId, JobState
from swell.model.launch import CAUSE_STOPPED
from swell.model.usage import Account, DayOfUse, Used
from swell.store import tables
from swell.store.accepting import SELECT_KEY
from swell.store.kept import read_kept
from swell.store.records import (
    CODES,
    STATES,
    AttemptRecord,
    EventRecord,
    JobRecord,
    Outline,
    TaskRecord,
    attempt_record,
    event_record,
    job_record,
    task_record,
)
from swell.store.usage import read_accounts, read_totals, read_usage

EVENTS_PER_READ_MAX = 1000
EVENTS_SEARCHED_MAX = 200_000  # for those of one kind, which no index has: a tenth of a second
PAGE_ROWS = 500
LISTING_ORDER = (tables.job.c.ended_at.is_not(None), tables.job.c.ended_at.desc(), tables.job.c.id)
SELECT_JOB = select(tables.job).where(tables.job.c.id == bindparam("job"))


class StoreReader:
    """The questions that a store answers."""

    def __init__(self, reading: Engine) -> None:
        self._reading = reading

    def job(self, job: JobId) -> JobRecord:
        found = self._rows(SELECT_JOB, {"job": job})
        if not found:
            raise no_job(job)
        return job_record(found[0])

    def jobs(self, wanted: Sequence[JobId]) -> dict[JobId, JobRecord]:
        """The records of these jobs; a job that does not exist is left out."""
        found: dict[JobId, JobRecord] = {}
        for begin in range(0, len(wanted), PAGE_ROWS):
            rows = self._rows(select(tables.job).where(tables.job.c.id.in_(wanted[begin : begin + PAGE_ROWS])))
            found |= {row.id: job_record(row) for row in rows}
        return found

    def jobs_named(
        self, name: str, *, limit: int, owner: str | None = None, ended: bool | None = None
    ) -> list[JobRecord]:
        """The newest jobs of that name, newest first. `owner` None: of every owner; `ended` None: ended or not."""
        named = select(tables.job).where(_is_named(name, owner, ended)).order_by(tables.job.c.id.desc()).limit(limit)
        return [job_record(row) for row in self._rows(named)]

    def count_named(self, name: str, *, owner: str | None = None, ended: bool | None = None) -> int:
        return self._count(_is_named(name, owner, ended))

    def active_named(self, name: str) -> list[JobRecord]:
        """The jobs of that name that have not ended, of every owner."""
        named = select(tables.job).where((tables.job.c.name == name) & _is_active())
        return [job_record(row) for row in self._rows(named.order_by(tables.job.c.id))]

    def knows_key(self, key: str) -> bool:
        """Was a submission accepted under this idempotency key before?"""
        return bool(self._rows(SELECT_KEY, {"asked": key}))

    def names(self, limit: int = 200, *, owner: str | None = None) -> list[str]:
        recent = select(tables.job.c.name).where(_is_of(owner)).order_by(tables.job.c.id.desc()).limit(limit)
        return sorted({row[0] for row in self._rows(recent)})

    def active(self, *, owner: str | None = None) -> list[JobRecord]:
        rows = self._rows(select(tables.job).where(_is_active() & _is_of(owner)).order_by(tables.job.c.id))
        return [job_record(row) for row in rows]

    def outlines(self) -> list[Outline]:
        """A few columns of each active job, so that thousands of jobs can be read every second."""
        job = tables.job.c
        rows = self._rows(select(job.id, job.state, job.reason_code, job.width, job.attempts).where(_is_active()))
        return [Outline(row[0], STATES[row[1]], CODES[row[2]], row[3], row[4]) for row in rows]

    def listing(
        self, *, ended_since: float | None, owner: str | None = None, limit: int | None = None
    ) -> tuple[list[JobRecord], int]:
        """Active jobs first, then the ended ones, newest first; and how many there are beyond the limit.

        `ended_since` None: all ended jobs; otherwise those that ended after that moment.
        """
        wanted = _is_listed(ended_since, owner)
        ordered = select(tables.job).where(wanted).order_by(*LISTING_ORDER)
        rows = self._rows(ordered if limit is None else ordered.limit(limit))
        total = len(rows) if limit is None else self._count(wanted)
        return [job_record(row) for row in rows], total - len(rows)

    def pages(self, *, ended_since: float | None, owner: str | None = None) -> Iterator[list[JobRecord]]:
        """The whole listing in pieces, so that ten thousand jobs are never in memory at once."""
        ordered = select(tables.job.c.id).where(_is_listed(ended_since, owner)).order_by(*LISTING_ORDER)
        ids = [row[0] for row in self._rows(ordered)]
        for begin in range(0, len(ids), PAGE_ROWS):
            page = ids[begin : begin + PAGE_ROWS]
            found = self.jobs(page)
            yield [found[job] for job in page if job in found]

    def _count(self, condition: Any) -> int:
        return int(self._rows(select(func.count()).select_from(tables.job).where(condition))[0][0])

    def counts(self) -> dict[str, int]:
        """How many jobs are in each state."""
        return self.listed_counts(ended_since=None)

    def listed_counts(self, *, ended_since: float | None, owner: str | None = None) -> dict[str, int]:
        """How many of the jobs that `listing` lists are in each state."""
        grouped = select(tables.job.c.state, func.count()).where(_is_listed(ended_since, owner))
        return {str(row[0]): int(row[1]) for row in self._rows(grouped.group_by(tables.job.c.state))}

    def waiting(self) -> dict[str, int]:
        """How many jobs wait for each reason."""
        waits = tables.job.c.state.in_([str(JobState.QUEUED), str(JobState.HELD)])
        grouped = select(tables.job.c.reason_code, func.count()).where(waits).group_by(tables.job.c.reason_code)
        return {str(row[0]): int(row[1]) for row in self._rows(grouped)}

    def ended_before(self, moment: float, limit: int) -> list[JobId]:
        old = select(tables.job.c.id).where(tables.job.c.ended_at < moment).order_by(tables.job.c.id).limit(limit)
        return [row[0] for row in self._rows(old)]

    def newest_trained(self, each: int) -> list[JobRecord]:
        """So many jobs of each user, the last of theirs that have ended and had told of their training, by id."""
        job = tables.job.c
        place = func.row_number().over(partition_by=job.owner, order_by=job.id.desc()).label("place")
        told = select(job.id, place).where(job.ended_at.is_not(None) & job.training.is_not(None)).subquery()
        wanted = job.id.in_(select(told.c.id).where(told.c.place <= each))
        return [job_record(row) for row in self._rows(select(tables.job).where(wanted).order_by(job.id))]

    def owners(self, jobs: Sequence[JobId]) -> dict[JobId, str]:
        """The owner of each of these jobs; a job that was deleted is left out."""
        named = select(tables.job.c.id, tables.job.c.owner).where(tables.job.c.id.in_(jobs))
        return {row[0]: row[1] for row in self._rows(named)}

    def attempts(self, job: JobId) -> list[AttemptRecord]:
        of_job = select(tables.attempt).where(tables.attempt.c.job_id == job).order_by(tables.attempt.c.number)
        return [attempt_record(row) for row in self._rows(of_job)]

    def open_attempts(self) -> list[AttemptRecord]:
        still = select(tables.attempt).where(tables.attempt.c.ended_at.is_(None))
        return [attempt_record(row) for row in self._rows(still)]

    def attempt_made_at(self, attempt: AttemptId) -> float | None:
        """When the attempt was created; None: it has ended, or does not exist."""
        one = (tables.attempt.c.job_id == attempt.job) & (tables.attempt.c.number == attempt.number)
        rows = self._rows(select(tables.attempt.c.created_at).where(one & tables.attempt.c.ended_at.is_(None)))
        return float(rows[0][0]) if rows else None

    def oldest_open_attempt(self) -> float | None:
        """When the oldest attempt that has not ended was created; None: every attempt has ended."""
        oldest = select(func.min(tables.attempt.c.created_at)).where(tables.attempt.c.ended_at.is_(None))
        found = self._rows(oldest)[0][0]
        return None if found is None else float(found)

    def tasks(self, job: JobId) -> list[TaskRecord]:
        of_job = select(tables.task).where(tables.task.c.job_id == job)
        rows = self._rows(of_job.order_by(tables.task.c.attempt, tables.task.c.task_index))
        return [task_record(row) for row in rows]

    def first_tasks(self, job: JobId, *, of_each: int) -> list[TaskRecord]:
        """The first `of_each` tasks of each attempt: an array may have a million."""
        task = tables.task.c
        place = func.row_number().over(partition_by=task.attempt, order_by=task.task_index).label("place")
        numbered = select(tables.task, place).where(task.job_id == job).subquery()
        first = select(*(numbered.c[column.name] for column in task)).where(numbered.c.place <= of_each)
        rows = self._rows(first.order_by(numbered.c.attempt, numbered.c.task_index))
        return [task_record(row) for row in rows]

    def task_counts(self, job: JobId) -> dict[int, int]:
        """How many tasks each attempt has."""
        task = tables.task.c
        counted = select(task.attempt, func.count()).where(task.job_id == job).group_by(task.attempt)
        return {int(row[0]): int(row[1]) for row in self._rows(counted)}

    def running_tasks(self, job: JobId, attempt: int, *, index: int | None, limit: int) -> list[TaskRecord]:
        """The first tasks of an attempt that have not ended. `index` None: tasks of every index."""
        task = tables.task.c
        alive = select(tables.task).where(task.job_id == job, task.attempt == attempt, task.ended_at.is_(None))
        wanted = alive if index is None else alive.where(task.task_index == index)
        return [task_record(row) for row in self._rows(wanted.order_by(task.task_index).limit(limit))]

    def failed_tasks(self, job: JobId, *, limit: int) -> list[TaskRecord]:
        """The first tasks that failed by themselves, in the last attempt that has such tasks."""
        task = tables.task.c
        has_failed = task.ended_at.is_not(None) & ((task.exit_code.is_distinct_from(0)) | (task.cause != ""))
        failed = select(tables.task).where(task.job_id == job, has_failed, task.cause != CAUSE_STOPPED)
        rows = self._rows(failed.order_by(task.attempt.desc(), task.task_index).limit(limit))
        found = [task_record(row) for row in rows]
        return [one for one in found if one.attempt == found[0].attempt]

    def task(self, job: JobId, attempt: int, index: int) -> TaskRecord | None:
        keyed = select(tables.task).where(
            tables.task.c.job_id == job, tables.task.c.attempt == attempt, tables.task.c.task_index == index
        )
        rows = self._rows(keyed)
        return task_record(rows[0]) if rows else None

    def events(
        self,
        *,
        after: int = 0,
        job: JobId | None = None,
        owner: str | None = None,
        limit: int = EVENTS_PER_READ_MAX,
    ) -> list[EventRecord]:
        """The events of one job, of all jobs of one owner, or all events."""
        wanted = select(tables.event).where(tables.event.c.id > after).order_by(tables.event.c.id).limit(limit)
        if job is not None:
            wanted = wanted.where(tables.event.c.job_id == job)
        if owner is not None:
            wanted = wanted.where(tables.event.c.job_id.in_(select(tables.job.c.id).where(_is_of(owner))))
        return [event_record(row) for row in self._rows(wanted)]

    def arrivals(self, count: int) -> list[float]:
        """When the last jobs were submitted, oldest first."""
        newest = select(tables.job.c.submitted_at).order_by(tables.job.c.id.desc()).limit(count)
        return sorted(row[0] for row in self._rows(newest))

    def with_notice_due(self) -> list[JobRecord]:
        return [job_record(row) for row in self._rows(select(tables.job).where(tables.job.c.notice_due == 1))]

    def lost_gpu_seconds(self) -> float:
        """The GPU-seconds that all stored jobs have lost."""
        return float(self._rows(select(func.coalesce(func.sum(tables.job.c.lost_gpu_seconds), 0.0)))[0][0])

    def recent_events(self, kind: str, *, since: float, owner: str | None = None) -> list[EventRecord]:
        """Of one kind, newest first; as far back as is quickly read."""
        newest = select(func.coalesce(func.max(tables.event.c.id), 0)).scalar_subquery()
        wanted = select(tables.event).where(
            tables.event.c.id > newest - EVENTS_SEARCHED_MAX, tables.event.c.kind == kind, tables.event.c.at >= since
        )
        if owner is not None:
            wanted = wanted.where(tables.event.c.job_id.in_(select(tables.job.c.id).where(_is_of(owner))))
        return [
            event_record(row)
            for row in self._rows(wanted.order_by(tables.event.c.id.desc()).limit(EVENTS_PER_READ_MAX))
        ]

    def usage(self, *, since: str) -> list[DayOfUse]:
        """What attempts that have ended took since a day; it outlives its jobs."""
        with self._reading.connect() as connection:
            return read_usage(connection, since)

    def usage_totals(self) -> dict[str, Used]:
        with self._reading.connect() as connection:
            return read_totals(connection)

    def accounts(self) -> dict[str, Account]:
        """What each owner has used, where older use counts less."""
        with self._reading.connect() as connection:
            return read_accounts(connection)

    def last_event_id(self) -> int:
        return int(self._rows(select(func.coalesce(func.max(tables.event.c.id), 0)))[0][0])

    def environment(self, digest: str) -> dict[str, str]:
        with self._reading.connect() as connection:
            return read_kept(connection, tables.environment, digest)

    def manifest(self, digest: str) -> dict[str, Any]:
        """The foreign document that a job's object is made from."""
        with self._reading.connect() as connection:
            return read_kept(connection, tables.manifest, digest)

    def generation(self) -> int:
        with self._reading.connect() as connection:
            return read_number(connection, "generation")

    def _rows(self, statement: Select[Any], values: dict[str, Any] | None = None) -> Sequence[Any]:
        with self._reading.connect() as connection:
            return connection.execute(statement, values or {}).all()


def read_number(connection: Connection, key: str) -> int:
    """The number that is stored under the key; zero: none is stored."""
    found = connection.execute(select(tables.meta.c.value).where(tables.meta.c.key == key)).first()
    return 0 if found is None else int(found[0])


def _is_active() -> Any:
    return tables.job.c.state.not_in(tables.ENDED_STATES)


def _is_of(owner: str | None) -> Any:
    """The condition that a job belongs to this owner; None: to anybody."""
    return true() if owner is None else tables.job.c.owner == owner


def _is_named(name: str, owner: str | None, ended: bool | None) -> Any:
    """The condition that a job has this name and owner. `ended` None: whether it has ended or not."""
    wanted = (tables.job.c.name == name) & _is_of(owner)
    if ended is None:
        return wanted
    return wanted & (tables.job.c.state.in_(tables.ENDED_STATES) if ended else _is_active())


def _is_listed(ended_since: float | None, owner: str | None) -> Any:
    return (_is_active() | (tables.job.c.ended_at >= (ended_since or 0.0))) & _is_of(owner)


def no_job(job: JobId) -> NotFound:
    """The same words whether it never was, was deleted, or is not for who asks to see."""
    return NotFound(f"there is no job {job}; `swell ps -a` lists all")
