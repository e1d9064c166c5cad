"""How much of the disk do each user's logs and checkpoints take, without anybody waiting for the answer?

Counted over and over by a thread of its own, in short slices with rests between them (users may have millions of
files, and the interpreter is everybody's). Until a pass has ended, a job counts as what the last one found or as what
this one has found so far, whichever is more; a deleted job counts no more at once. Folders in the state folder only:
what users keep elsewhere is between them and their own quota.

A job that is remembered belongs to its owner in the store. Checkpoints outlive their job (`retention.py`), and then
belong to whoever owns the folder, which only root can change.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from swell.machine.tree_size import TooDeep, entry_sizes
from swell.machine.users import user_by_uid
from swell.model.job import JobId
from swell.model.quota import LARGEST_SHOWN, DiskUse

SLICE_S = 0.02  # of work, after which others have the interpreter
RESTS = 4  # times as long as the slice before: a fifth of one core at most
PASS_S = 10.0  # from the end of one pass to the next, or as long as the pass took
BATCH = 500  # owners asked of the store at once
ENTRIES_ABOVE_MAX = 1_000_000  # of one user: counted beyond the limit, to say by how much it is passed
DIGITS_MAX = 18  # of a job's number

log = logging.getLogger(__name__)


class JobFolder(NamedTuple):
    """An attempt's logs, or a job's checkpoints."""

    parent: Path
    name: str
    job: JobId


@dataclass(slots=True)
class DiskAccount:
    """Of one user, by job."""

    last: dict[JobId, int] = field(default_factory=dict)  #: found by the last pass
    now: dict[JobId, int] = field(default_factory=dict)  #: found by this one so far
    total: int = 0  #: the sum of whichever is more
    entries: int = 0  #: looked at in this pass
    largest: tuple[tuple[JobId, int], ...] = ()  #: as of the last pass
    sure: dict[JobId, int] = field(default_factory=dict)  #: what the last two passes have both found

    def add(self, job: JobId, size: int) -> None:
        before = self.counts_as(job)
        self.now[job] = self.now.get(job, 0) + size
        self.total += self.counts_as(job) - before

    def counts_as(self, job: JobId) -> int:
        return max(self.last.get(job, 0), self.now.get(job, 0))

    def drop(self, job: JobId) -> None:
        self.total -= self.counts_as(job)
        self.last.pop(job, None)
        self.now.pop(job, None)
        self.sure.pop(job, None)
        self.largest = tuple(one for one in self.largest if one[0] != job)

    def begin(self) -> None:
        """Anew, also where a pass was broken off."""
        self.now, self.entries, self.total = {}, 0, sum(self.last.values())

    def finish(self) -> None:
        """This pass is over: what it has not found is not there."""
        self.sure = {job: min(size, self.last[job]) for job, size in self.now.items() if job in self.last}
        self.last = self.now
        self.begin()
        self.largest = tuple(heapq.nlargest(LARGEST_SHOWN, self.last.items(), key=lambda one: (one[1], -one[0])))


class DiskMeter:
    """Of everybody who has a limit."""

    def __init__(
        self,
        checkpoints: Path,
        tasks: Path,
        owners: Callable[[Sequence[JobId]], dict[JobId, str]],
        bytes_max: Callable[[str], int | None],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._checkpoints, self._tasks = checkpoints, tasks
        self._owners = owners  #: of those of these jobs that are remembered
        self._bytes_max = bytes_max  #: of a user; None: no limit
        self._changed = changed  #: somebody has passed their limit, or another margin above it, or has room again
        self._accounts: dict[str, DiskAccount] = {}
        self._gone: set[JobId] = set()  #: deleted since this pass began
        self._above: dict[str, int] = {}  #: who had too much when that was last told, and by how many margins
        self._mutex = threading.Lock()
        self._closing = threading.Event()
        self._slice_ends = 0.0

    # -- from any thread -------------------------------------------------------------------------------------

    def use(self, user: str) -> DiskUse | None:
        """None: nothing limits them."""
        bytes_max = self._bytes_max(user)
        if bytes_max is None:
            return None
        with self._mutex:
            account = self._accounts.get(user, DiskAccount())
            return DiskUse(account.total, bytes_max, account.largest)

    def sizes(self, user: str) -> dict[JobId, int]:
        """Bytes that each of the user's jobs surely has: what is moved or replaced during a pass counts twice there."""
        with self._mutex:
            return dict(self._accounts.get(user, DiskAccount()).sure)

    def users(self) -> list[str]:
        """Everybody who has a limit and something there."""
        with self._mutex:
            return sorted(user for user, account in self._accounts.items() if account.total)

    def forget(self, job: JobId) -> None:
        """It was deleted, and counts no more."""
        with self._mutex:
            self._gone.add(job)
            for account in self._accounts.values():
                account.drop(job)
        self._tell(list(self._accounts))

    def start(self) -> None:
        threading.Thread(target=self._run, name="disk-meter", daemon=True).start()

    def close(self) -> None:
        self._closing.set()

    # -- the thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        pause = 0.0
        while not self._closing.wait(pause):
            began = time.monotonic()
            try:
                self.count()
            except Exception:  # whatever lies there, it is looked at again
                log.exception("logs and checkpoints could not be counted; they are looked at again")
            pause = max(PASS_S, time.monotonic() - began)

    def count(self) -> None:
        """One pass over everything."""
        with self._mutex:
            self._gone.clear()
            for account in self._accounts.values():
                account.begin()
        self._slice_ends = time.monotonic() + SLICE_S
        for owner, folder in self._owned():
            self._count(owner, folder)
            if self._closing.is_set():
                return
        with self._mutex:
            before = [account.sure for account in self._accounts.values()]
            for account in self._accounts.values():
                account.finish()
            is_surer = before != [account.sure for account in self._accounts.values()]
        self._tell(list(self._accounts))
        if is_surer and any(self._above.values()):
            self._changed()

    def _owned(self) -> Iterator[tuple[str, JobFolder]]:
        """Every folder whose owner has a limit."""
        for parent in (self._checkpoints, self._tasks):
            with os.scandir(parent) as entries:
                found = (folder for entry in entries if (folder := job_folder(parent, entry.name)) is not None)
                while batch := list(itertools.islice(found, BATCH)):
                    owners = self._owners([folder.job for folder in batch])
                    for folder in batch:
                        owner = owners.get(folder.job) or self._left_by(folder)
                        if owner is not None and self._bytes_max(owner) is not None:
                            yield owner, folder

    def _left_by(self, folder: JobFolder) -> str | None:
        """Checkpoints whose job is forgotten. Logs go with their job."""
        try:
            uid = (folder.parent / folder.name).lstat().st_uid
        except OSError:
            return None
        user = user_by_uid(uid) if folder.parent == self._checkpoints else None
        return None if user is None else user.name

    def _count(self, owner: str, folder: JobFolder) -> None:
        with self._mutex:
            account = self._accounts.setdefault(owner, DiskAccount())
        found = 0
        try:
            for size in entry_sizes(folder.parent, folder.name):
                found += size
                account.entries += 1
                if time.monotonic() > self._slice_ends:
                    self._note(account, folder.job, found)
                    found = 0
                    self._rest()
                if self._closing.is_set() or self._is_enough(owner, account):
                    break
        except TooDeep as problem:
            log.warning("%s of %s counts as more than they may have: %s", folder.parent / folder.name, owner, problem)
            found = 1 + (self._bytes_max(owner) or 0)
        self._note(account, folder.job, found)
        self._tell([owner])

    def _is_enough(self, owner: str, account: DiskAccount) -> bool:
        """However many files somebody makes, a pass ends."""
        return account.entries > ENTRIES_ABOVE_MAX and account.total > (self._bytes_max(owner) or 0)

    def _note(self, account: DiskAccount, job: JobId, size: int) -> None:
        with self._mutex:
            if job not in self._gone:
                account.add(job, size)

    def _rest(self) -> None:
        self._closing.wait(SLICE_S * RESTS)
        self._slice_ends = time.monotonic() + SLICE_S

    def _tell(self, users: Sequence[str]) -> None:
        with self._mutex:
            above = {user: self._margins_above(user) for user in users}
            is_news = any(margins != self._above.get(user, 0) for user, margins in above.items())
            self._above |= above
        if is_news:
            self._changed()

    def _margins_above(self, user: str) -> int:
        bytes_max = self._bytes_max(user)
        return 0 if bytes_max is None else DiskUse(self._accounts[user].total, bytes_max).margins_above


def job_folder(parent: Path, name: str) -> JobFolder | None:
    """None: it is no job's, or is being removed."""
    job = name.partition(".")[0]
    is_number = job.isascii() and job.isdigit() and len(job) <= DIGITS_MAX
    return JobFolder(parent, name, int(job)) if is_number else None
