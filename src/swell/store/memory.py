"""What does a simulation remember? Everything that the controller asks of a store, in plain dictionaries.

Nothing is durable and nothing is slow: a future is done when it is handed out. `tests/store/test_jobstore.py` holds
this store and the one on disk to the same answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, replace
from typing import Any, TypeVar

from swell.errors import SwellError
from swell.model.job import JobId, JobState
from swell.model.quota import NO_QUOTA, Quota
from swell.model.usage import Account, DayOfUse, Used
from swell.store.accepting import PLAINLY, Acceptance, key_was_used, name_siblings
from swell.store.changes import Changes
from swell.store.names import claimed_names, name_taken
from swell.store.quotas import refuse_jobs, refuse_tasks
from swell.store.reading import no_job
from swell.store.records import CODES, STATES, AttemptRecord, EventRecord, JobRecord, NewJob, TaskRecord, identity_text

T = TypeVar("T")


class MemoryStore:
    """For one thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._jobs: dict[JobId, JobRecord] = {}
        self._attempts: dict[tuple[JobId, int], AttemptRecord] = {}
        self._tasks: dict[tuple[JobId, int, int], TaskRecord] = {}
        self._keys: dict[str, tuple[str, tuple[JobId, ...], float]] = {}
        self._usage: dict[tuple[str, str], Used] = {}
        self._accounts: dict[str, Account] = {}
        self._generation = 0
        self._last_id = 0
        self.events: list[EventRecord] = []

    # -- writing ---------------------------------------------------------------------------------------------

    def accept(self, jobs: Sequence[NewJob], how: Acceptance = PLAINLY) -> Future[list[JobRecord]]:
        return _done(lambda: self._accept(jobs, how))

    def _accept(self, jobs: Sequence[NewJob], how: Acceptance) -> list[JobRecord]:
        if how.key is not None and how.key in self._keys:
            return self._replay(how.key, how.digest)
        self._refuse_too_much(jobs, how.quota)
        names = claimed_names(jobs)
        for job in self.active():
            if job.name in names and job.owner == jobs[0].owner:
                raise name_taken(job.name, job.id, str(job.state))
        records = self._insert(jobs, how.origin)
        if how.key is not None:
            self._keys[how.key] = how.digest, tuple(record.id for record in records), self._clock()
        return records

    def _replay(self, key: str, digest: str) -> list[JobRecord]:
        known, ids, _ = self._keys[key]
        if known != digest:
            raise key_was_used(key, "was already used for another submission")
        if not all(job in self._jobs for job in ids):
            raise key_was_used(key, "stands for jobs that have been deleted")
        return [self._jobs[job] for job in ids]

    def _refuse_too_much(self, jobs: Sequence[NewJob], quota: Quota) -> None:
        """What is stored costs nobody anything here."""
        if not jobs:
            return
        owner = jobs[0].owner
        own = [job for job in self.active() if job.owner == owner and job.cancel_requested_by is None]
        if quota.queued is not None:
            waiting = sum(job.state in (JobState.QUEUED, JobState.HELD) for job in own)
            refuse_jobs(owner, waiting, len(jobs), quota.queued)
        if quota.tasks is not None:
            there = sum(job.tasks_total for job in own)
            refuse_tasks(owner, there, sum(new.spec.tasks_total for new in jobs), quota.tasks)

    def _insert(self, jobs: Sequence[NewJob], origin: str) -> list[JobRecord]:
        ids = range(self._last_id + 1, self._last_id + 1 + len(jobs))
        self._last_id += len(jobs)
        named = [replace(new, spec=name_siblings(new.spec, ids)) for new in jobs]
        return [self._insert_one(job, new, origin) for job, new in zip(ids, named, strict=True)]

    def _insert_one(self, job: JobId, new: NewJob, origin: str) -> JobRecord:
        record = self._jobs[job] = _new_record(job, new, self._clock())
        notes = {"notes": list(new.spec.notes)} if new.spec.notes else {}
        self._tell([EventRecord("Submitted", record.id, record.owner, {"name": record.name, **notes}, origin=origin)])
        return record

    def accept_each(
        self, jobs: Mapping[str, NewJob], *, origin: str = "", quota: Quota = NO_QUOTA
    ) -> Future[list[JobRecord | None]]:
        return _done(lambda: self._accept_each(jobs, origin, quota))

    def _accept_each(self, jobs: Mapping[str, NewJob], origin: str, quota: Quota) -> list[JobRecord | None]:
        fresh = {key: new for key, new in jobs.items() if key not in self._keys}
        self._refuse_too_much(list(fresh.values()), quota)
        for key, record in zip(fresh, self._insert(list(fresh.values()), origin), strict=True):
            self._keys[key] = "", (record.id,), self._clock()
        return [self._jobs.get(self._keys[key][1][0]) for key in jobs]

    def request_cancel(
        self, jobs: Sequence[JobId], *, by: str, grace_s: float | None, origin: str = ""
    ) -> Future[None]:
        values = {"cancel_requested_by": by, "cancel_grace_s": grace_s}
        asked = [EventRecord("CancelRequested", job, by, {"grace_s": grace_s}, origin=origin) for job in jobs]
        return self.record(Changes(jobs={job: dict(values) for job in jobs}, events=asked))

    def record(self, changes: Changes) -> Future[None]:
        return _done(lambda: self._record(changes))

    def unstorable(self, changes: Changes) -> Future[dict[JobId, str]]:
        """Nobody: memory takes everything."""
        return _done(dict)

    def take_over(self) -> Future[int]:
        self._generation += 1
        return _done(lambda: self._generation)

    def _record(self, changes: Changes) -> None:
        for job, values in changes.jobs.items():
            if job in self._jobs:
                self._jobs[job] = _changed(self._jobs[job], values)
        self._attempts |= {(one.job_id, one.number): replace(one, changed_at=None) for one in changes.attempts}
        self._tasks |= {(one.job_id, one.attempt, one.index): one for one in changes.tasks}
        self._tell(changes.events)
        for place, used in changes.usage.items():
            self._usage[place] = _sum(self._usage.get(place), used)
        self._accounts |= changes.accounts
        if changes.generation is not None:
            self._generation = changes.generation

    def forget(self, jobs: Sequence[JobId], *, by: str, origin: str = "") -> Future[None]:
        gone = set(jobs)
        self._jobs = {job: record for job, record in self._jobs.items() if job not in gone}
        self._attempts = {key: one for key, one in self._attempts.items() if key[0] not in gone}
        self._tasks = {key: one for key, one in self._tasks.items() if key[0] not in gone}
        self._tell([EventRecord("Deleted", job, by, origin=origin) for job in jobs])
        return _done(lambda: None)

    def forget_events(self, before: float) -> Future[None]:
        self.events = [event for event in self.events if event.at >= before]
        self._keys = {key: known for key, known in self._keys.items() if known[2] >= before}
        return _done(lambda: None)

    def _tell(self, events: Sequence[EventRecord]) -> None:
        now, first = self._clock(), len(self.events) + 1
        self.events += [replace(one, at=one.at or now, id=first + place) for place, one in enumerate(events)]

    # -- reading ---------------------------------------------------------------------------------------------

    def generation(self) -> int:
        return self._generation

    def job(self, job: JobId) -> JobRecord:
        if job not in self._jobs:
            raise no_job(job)
        return self._jobs[job]

    def jobs(self, wanted: Sequence[JobId]) -> dict[JobId, JobRecord]:
        return {job: self._jobs[job] for job in wanted if job in self._jobs}

    def active(self) -> list[JobRecord]:
        return [record for record in self._jobs.values() if not record.state.has_ended]

    def open_attempts(self) -> list[AttemptRecord]:
        return [one for one in self._attempts.values() if one.ended_at is None]

    def tasks(self, job: JobId) -> list[TaskRecord]:
        return [one for key, one in sorted(self._tasks.items()) if key[0] == job]

    def ended_before(self, moment: float, limit: int) -> list[JobId]:
        old = [one.id for one in self._jobs.values() if one.ended_at is not None and one.ended_at < moment]
        return sorted(old)[:limit]

    def newest_trained(self, each: int) -> list[JobRecord]:
        told: dict[str, list[JobRecord]] = {}
        for job in sorted(self._jobs):
            one = self._jobs[job]
            if one.ended_at is not None and one.training_text is not None:
                told.setdefault(one.owner, []).append(one)
        return sorted((one for theirs in told.values() for one in theirs[-each:]), key=lambda one: one.id)

    def with_notice_due(self) -> list[JobRecord]:
        return [record for record in self._jobs.values() if record.notice_due]

    def arrivals(self, count: int) -> list[float]:
        newest = sorted(self._jobs)[-count:]
        return sorted(self._jobs[job].submitted_at for job in newest)

    def usage(self, *, since: str) -> list[DayOfUse]:
        by_day = sorted(self._usage.items(), key=lambda one: (one[0][1], one[0][0]))
        return [DayOfUse(owner, day, used) for (owner, day), used in by_day if day >= since]

    def usage_totals(self) -> dict[str, Used]:
        totals: dict[str, Used] = {}
        for (owner, _), used in self._usage.items():
            totals[owner] = _sum(totals.get(owner), used)
        return totals

    def accounts(self) -> dict[str, Account]:
        return dict(self._accounts)


