"""How do many requests share one commit?

One thread owns the writing connection. It takes everything that waits, runs it in one transaction, commits once
(SQLite makes that one fsync), and then answers everybody. While a commit is on its way to the disk the next batch
gathers, so the busier it is the better it shares. A piece of work that fails takes only itself back.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from sqlalchemy import Connection, Engine

from swell.store.disk import disk_trouble

Work = Callable[[Connection], Any]
Outcome = tuple[Any, BaseException | None]
BATCH_MAX = 500  # keeps one transaction short; at 500 submissions a second a commit carries about ten


class Writer:
    """Runs work in commits shared with whoever else waits."""

    def __init__(self, engine: Engine, after_commit: Callable[[float], None]) -> None:
        self._engine = engine
        self._after_commit = after_commit  #: told how long it took, in seconds
        self._waiting: queue.SimpleQueue[tuple[Work, Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Work) -> Future[Any]:
        """The future is done when the work is on disk, or has failed and left no trace."""
        future: Future[Any] = Future()
        self._waiting.put((work, future))
        return future

    def close(self) -> None:
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        is_open = True
        while is_open:
            batch, is_open = self._next_batch()
            # One that was given up (its client went away) is not begun; from here on nobody can give up any more.
            wanted = [(work, future) for work, future in batch if future.set_running_or_notify_cancel()]
            if wanted:
                self._commit(wanted)

    def _next_batch(self) -> tuple[list[tuple[Work, Future[Any]]], bool]:
        first = self._waiting.get()
        batch: list[tuple[Work, Future[Any]]] = []
        entry = first
        while entry is not None:
            batch.append(entry)
            if len(batch) == BATCH_MAX or self._waiting.empty():
                return batch, True
            entry = self._waiting.get()
        return batch, False

    def _commit(self, batch: list[tuple[Work, Future[Any]]]) -> None:
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

    def _together(self, batch: list[tuple[Work, Future[Any]]]) -> list[Outcome]:
        """As if nothing could fail, which is nearly always so; empty: something did, and nothing was done."""
        try:
            with self._engine.begin() as connection:
                return [(work(connection), None) for work, _ in batch]
        except Exception as error:
            if disk_trouble(error, self._engine) is not None:
                raise
            return []

    def _one_by_one(self, batch: list[tuple[Work, Future[Any]]]) -> list[Outcome]:
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
