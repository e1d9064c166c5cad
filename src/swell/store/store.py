"""How is it written down? `reading.py` has how it is read back, `changes.py` what a cycle changes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, bindparam, create_engine, delete, event, insert, select, update
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DatabaseError

from swell.errors import Conflict, Unavailable
from swell.model.job import JobId
from swell.model.quota import NO_QUOTA, Quota
from swell.store import tables
from swell.store.accepting import PLAINLY, Acceptance, accept, accept_each, write_events
from swell.store.changes import Changes, bound, joined, rows_by_columns, split_by_job
from swell.store.doors import DoorStore
from swell.store.kept import drop_unused, upsert
from swell.store.migrate import migrate
from swell.store.reading import StoreReader, read_number
from swell.store.records import EventRecord, JobRecord, NewJob, attempt_row, task_row
from swell.store.storable import storable, unstorable
from swell.store.tokens import TokenStore
from swell.store.usage import add_usage, write_accounts
from swell.store.writer import Work, Writer, disk_trouble

CACHE_KIB = 4096  # per connection; the server's memory budget is 150 MB with 10,000 jobs


class Store(StoreReader):
    """One installation's memory: everything that is written goes through one thread."""

    def __init__(self, writing: Engine, reading: Engine, clock: Callable[[], float]) -> None:
        super().__init__(reading)
        self._clock = clock
        self._listeners: list[Callable[[], None]] = []
        self.on_commit: Callable[[float], None] = lambda _: None  #: how long one took, in seconds
        self._term: int | None = None  #: of this server; None: it has not taken over, and none is compared
        self._writer = Writer(writing, self._tell)
        self.id = self._write(_identity).result()
        self.doors = DoorStore(self._write, self._rows, clock)
        self.tokens = TokenStore(self._write, self._rows, clock)

    def listen(self, listener: Callable[[], None]) -> None:
        """Called after every commit, from the writer's thread; it must not block."""
        self._listeners.append(listener)

    def _tell(self, seconds: float) -> None:
        self.on_commit(seconds)
        for listener in self._listeners:
            listener()

    def close(self) -> None:
        self._writer.close()

    def _write(self, work: Work, *, rows: int = 1) -> Future[Any]:
        """Raises `Conflict` where another server has taken over since."""
        return self._writer.submit(lambda connection: self._unless_deposed(connection, work), rows=rows)

    def _unless_deposed(self, connection: Connection, work: Work) -> Any:
        if self._term is not None and self._term != (found := read_number(connection, "term")):
            raise Conflict(
                f"another server has taken over this store (term {found}, ours is {self._term}); nothing was written"
            )
        return work(connection)

    def accept(self, jobs: Sequence[NewJob], how: Acceptance = PLAINLY) -> Future[list[JobRecord]]:
        """Durable before the future is done. The same key again answers with the jobs of the first time.

        All are of one owner, who may have no more than the quota says.
        """
        return self._write(lambda connection: accept(connection, jobs, how, self._clock()), rows=len(jobs))

    def accept_each(
        self, jobs: Mapping[str, NewJob], *, origin: str = "", quota: Quota = NO_QUOTA
    ) -> Future[list[JobRecord | None]]:
        """Many that belong together by nothing, each under a key of its own. None: its job was deleted since.

        `quota`: of the one owner whose they all are.
        """
        return self._write(lambda connection: accept_each(connection, jobs, origin, quota, self._clock()))

    def request_cancel(
        self, jobs: Sequence[JobId], *, by: str, grace_s: float | None, origin: str = ""
    ) -> Future[None]:
        values = {"cancel_requested_by": by, "cancel_grace_s": grace_s}
        asked = [EventRecord("CancelRequested", job, by, {"grace_s": grace_s}, origin=origin) for job in jobs]
        return self.record(Changes(jobs={job: dict(values) for job in jobs}, events=asked))

    def take_over(self) -> Future[int]:
        """The next generation, which is this server's term: whatever a server of an earlier term writes is refused."""

        def write(connection: Connection) -> int:
            self._term = _take_over(connection)
            return self._term

        return self._writer.submit(write)

    def record(self, changes: Changes) -> Future[None]:
        return self._write(lambda connection: self._record(connection, changes))

    def unstorable(self, changes: Changes) -> Future[dict[JobId, str]]:
        """Whose part of what could not be recorded cannot be, and why. Nothing is written."""
        parts = split_by_job(changes)
        return self._write(
            lambda connection: unstorable(connection, parts, lambda part: self._record(connection, joined(part)))
        )

    def forget(self, jobs: Sequence[JobId], *, by: str, origin: str = "") -> Future[None]:
        """Remove ended jobs with their attempts and tasks; the events stay as the audit trail."""
        return self._write(lambda connection: self._forget(connection, jobs, by, origin))

    def forget_events(self, before: float) -> Future[None]:
        return self._write(lambda connection: _forget_events(connection, before))

    def _record(self, connection: Connection, changes: Changes) -> None:
        for group in rows_by_columns(changes.jobs):
            columns = [name for name in group[0] if name != "job"]
            statement = update(tables.job).where(tables.job.c.id == bindparam("job"))
            values: dict[str, Any] = {name: bindparam(f"new_{name}") for name in columns}
            statement = statement.values(version=tables.job.c.version + 1, **values)
            connection.execute(statement, [bound(row) for row in group])
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

    @event.listens_for(engine, "before_cursor_execute", retval=True)
    def on_execute(_: Any, __: Any, sql: str, values: Any, *___: Any) -> tuple[str, Any]:
        return sql, storable(values)

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


def _identity(connection: Connection) -> str:
    found = connection.execute(select(tables.meta.c.value).where(tables.meta.c.key == "store_id")).first()
    if found is not None:
        return str(found[0])
    fresh = uuid.uuid4().hex
    connection.execute(insert(tables.meta).values(key="store_id", value=fresh))
    return fresh


def _take_over(connection: Connection) -> int:
    term = read_number(connection, "generation") + 1
    upsert(connection, tables.meta, [{"key": key, "value": str(term)} for key in ("generation", "term")])
    return term


def _forget_events(connection: Connection, before: float) -> None:
    """Delete old events, and old idempotency keys: nobody repeats a submission so late."""
    connection.execute(delete(tables.event).where(tables.event.c.at < before))
    connection.execute(delete(tables.idempotency).where(tables.idempotency.c.at < before))
