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
from swell.planner.interrupt import restart_s
from swell.planner.price import PREEMPT_AFTER_RESTARTS, lost_s
from swell.planner.rank import rank
from swell.planner.room import Room

DEADLINE_S_MIN = 60.0  # short epochs vary; nobody is killed for being a few seconds late
DEADLINE_CHECKPOINTS = 3.0  # how many of its usual intervals a job has until the next checkpoint
DEADLINE_S_UNKNOWN = 600.0  # of a job with one checkpoint so far
RUN_S_MIN = 60.0  # an immediate one that made no checkpoint since its start has had at least this long


def can_yield(job: JobView, now: float) -> bool:
    """Can it be given another width now?"""
    yields_from = may_yield_from(job)
    return yields_from is not None and now >= yields_from


def may_yield_from(job: JobView) -> float | None:
    """From when on it can be given another width; None: not this attempt, as far as anybody knows now."""
    if job.state is not JobState.RUNNING or job.yielding is not None or not resumes(job):
        return None
    if job.started_at is None or _ends_with_its_next_checkpoint(job):
        return None
    return job.started_at + _least_run_s(job)


def _least_run_s(job: JobView) -> float:
    """It must have run for as long as its restart takes, and got somewhere, unless its user asked for the width.

    One that stops at a checkpoint always gets at least that far.
    """
    if job.wanted not in (None, job.width):
        return 0.0
    if job.mode is not ResizeMode.IMMEDIATE or _has_checkpoint_since_start(job):
        return restart_s(job)
    if job.is_at_once:  # what its restart takes nobody knows who was not told; what it loses is weighed
        return 0.0 if job.training is None else job.training.restart_s or 0.0
    return max(RUN_S_MIN, PREEMPT_AFTER_RESTARTS * restart_s(job))


def resumes(job: JobView) -> bool:
    """Does it go on where it was, when it is stopped and started again?"""
    if job.shape.is_array:
        return False
    if job.mode is ResizeMode.AT_CHECKPOINT:
        training = job.training
        return training is not None and (training.checkpoint_at is not None or training.saves_at_steps)
    return job.mode is ResizeMode.IMMEDIATE


def _ends_with_its_next_checkpoint(job: JobView) -> bool:
    """Stopped there, it would be started again with nothing to do. What saves within epochs has one before its end."""
    if job.training is None or job.training.saves_at_steps:
        return False
    return job.mode is ResizeMode.AT_CHECKPOINT and job.training.left in (0.0, 1.0)


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
    shape: Shape,
    rooms: Sequence[Room],
    candidates: Sequence[tuple[JobView, Places]],
    now: float,
    last: Sequence[tuple[JobView, Places]] = (),
) -> tuple[list[JobView], Places] | None:
    """The fewest that make room for a waiting job, and where it will be; None: not even all of them do.

    `candidates` come with what each keeps in `rooms`. Those in `last` are taken when all others are not enough.
    """
    trial = [room.copy() for room in rooms]
    taken: list[tuple[JobView, Places]] = []
    in_order = [
        one
        for group in (candidates, last)
        for one in sorted(group, key=lambda one: (rank(one[0], now), _cost(one[0], now), -one[0].id))
    ]
    for victim, places in in_order:
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
