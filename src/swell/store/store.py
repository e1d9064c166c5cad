"""How is it written down, and how is it read back?"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Connection,
    Select,
    bindparam,
    create_engine,
    delete,
    event,
    func,
    insert,
    select,
    true,
    update,
)
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DatabaseError

from swell.errors import NotFound, Unavailable
from swell.model.job import ENDED, AttemptId, JobId, JobState
from swell.model.quota import NO_QUOTA, Quota
from swell.model.usage import Account, DayOfUse, Used
from swell.store import tables
from swell.store.accepting import SELECT_KEY, accept, accept_each, write_events
from swell.store.disk import disk_trouble
from swell.store.doors import DoorStore
from swell.store.kept import drop_unused, read_kept
from swell.store.migrate import migrate
from swell.store.records import (
    CODES,
    STATES,
    AttemptRecord,
    EventRecord,
    JobRecord,
    NewJob,
    Outline,
    TaskRecord,
    attempt_record,
    attempt_row,
    event_record,
    job_record,
    task_record,
    task_row,
)
from swell.store.tokens import TokenStore
from swell.store.upsert import upsert
from swell.store.usage import add_usage, read_accounts, read_totals, read_usage, write_accounts
from swell.store.writer import Writer

ENDED_STATES = [str(state) for state in ENDED]
EVENTS_PER_READ_MAX = 1000
CACHE_KIB = 4096  # per connection; the server's memory budget is 150 MB with 10,000 jobs

PAGE_ROWS = 500
LISTING_ORDER = (tables.job.c.ended_at.is_not(None), tables.job.c.ended_at.desc(), tables.job.c.id)
SELECT_JOB = select(tables.job).where(tables.job.c.id == bindparam("job"))


@dataclass(slots=True)
class Changes:
    """What one cycle changes, written in one transaction or not at all."""

    jobs: dict[JobId, dict[str, Any]] = field(default_factory=dict)  #: new values of columns
    attempts: list[AttemptRecord] = field(default_factory=list)
    tasks: list[TaskRecord] = field(default_factory=list)
    events: list[EventRecord] = field(default_factory=list)
    usage: dict[tuple[str, str], Used] = field(default_factory=dict)  #: owner and day → what is added to it
    accounts: dict[str, Account] = field(default_factory=dict)  #: owner → the new value
    generation: int | None = None  #: None: no action was planned

    def __bool__(self) -> bool:
        return bool(self.jobs or self.attempts or self.tasks or self.events or self.generation)

    def set_job(self, job: JobId, **values: Any) -> None:
        self.jobs.setdefault(job, {}).update(values)


class Store:
    """One installation's memory."""

    def __init__(self, writing: Engine, reading: Engine, clock: Callable[[], float]) -> None:
        self._reading = reading
        self._clock = clock
        self._listeners: list[Callable[[], None]] = []
        self.on_commit: Callable[[float], None] = lambda _: None  #: how long one took, in seconds
        self._writer = Writer(writing, self._tell)
        self.id = self._writer.submit(_identity).result()
        self.doors = DoorStore(self._writer.submit, self._rows, clock)
        self.tokens = TokenStore(self._writer.submit, self._rows, clock)

    def listen(self, listener: Callable[[], None]) -> None:
        """Called after every commit, from the writer's thread; it must not block."""
        self._listeners.append(listener)

    def _tell(self, seconds: float) -> None:
        self.on_commit(seconds)
        for listener in self._listeners:
            listener()

    def close(self) -> None:
        self._writer.close()

    # -- writing -----------------------------------------------------------------------------------------

    def accept(
        self,
        jobs: Sequence[NewJob],
        *,
        key: str | None = None,
        digest: str = "",
        origin: str = "",
        quota: Quota = NO_QUOTA,
    ) -> Future[list[JobRecord]]:
        """Durable before the future is done. The same key again answers with the jobs of the first time.

        All are of one owner, who may have no more than the quota says.
        """
        return self._writer.submit(
            lambda connection: accept(connection, jobs, key, digest, origin, quota, self._clock())
        )

    def accept_each(self, jobs: Mapping[str, NewJob], *, origin: str = "") -> Future[list[JobRecord | None]]:
        """Many that belong together by nothing, each under a key of its own. None: its job was deleted since."""
        return self._writer.submit(lambda connection: accept_each(connection, jobs, origin, self._clock()))

    def request_cancel(
        self, jobs: Sequence[JobId], *, by: str, grace_s: float | None, origin: str = ""
    ) -> Future[None]:
        values = {"cancel_requested_by": by, "cancel_grace_s": grace_s}
        asked = [EventRecord("CancelRequested", job, by, {"grace_s": grace_s}, origin=origin) for job in jobs]
        return self.record(Changes(jobs={job: dict(values) for job in jobs}, events=asked))

    def record(self, changes: Changes) -> Future[None]:
        return self._writer.submit(lambda connection: self._record(connection, changes))

    def forget(self, jobs: Sequence[JobId], *, by: str, origin: str = "") -> Future[None]:
        """Remove ended jobs with their attempts and tasks; the events stay as the audit trail."""
        return self._writer.submit(lambda connection: self._forget(connection, jobs, by, origin))

    def forget_events(self, before: float) -> Future[None]:
        old = delete(tables.event).where(tables.event.c.at < before)
        old_keys = delete(tables.idempotency).where(tables.idempotency.c.at < before)
        return self._writer.submit(lambda connection: (connection.execute(old), connection.execute(old_keys))[0])

    def _record(self, connection: Connection, changes: Changes) -> None:
        for group in _by_columns(changes.jobs):
            columns = [name for name in group[0] if name != "job"]
            statement = update(tables.job).where(tables.job.c.id == bindparam("job"))
            values: dict[str, Any] = {name: bindparam(f"new_{name}") for name in columns}
            statement = statement.values(version=tables.job.c.version + 1, **values)
            connection.execute(statement, [_bound(row) for row in group])
        upsert(connection, tables.attempt, [attempt_row(record) for record in changes.attempts])
        upsert(connection, tables.task, [task_row(record) for record in changes.tasks])
        write_events(connection, changes.events, self._clock())
        add_usage(connection, changes.usage)
        write_accounts(connection, changes.accounts)
        if changes.generation is not None:
            upsert(connection, tables.meta, [{"key": "generation", "value": str(changes.generation)}])

    def _forget(self, connection: Connection, jobs: Sequence[JobId], by: str, origin: str) -> None:
        for job in jobs:
            connection.execute(delete(tables.task).where(tables.task.c.job_id == job))
            connection.execute(delete(tables.attempt).where(tables.attempt.c.job_id == job))
            connection.execute(delete(tables.job).where(tables.job.c.id == job))
        deleted = [EventRecord("Deleted", job, by, origin=origin) for job in jobs]
        write_events(connection, deleted, self._clock())
        drop_unused(connection)

    # -- reading -----------------------------------------------------------------------------------------

    def job(self, job: JobId) -> JobRecord:
        found = self._rows(SELECT_JOB, {"job": job})
        if not found:
            raise no_job(job)
        return job_record(found[0])

    def jobs(self, wanted: Sequence[JobId]) -> dict[JobId, JobRecord]:
        """Those of them that there are."""
        found: dict[JobId, JobRecord] = {}
        for begin in range(0, len(wanted), PAGE_ROWS):
            rows = self._rows(select(tables.job).where(tables.job.c.id.in_(wanted[begin : begin + PAGE_ROWS])))
            found |= {row.id: job_record(row) for row in rows}
        return found

    def jobs_named(
        self, name: str, *, limit: int, owner: str | None = None, ended: bool | None = None
    ) -> list[JobRecord]:
        """The newest of them, newest first; of one owner, or of all. `ended` None: whether they have or not."""
        named = select(tables.job).where(_is_named(name, owner, ended)).order_by(tables.job.c.id.desc()).limit(limit)
        return [job_record(row) for row in self._rows(named)]

    def count_named(self, name: str, *, owner: str | None = None, ended: bool | None = None) -> int:
        return self._count(_is_named(name, owner, ended))

    def active_named(self, name: str) -> list[JobRecord]:
        """Those of a name that have not ended, whoever's."""
        named = select(tables.job).where((tables.job.c.name == name) & _is_active())
        return [job_record(row) for row in self._rows(named.order_by(tables.job.c.id))]

    def knows_key(self, key: str) -> bool:
        """Was something accepted under it before?"""
        return bool(self._rows(SELECT_KEY, {"asked": key}))

    def names(self, limit: int = 200, *, owner: str | None = None) -> list[str]:
        recent = select(tables.job.c.name).where(_is_of(owner)).order_by(tables.job.c.id.desc()).limit(limit)
        return sorted({row[0] for row in self._rows(recent)})

    def active(self, *, owner: str | None = None) -> list[JobRecord]:
        rows = self._rows(select(tables.job).where(_is_active() & _is_of(owner)).order_by(tables.job.c.id))
        return [job_record(row) for row in rows]

    def outlines(self) -> list[Outline]:
        """Of the active jobs: a few columns, so that thousands can be looked at every second."""
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
        """Of those that `listing` lists."""
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

    def owners(self, jobs: Sequence[JobId]) -> dict[JobId, str]:
        """Of those of them that are remembered."""
        named = select(tables.job.c.id, tables.job.c.owner).where(tables.job.c.id.in_(jobs))
        return {row[0]: row[1] for row in self._rows(named)}

    def attempts(self, job: JobId) -> list[AttemptRecord]:
        of_job = select(tables.attempt).where(tables.attempt.c.job_id == job).order_by(tables.attempt.c.number)
        return [attempt_record(row) for row in self._rows(of_job)]

    def open_attempts(self) -> list[AttemptRecord]:
        still = select(tables.attempt).where(tables.attempt.c.ended_at.is_(None))
        return [attempt_record(row) for row in self._rows(still)]

    def attempt_made_at(self, attempt: AttemptId) -> float | None:
        """None: it has ended, or never was."""
        one = (tables.attempt.c.job_id == attempt.job) & (tables.attempt.c.number == attempt.number)
        rows = self._rows(select(tables.attempt.c.created_at).where(one & tables.attempt.c.ended_at.is_(None)))
        return float(rows[0][0]) if rows else None

    def oldest_open_attempt(self) -> float | None:
        """When it was made; None: none is open."""
        oldest = select(func.min(tables.attempt.c.created_at)).where(tables.attempt.c.ended_at.is_(None))
        found = self._rows(oldest)[0][0]
        return None if found is None else float(found)

    def tasks(self, job: JobId) -> list[TaskRecord]:
        of_job = select(tables.task).where(tables.task.c.job_id == job)
        rows = self._rows(of_job.order_by(tables.task.c.attempt, tables.task.c.task_index))
        return [task_record(row) for row in rows]

    def first_tasks(self, job: JobId, *, of_each: int) -> list[TaskRecord]:
        """Of each attempt so many: an array may have a million."""
        task = tables.task.c
        place = func.row_number().over(partition_by=task.attempt, order_by=task.task_index).label("place")
        numbered = select(tables.task, place).where(task.job_id == job).subquery()
        first = select(*(numbered.c[column.name] for column in task)).where(numbered.c.place <= of_each)
        rows = self._rows(first.order_by(numbered.c.attempt, numbered.c.task_index))
        return [task_record(row) for row in rows]

    def task_counts(self, job: JobId) -> dict[int, int]:
        """By attempt."""
        task = tables.task.c
        counted = select(task.attempt, func.count()).where(task.job_id == job).group_by(task.attempt)
        return {int(row[0]): int(row[1]) for row in self._rows(counted)}

    def running_tasks(self, job: JobId, attempt: int, *, index: int | None, limit: int) -> list[TaskRecord]:
        """The first of an attempt that have not ended. `index` None: whichever."""
        task = tables.task.c
        alive = select(tables.task).where(task.job_id == job, task.attempt == attempt, task.ended_at.is_(None))
        wanted = alive if index is None else alive.where(task.task_index == index)
        return [task_record(row) for row in self._rows(wanted.order_by(task.task_index).limit(limit))]

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
        """Of one job; or of one owner's jobs; or all there are."""
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
        """Of all jobs that are remembered."""
        return float(self._rows(select(func.coalesce(func.sum(tables.job.c.lost_gpu_seconds), 0.0)))[0][0])

    def usage(self, *, since: str) -> list[DayOfUse]:
        """What attempts that have ended took since a day; it outlives its jobs."""
        with self._reading.connect() as connection:
            return read_usage(connection, since)

    def usage_totals(self) -> dict[str, Used]:
        with self._reading.connect() as connection:
            return read_totals(connection)

    def accounts(self) -> dict[str, Account]:
        """What everybody has used, fading."""
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
        rows = self._rows(select(tables.meta.c.value).where(tables.meta.c.key == "generation"))
        return int(rows[0][0]) if rows else 0

    def _rows(self, statement: Select[Any], values: dict[str, Any] | None = None) -> Sequence[Any]:
        with self._reading.connect() as connection:
            return connection.execute(statement, values or {}).all()


