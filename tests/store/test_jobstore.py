"""The store on disk and the one in memory give the controller the same answers, whatever it has written."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from store.jobs import new_job
from swell.errors import Conflict, SwellError
from swell.model.job import After, JobState
from swell.model.plan import Slot
from swell.model.quota import NO_QUOTA, Quota
from swell.model.reason import Code
from swell.model.resources import Resources
from swell.model.usage import Account, Used
from swell.store import (
    Acceptance,
    AttemptRecord,
    Changes,
    DoorRecord,
    EventRecord,
    JobRecord,
    NewJob,
    Store,
    TaskRecord,
    TokenRecord,
    open_store,
)
from swell.store.doors import DoorStore
from swell.store.jobstore import JobStore
from swell.store.memory import MemoryStore
from swell.store.tokens import TokenStore

STEPS = 48
LOOK_EVERY = 6
OF_DISK = {"environment": "", "manifest": "", "stored_bytes": 0}  # what only the store on disk keeps


class Walk:
    """Random steps of a controller, the same for both stores."""

    def __init__(self, seed: int, stores: tuple[JobStore, JobStore]) -> None:
        self.random = random.Random(seed)
        self.stores = stores
        self.now = 1000.0
        self.last_id = 0
        self.generation = 0

    def step(self) -> None:
        self.now += self.random.uniform(0, 10)
        steps = (self.accept, self.accept_keyed, self.accept_each, self.record, self.record, self.cancel, self.forget)
        self.random.choice(steps)()

    def both(self, act: Callable[[JobStore], Any]) -> None:
        """Both do it, or both refuse it in the same way."""
        [one, other] = [_outcome(act, store) for store in self.stores]
        assert one == other
        self.last_id = max((job.id for job in self.stores[0].active()), default=self.last_id)

    def accept(self) -> None:
        takes_name = bool(self.random.randrange(2))
        names = [f"job{self.random.randrange(9)}" for _ in range(self.random.randrange(4))]
        jobs = [self.after_siblings(new_job(name), place) for place, name in enumerate(names)]
        new = [replace(job, takes_name=takes_name) for job in jobs]
        quota = self.random.choice((NO_QUOTA, Quota(queued=4), Quota(tasks=6)))
        self.both(lambda store: store.accept(new, Acceptance(origin="there", quota=quota)).result())

    def after_siblings(self, new: NewJob, place: int) -> NewJob:
        """The job waits for some of the jobs before it in the same submission, and perhaps for an older one."""
        siblings = tuple(After(-1 - number, on_any_end=True) for number in range(place) if self.random.randrange(2))
        older = (After(self.some_job()),) if self.last_id and self.random.randrange(2) else ()
        return replace(new, spec=replace(new.spec, after=(*siblings, *older)))

    def accept_keyed(self) -> None:
        key, digest = f"key{self.random.randrange(3)}", f"digest{self.random.randrange(2)}"
        self.both(lambda store: store.accept([new_job("keyed")], Acceptance(key=key, digest=digest)).result())

    def accept_each(self) -> None:
        new = {f"uid{self.random.randrange(5)}": new_job("each") for _ in range(3)}
        quota = self.random.choice((NO_QUOTA, Quota(queued=4), Quota(tasks=6)))
        self.both(lambda store: store.accept_each(new, origin="cluster", quota=quota).result())

    def record(self) -> None:
        job = self.some_job()
        state = self.random.choice(list(JobState))
        ended_at = self.now if state.has_ended else None
        changes = Changes(events=[EventRecord("Something", job, detail={"a": [1, None]})])
        changes.set_job(
            job,
            state=str(state),
            reason_code=self.random.choice((None, str(Code.WAITING_FOR_ROOM))),
            reason_evidence={"nodes": "a"},
            nodes=("a", "b"),
            training=self.random.choice((None, {"epochs_done": 2.0})),
            ended_at=ended_at,
            notice_due=self.random.randrange(2),
            width=self.random.randrange(4),
        )
        slot = Slot(0, "a", Resources(1000, 512, 1), ("gpu-0",), is_draining=bool(self.random.randrange(2)))
        changes.attempts.append(
            AttemptRecord(job, 1, 1, (slot,), 1, self.now, None, ended_at, None, [{"task": 0, "node": "a"}])
        )
        changes.tasks.append(TaskRecord(job, 1, self.random.randrange(3), "a", 0, self.now, ended_at, None))
        changes.usage[self.random.choice(("ann", "ben")), "2026-11-18"] = Used(gpu_s=self.random.random())
        changes.accounts["ann"] = Account(self.random.random(), self.now)
        self.generation += 1
        changes.generation = self.generation
        self.both(lambda store: store.record(changes).result())

    def cancel(self) -> None:
        jobs = [self.some_job(), self.some_job()]
        self.both(lambda store: store.request_cancel(jobs, by="ann", grace_s=3.0, origin="here").result())

    def forget(self) -> None:
        jobs = self.stores[0].ended_before(self.now + 1, 2)
        before = self.now - 100
        self.both(lambda store: store.forget(jobs, by="ann").result())
        self.both(lambda store: store.forget_events(before).result())

    def some_job(self) -> int:
        return self.random.randrange(1, self.last_id + 2)

    def compare(self) -> None:
        [one, other] = [self.reads(store) for store in self.stores]
        assert one == other

    def reads(self, store: JobStore) -> dict[str, Any]:
        every = range(1, self.last_id + 3)
        return {
            "job": [_outcome(lambda store, job=job: store.job(job), store) for job in every],
            "jobs": {job: _shown(record) for job, record in store.jobs(list(every)).items()},
            "active": [_shown(record) for record in store.active()],
            "open": sorted(store.open_attempts(), key=lambda one: (one.job_id, one.number)),
            "tasks": [store.tasks(job) for job in every],
            "ended": store.ended_before(self.now, 5),
            "trained": [job.id for job in store.newest_trained(2)],
            "notices": [_shown(record) for record in store.with_notice_due()],
            "arrivals": store.arrivals(4),
            "usage": store.usage(since="2026-01-01"),
            "totals": store.usage_totals(),
            "accounts": store.accounts(),
            "generation": store.generation(),
        }


def _outcome(act: Callable[[JobStore], Any], store: JobStore) -> Any:
    try:
        return _shown(act(store))
    except SwellError as refusal:
        return type(refusal)


def _shown(value: Any) -> Any:
    if isinstance(value, list):
        return [_shown(one) for one in value]
    return replace(value, **OF_DISK) if isinstance(value, JobRecord) else value


@pytest.mark.parametrize("seed", range(6))
def test_both_stores_answer_alike(seed: int, tmp_path: Path) -> None:
    print("seed", seed)
    on_disk = open_store(tmp_path / "swell.db", lambda: walk.now)
    walk = Walk(seed, (on_disk, MemoryStore(lambda: walk.now)))
    try:
        for number in range(STEPS):
            walk.step()
            if number % LOOK_EVERY == 0:
                walk.compare()
    finally:
        on_disk.close()


NOBODYS = EventRecord("Told")
WRITES: dict[str, Callable[[Store], Future[Any]]] = {
    "Store.accept": lambda store: store.accept([new_job("b")]),
    "Store.accept_each": lambda store: store.accept_each({"key": new_job("b")}),
    "Store.request_cancel": lambda store: store.request_cancel([1], by="ann", grace_s=None),
    "Store.record": lambda store: store.record(Changes(jobs={1: {"width": 3}}, generation=9)),
    "Store.unstorable": lambda store: store.unstorable(Changes(jobs={1: {"width": 3}})),
    "Store.forget": lambda store: store.forget([1], by="ann"),
    "Store.forget_events": lambda store: store.forget_events(2000.0),
    "DoorStore.open": lambda store: store.doors.open(DoorRecord(5000, "genai", "ann", 1.0)),
    "DoorStore.close": lambda store: store.doors.close(5000),
    "DoorStore.change_foreign": lambda store: store.doors.change_foreign("ann", "a", lambda _: {}, NOBODYS),
    "TokenStore.create": lambda store: store.tokens.create(
        TokenRecord("id", "name", "ann", None, "all", 1.0, 2e9, "digest"), NOBODYS
    ),
    "TokenStore.revoke": lambda store: store.tokens.revoke("id", NOBODYS),
}


def test_every_way_to_write_is_tried_below() -> None:
    """A new one is added to the table, so that a deposed server cannot use it."""
    found = {
        f"{kind.__name__}.{name}"
        for kind in (Store, DoorStore, TokenStore)
        for name, method in vars(kind).items()
        if not name.startswith("_") and str(getattr(method, "__annotations__", {}).get("return")).startswith("Future")
    }
    assert found == {*WRITES, "Store.take_over"}


@pytest.mark.parametrize("how", sorted(WRITES))
def test_what_a_deposed_server_writes_is_refused(tmp_path: Path, how: str) -> None:
    """Two servers on one store: whoever takes over last may write, and the other one learns it at once."""
    first, second = (open_store(tmp_path / "swell.db", lambda: 1000.0) for _ in range(2))
    try:
        assert first.take_over().result() == 1
        first.accept([new_job("a")]).result()
        assert second.take_over().result() == 2
        before = _all_rows(tmp_path / "swell.db")
        with pytest.raises(Conflict, match=r"another server has taken over this store \(term 2, ours is 1\)"):
            WRITES[how](first).result()
        assert _all_rows(tmp_path / "swell.db") == before
        WRITES[how](second).result()
    finally:
        first.close()
        second.close()


def _all_rows(database: Path) -> dict[str, list[Any]]:
    with closing(sqlite3.connect(database)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: connection.execute(f'SELECT * FROM "{name}"').fetchall() for name in tables}
