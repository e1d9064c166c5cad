"""EASY backfilling: in order, but a later job may go first if that does not delay the first one that waits.

When the first one can start follows from how long those that run will still take. Whoever is done by then, or fits
beside it, may use the room meanwhile. Who says nothing about their length counts as endless.
"""

from __future__ import annotations

from swell.model.plan import ENDLESS, JobView, Plan, Snapshot
from swell.planner.policies.allocate import Chosen, enact, runnable, width_of
from swell.planner.policies.free_room import FreeRoom
from swell.planner.policies.remaining import remaining_s


def backfill(snapshot: Snapshot) -> Plan:
    jobs = runnable(snapshot)
    running = [(job, job.width) for job in jobs if job.slots]
    room = FreeRoom(snapshot)
    waiting = [job for job in jobs if not job.slots]
    chosen: list[tuple[JobView, int]] = []
    while waiting:
        width = room.width_to_try(waiting[0], width_of(waiting[0]))
        if room.take(waiting[0], width) is None:
            break
        chosen.append((waiting.pop(0), width))
    if waiting:
        chosen += _behind(snapshot, [*running, *chosen], waiting, room)
    return enact(snapshot, [*running, *chosen])


def _behind(snapshot: Snapshot, ahead: Chosen, waiting: list[JobView], room: FreeRoom) -> list[tuple[JobView, int]]:
    """Those behind the first that waits who may start now."""
    first, *others = waiting
    starts_in_s, beside = _reservation(snapshot, ahead, first)
    found: list[tuple[JobView, int]] = []
    for job in others:
        width = room.width_to_try(job, width_of(job))
        ends_before = remaining_s(job, width, snapshot.now) <= starts_in_s
        if room.copy().take(job, width) is None:
            continue
        if not ends_before and beside is not None:
            width = beside.width_to_try(job, width)
        if ends_before or (beside is not None and beside.take(job, width) is not None):
            room.take(job, width)
            found.append((job, width))
    return found


def _reservation(snapshot: Snapshot, ahead: Chosen, first: JobView) -> tuple[float, FreeRoom | None]:
    """In how many seconds the first can start, and what is left beside it then; endless, None: nobody knows."""
    ends = sorted((remaining_s(job, width, snapshot.now), job.id) for job, width in ahead)
    held = {job.id: job for job, _ in ahead if job.slots}
    unplaced = [(job, width) for job, width in ahead if not job.slots]  # they start now, and nobody knows where yet
    for seconds, ended in ends:
        held.pop(ended, None)
        unplaced = [(job, width) for job, width in unplaced if job.id != ended]
        if seconds == ENDLESS:
            break
        room = FreeRoom(snapshot, held.values())
        is_free = all(room.take(job, width) is not None for job, width in unplaced)
        if is_free and room.take(first, room.width_to_try(first, width_of(first))) is not None:
            return seconds, room
    return ENDLESS, None