def open_store(path: Path, clock: Callable[[], float]) -> Store:
    """Open the database, bringing its schema up to date first."""
    writing = _engine(path, begin="BEGIN IMMEDIATE", pool_size=1)
    try:
        migrate(writing)
        return Store(writing, _engine(path, begin="BEGIN", pool_size=4), clock)
    except DatabaseError as error:
        raise disk_trouble(error, writing) or Unavailable(
            f"the database {path} cannot be used: {error.orig}; restore a copy of it, or move it away to start anew"
        ) from error


def _engine(path: Path, *, begin: str, pool_size: int) -> Engine:
    engine = create_engine(f"sqlite:///{path}", pool_size=pool_size, max_overflow=8)

    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves: a read that turns into a write would be refused
        mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        assert mode == "wal", f"SQLite runs in journal mode {mode!r}, not in write-ahead mode"
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA busy_timeout=5000")
        connection.execute(f"PRAGMA cache_size=-{CACHE_KIB}")

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


# -- rows ------------------------------------------------------------------------------------------------------


def _identity(connection: Connection) -> str:
    found = connection.execute(select(tables.meta.c.value).where(tables.meta.c.key == "store_id")).first()
    if found is not None:
        return str(found[0])
    fresh = uuid.uuid4().hex
    connection.execute(insert(tables.meta).values(key="store_id", value=fresh))
    return fresh


