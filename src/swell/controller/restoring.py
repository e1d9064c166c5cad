"""How did everything stand when the server ended, by what is stored?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from swell.controller.accounting import Accounts
from swell.controller.apply import Begin, done_before
from swell.controller.curves import RESTORED_EACH, script_of
from swell.controller.livejob import LiveJob
from swell.controller.world import World
from swell.controller.yielding import Stop
from swell.errors import NotFound
from swell.model.job import JobId, JobState
from swell.store import JobRecord
from swell.store.jobstore import JobStore


@dataclass(frozen=True, slots=True)
class Restored:
    world: World
    records: Mapping[JobId, JobRecord]  #: of all in it
    begins: list[Begin]  #: what the engine is to run
    stops: list[Stop]  #: and what of that it is to end


def restore(store: JobStore, accounts: Accounts) -> Restored:
    """What open attempts hold is entered into the accounts."""
    found = Restored(World(), {record.id: record for record in store.active()}, [], [])
    for record in (*store.newest_trained(RESTORED_EACH), *found.records.values()):
        if record.training is not None:
            found.world.curves.learn(script_of(record.spec, record.owner), record.id, record.training)
    open_attempts = {attempt.job_id: attempt for attempt in store.open_attempts()}
    for record in found.records.values():
        job = found.world.add(record)
        if record.attempts == 0:
            continue
        attempt = open_attempts.get(job.id)
        found.world.restore(job, attempt, store.tasks(job.id))
        if attempt is not None:
            accounts.hold(attempt, job.owner)
            found.begins.append(Begin(attempt, done_before(job)))
            if attempt.stopping is not None:
                found.stops.append(Stop(job.attempt_id, attempt.stopping.grace_s, attempt.stopping.evicts))
    for job in found.world.jobs.values():
        follow_ended(store, found.world, job)
    return found


def follow_ended(store: JobStore, world: World, job: LiveJob) -> None:
    """Of the jobs it waits for, some may have ended already."""
    for after in job.after:
        if after.job in world.jobs:
            continue
        try:
            job.let_follow(after.job, store.job(after.job).state)
        except NotFound:
            job.let_follow(after.job, JobState.CANCELLED)
        world.asked.add(job.id)
