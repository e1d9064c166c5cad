"""How do many requests share one commit?

One thread owns the writing connection. It takes everything that waits, runs it in one transaction, commits once
(SQLite makes that one fsync), and then answers everybody. While a commit is on its way to the disk the next batch
gathers, so the busier it is the better it shares. A piece of work that fails takes only itself back.

A large piece of work (a submission of a thousand jobs takes half a second) has a commit to itself, and whatever is
small goes before the next large one: several large ones in one commit made everybody wait for all of them.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from swell.errors import Unavailable
from swell.machine.state_folder import disk_problem

#: how SQLite's name for an error begins → the system's name for it
ERRORS = {
    "SQLITE_FULL": errno.ENOSPC,
    "SQLITE_READONLY": errno.EROFS,
    "SQLITE_CANTOPEN": errno.EACCES,
    "SQLITE_IOERR": errno.EIO,
}


def disk_trouble(error: BaseException, engine: Engine) -> Unavailable | None:
    """The same in words, for whoever waited; None: it is something else."""
    if not isinstance(error, DBAPIError):
        return None
    name = str(getattr(error.orig, "sqlite_errorname", ""))
    number = next((number for known, number in ERRORS.items() if name.startswith(known)), None)
    if number is None:
        return None
    folder = Path(str(engine.url.database)).parent
    found = Unavailable(f"nothing was changed: {disk_problem(OSError(number, os.strerror(number)), folder)}")
    found.__cause__ = error
    return found


Work = Callable[[Connection], Any]
Outcome = tuple[Any, BaseException | None]
Waiting = tuple[Work, Future[Any]]
BATCH_MAX = 500  # keeps one transaction short; at 500 submissions a second a commit carries about ten
SMALL_ROWS_MAX = 50  # some 30 ms


class Writer:
    """Runs work in commits shared with whoever else waits."""

    def __init__(self, engine: Engine, after_commit: Callable[[float], None]) -> None:
        self._engine = engine
        self._after_commit = after_commit  #: told how long it took, in seconds
        self._small: deque[Waiting] = deque()
        self._large: deque[Waiting] = deque()
        self._is_turn_of_large = False
        self._is_closed = False
        self._arrived = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Work, *, rows: int = 1) -> Future[Any]:
        """The future is done when the work is on disk, or has failed and left no trace.

        `rows`: about how many it writes. What is small keeps its order, and what is large.
        """
        future: Future[Any] = Future()
        with self._arrived:
            (self._small if rows <= SMALL_ROWS_MAX else self._large).append((work, future))
            self._arrived.notify()
        return future

    def close(self) -> None:
        """What waits is written first."""
        with self._arrived:
            self._is_closed = True
            self._arrived.notify()
        self._thread.join()

    def _run(self) -> None:
        while batch := self._next_batch():
            # One that was given up (its client went away) is not begun; from here on nobody can give up any more.
            wanted = [(work, future) for work, future in batch if future.set_running_or_notify_cancel()]
            if wanted:
                self._commit(wanted)

    def _next_batch(self) -> list[Waiting]:
        """All that is small, or one that is large, in turns; empty: it is closed, and nothing waits."""
        with self._arrived:
            self._arrived.wait_for(lambda: self._small or self._large or self._is_closed)
            if self._large and (self._is_turn_of_large or not self._small):
                self._is_turn_of_large = False
                return [self._large.popleft()]
            self._is_turn_of_large = True
            return [self._small.popleft() for _ in range(min(BATCH_MAX, len(self._small)))]

    def _commit(self, batch: list[Waiting]) -> None:
        began = time.perf_counter()
        try:
            outcomes = self._together(batch) or self._one_by_one(batch)
        except Exception as error:  # noqa: BLE001  the commit itself failed (disk full …): nobody's work is there
            problem = disk_trouble(error, self._engine) or error
            for _, future in batch:
                future.set_exception(problem)
            return
        took_s = time.perf_counter() - began
        for (_, future), (result, failure) in zip(batch, outcomes, strict=True):
            if failure is not None:
                future.set_exception(failure)
            else:
                future.set_result(result)
        self._after_commit(took_s)

    def _together(self, batch: list[Waiting]) -> list[Outcome]:
        """As if nothing could fail, which is nearly always so; empty: something did, and nothing was done."""
        try:
            with self._engine.begin() as connection:
                return [(work(connection), None) for work, _ in batch]
        except Exception as error:
            if disk_trouble(error, self._engine) is not None:
                raise
            return []

    def _one_by_one(self, batch: list[Waiting]) -> list[Outcome]:
        """In savepoints, which cost as much as the work itself: only to find out whose piece fails."""
        with self._engine.begin() as connection:
            return [_attempt(connection, work) for work, _ in batch]


def _attempt(connection: Connection, work: Work) -> Outcome:
    savepoint = connection.begin_nested()
    try:
        result = work(connection)
    except Exception as error:  # handed to whoever asked for this piece
        if disk_trouble(error, connection.engine) is not None:
            raise  # SQLite may have taken the whole transaction back by itself: nobody's work is there
        savepoint.rollback()
        return None, error
    savepoint.commit()
    return result, None