def _is_active() -> Any:
    return tables.job.c.state.not_in(ENDED_STATES)


def _is_of(owner: str | None) -> Any:
    """None: everybody's."""
    return true() if owner is None else tables.job.c.owner == owner


def _is_named(name: str, owner: str | None, ended: bool | None) -> Any:
    """`ended` None: whether they have or not."""
    wanted = (tables.job.c.name == name) & _is_of(owner)
    if ended is None:
        return wanted
    return wanted & (tables.job.c.state.in_(ENDED_STATES) if ended else _is_active())


def _is_listed(ended_since: float | None, owner: str | None) -> Any:
    return (_is_active() | (tables.job.c.ended_at >= (ended_since or 0.0))) & _is_of(owner)


def no_job(job: JobId) -> NotFound:
    """The same words whether it never was, was deleted, or is not for who asks to see."""
    return NotFound(f"there is no job {job}; `swell ps -a` lists all")


def _by_columns(jobs: dict[JobId, dict[str, Any]]) -> Iterable[list[dict[str, Any]]]:
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for job, values in jobs.items():
        groups.setdefault(tuple(values), []).append({"job": job, **values})
    return groups.values()


def _bound(row: dict[str, Any]) -> dict[str, Any]:
    encoded = {
        name: json.dumps(value) if isinstance(value, dict | list | tuple) else value for name, value in row.items()
    }
    return {"job": encoded.pop("job"), **{f"new_{name}": value for name, value in encoded.items()}}