def _done(work: Callable[[], T]) -> Future[T]:
    future: Future[T] = Future()
    try:
        future.set_result(work())
    except SwellError as refusal:  # told to whoever asked
        future.set_exception(refusal)
    return future


def _new_record(job: JobId, new: NewJob, now: float) -> JobRecord:
    spec = new.spec
    return JobRecord(
        id=job,
        name=spec.name,
        owner=new.owner,
        priority=spec.priority,
        spec_text=json.dumps(spec.to_document()),
        environment="",
        submitted_at=now,
        width_min=spec.width_min,
        width_max=spec.width_max,
        tasks_total=spec.tasks_total,
        held_by=new.owner if spec.is_held else None,
        uid=new.uid,
        identity=identity_text(new.identity),
        given=spec,
    )


def _changed(record: JobRecord, values: Mapping[str, Any]) -> JobRecord:
    """`values`: new values of columns."""
    read = dict(values)
    if "state" in read:
        read["state"] = STATES[read["state"]]
    if "reason_code" in read:
        read["reason_code"] = CODES[read["reason_code"]]
    if "training" in read:
        training = read.pop("training")
        read["training_text"] = None if training is None else json.dumps(training)
    if "nodes" in read:
        read["nodes"] = tuple(read["nodes"])
    return replace(record, version=record.version + 1, **read)


def _sum(one: Used | None, other: Used) -> Used:
    if one is None:
        return other
    added = asdict(other)
    return Used(**{name: value + added[name] for name, value in asdict(one).items()})
