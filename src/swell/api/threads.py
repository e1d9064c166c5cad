"""Where does work go that may take long: a read as large as what a user has stored, a look at a user's files?

Into threads, never onto the event loop. Each purpose has a pool, so that files that hang keep nobody from being known;
and each user has a share of it: what they want beyond that waits for their own work to end.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")
Piece = tuple[Callable[[], Any], Future[Any]]


class Threads:
    """One pool. Used from several event loops: every opened door has its own."""

    def __init__(self, purpose: str, count: int, *, per_user: int) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=purpose)
        self._per_user = per_user
        self._lock = threading.Lock()
        self._busy: Counter[str] = Counter()
        self._waiting: dict[str, deque[Piece]] = {}

    async def run(self, user: str, work: Callable[[], T]) -> T:
        """Given up by who asked, it is not begun."""
        return await asyncio.wrap_future(self.submit(user, work))

    def submit(self, user: str, work: Callable[[], T]) -> Future[T]:
        piece: Piece = work, Future()
        with self._lock:
            if self._busy[user] >= self._per_user:
                self._waiting.setdefault(user, deque()).append(piece)
                return piece[1]
            self._busy[user] += 1
        self._pool.submit(self._carry_out, user, piece)
        return piece[1]

    def _carry_out(self, user: str, piece: Piece) -> None:
        try:
            _do(*piece)
        finally:
            following = self._next(user)
            if following is not None:  # behind what others have asked for meanwhile
                self._pool.submit(self._carry_out, user, following)

    def _next(self, user: str) -> Piece | None:
        with self._lock:
            line = self._waiting.get(user)
            if line:
                return line.popleft()
            self._waiting.pop(user, None)
            self._busy[user] -= 1
            if not self._busy[user]:
                del self._busy[user]
            return None

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def _do(work: Callable[[], Any], future: Future[Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001  for whoever asked
        future.set_exception(error)
    else:
        future.set_result(result)


@dataclass(frozen=True, slots=True)
class Pools:
    """By what they are for."""

    #: What is stored. Two of one user's: while one waits for the disk, another computes; more would only take the
    #: interpreter from the others.
    reads: Threads = field(default_factory=lambda: Threads("reads", 8, per_user=2))
    #: Users' folders, which may lie on a file system that hangs.
    checkpoints: Threads = field(default_factory=lambda: Threads("checkpoints", 16, per_user=2))
    #: The machine's directory service; one look-up for each user at a time.
    identities: Threads = field(default_factory=lambda: Threads("identities", 8, per_user=1))
    #: Chunks of files. They are written to the disk, which makes whoever sends them wait.
    files: Threads = field(default_factory=lambda: Threads("files", 8, per_user=4))
    #: Reports and logs of workers. Workers at one address share two: a job there can read its worker's token.
    workers: Threads = field(default_factory=lambda: Threads("workers", 8, per_user=2))
    #: A cluster's API server, about what somebody submits.
    cluster: Threads = field(default_factory=lambda: Threads("cluster", 8, per_user=2))

    def close(self) -> None:
        for pool in (self.reads, self.checkpoints, self.identities, self.files, self.workers, self.cluster):
            pool.close()
