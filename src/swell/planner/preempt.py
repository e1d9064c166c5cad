"""Who can be asked to give room back, and who should be?

A job is asked only if it loses nothing by it, or said that it does not mind: it has reported a checkpoint, so it can go
on from the next one; or its spec says `immediate`. One that never reported a checkpoint is not counted on, so it
blocks nobody who could be helped by others.

Elastic jobs give what they hold above their least width to anybody. Only a job of higher rank (rank.py) takes the
rest: victims are those of the lowest rank for whom it costs least, work lost plus restart, in device-seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

from swell.model.job import JobState, ResizeMode
from swell.model.plan import JobView, Places, Shape
from swell.planner.fit import find
from swell.planner.price import PREEMPT_AFTER_RESTARTS, lost_s, restart_s
from swell.planner.rank import rank
from swell.planner.room import Room

DEADLINE_S_MIN = 60.0  # short epochs vary; nobody is killed for being a few seconds late
DEADLINE_CHECKPOINTS = 3.0  # how many of its usual intervals a job has until the next checkpoint
DEADLINE_S_UNKNOWN = 600.0  # of a job with one checkpoint so far
RUN_S_MIN = 60.0  # an immediate one that made no checkpoint since its start has had at least this long


def can_yield(job: JobView, now: float) -> bool:
    """Can it be given another width now? It must have run for as long as its restart takes, and got somewhere.

    One that stops at a checkpoint always gets at least that far.
    """
    if job.state is not JobState.RUNNING or job.yielding is not None or not resumes(job):
        return False
    ran_s = _ran_s(job, now)
    if job.mode is ResizeMode.IMMEDIATE and not _has_checkpoint_since_start(job):
        return ran_s >= max(RUN_S_MIN, PREEMPT_AFTER_RESTARTS * restart_s(job))
    return ran_s >= restart_s(job)


def resumes(job: JobView) -> bool:
    """Does it go on where it was, when it is stopped and started again?"""
    if job.shape.is_array:
        return False
    if job.mode is ResizeMode.AT_CHECKPOINT:
        return job.training is not None and job.training.checkpoint_at is not None
    return job.mode is ResizeMode.IMMEDIATE


def _has_checkpoint_since_start(job: JobView) -> bool:
    at = None if job.training is None else job.training.checkpoint_at
    return at is not None and job.started_at is not None and at >= job.started_at


def can_be_preempted(job: JobView, now: float) -> bool:
    return can_yield(job, now) and _ran_s(job, now) >= PREEMPT_AFTER_RESTARTS * restart_s(job)


def _ran_s(job: JobView, now: float) -> float:
    return 0.0 if job.started_at is None else now - job.started_at


def deadline_s(job: JobView) -> float | None:
    """How long it may take until it has given its room back; None: it is stopped at once."""
    if job.mode is ResizeMode.IMMEDIATE:
        return None
    assert job.training is not None
    every_s = job.training.checkpoint_every_s
    return DEADLINE_S_UNKNOWN if every_s is None else max(DEADLINE_S_MIN, DEADLINE_CHECKPOINTS * every_s)


def choose_victims(
    shape: Shape, rooms: Sequence[Room], candidates: Sequence[tuple[JobView, Places]], now: float
) -> tuple[list[JobView], Places] | None:
    """The fewest that make room for a waiting job, and where it will be; None: not even all of them do.

    `candidates` come with what each keeps in `rooms`.
    """
    trial = [room.copy() for room in rooms]
    taken: list[tuple[JobView, Places]] = []
    for victim, places in sorted(candidates, key=lambda one: (rank(one[0], now), _cost(one[0], now), -one[0].id)):
        for room in trial:
            room.give(places)
        taken.append((victim, places))
        if find(shape, trial, is_steady=True) is not None:
            return _only_needed(shape, trial, taken)
    return None


def _only_needed(
    shape: Shape, trial: Sequence[Room], taken: list[tuple[JobView, Places]]
) -> tuple[list[JobView], Places]:
    """Leave alone whoever turns out not to be needed, the dearest first."""
    victims: list[JobView] = []
    for victim, places in reversed(taken):
        for room in trial:
            room.take(places)
        if find(shape, trial, is_steady=True) is None:
            victims.append(victim)
            for room in trial:
                room.give(places)
    found = find(shape, trial, is_steady=True)
    assert found is not None
    return victims, found


def _cost(job: JobView, now: float) -> float:
    """In device-seconds: work that is lost, and the restart."""
    devices = sum(slot.resources.gpus for slot in job.slots) or len(job.slots)
    return devices * (lost_s(job, now) + restart_s(job))
