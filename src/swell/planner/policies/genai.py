"""As genai's manager: as many GPUs as one node can give, up to the job's limit.

A job that finds its request on no node has one other job give room back: the one whose last checkpoint is the most
recent, because that loses the least. When there is room and nobody waits, one job at a time is made wider, chosen the
same way. Jobs wait in line here, where the original refuses them; of several that wait each gets its request first.
"""

from __future__ import annotations

from swell.model.job import JobId
from swell.model.plan import JobView, Plan, Snapshot
from swell.planner.policies.allocate import can_stop, enact, runnable, width_of
from swell.planner.policies.free_room import FreeRoom


def genai(snapshot: Snapshot) -> Plan:
    jobs = runnable(snapshot)
    waiting = sorted((job for job in jobs if not job.slots), key=lambda job: (job.lined_up_at, job.id))
    widths = {job.id: job.width for job in jobs if job.slots}
    room = FreeRoom(snapshot)
    blocked: list[JobView] = []
    for job in waiting:
        width = _widest(job, room, width_of(job) if len(waiting) > 1 else job.shape.width_max)
        if width is None:
            blocked.append(job)
        else:
            room.take(job, width, on_one_node=True)
            widths[job.id] = width
    if not any(job.yielding is not None for job in jobs):
        widths |= _shrunk(jobs, blocked[0], room) if blocked else _grown(jobs, room)
    order = [*(job for job in jobs if job.slots), *waiting]
    return enact(snapshot, [(job, widths.get(job.id, width_of(job))) for job in order], on_one_node=True)


def _widest(job: JobView, room: FreeRoom, most: int) -> int | None:
    """What one node can give it now; None: not even the least."""
    low = room.width_to_try(job, width_of(job), on_one_node=True)
    high = max(low, min(most, max(room.gpus.values(), default=0)))
    options = range(high, low - 1, -1)
    return next((width for width in options if room.copy().take(job, width, on_one_node=True) is not None), None)


def _by_checkpoint(jobs: list[JobView]) -> list[JobView]:
    """The most recent first; jobs without one last, in the order of arrival."""
    return sorted(jobs, key=lambda job: (-((job.training and job.training.checkpoint_at) or 0.0), job.id))


def _spare(job: JobView, room: FreeRoom) -> int:
    """GPUs that nobody uses on its node."""
    return max((room.gpus.get(slot.node, 0) for slot in job.slots), default=0)


def _grown(jobs: list[JobView], room: FreeRoom) -> dict[JobId, int]:
    """One job that gets what its node has left."""
    for job in _by_checkpoint([job for job in jobs if can_stop(job) and job.width < job.shape.width_max]):
        if spare := _spare(job, room):
            return {job.id: min(job.shape.width_max, job.width + spare)}
    return {}


def _shrunk(jobs: list[JobView], blocked: JobView, room: FreeRoom) -> dict[JobId, int]:
    """One job that gives up what the blocked one lacks on its node; nobody does if that takes more than one."""
    for job in _by_checkpoint([job for job in jobs if can_stop(job)]):
        width = job.width - max(0, blocked.shape.width_min - _spare(job, room))
        if job.shape.width_min <= width < job.width:
            return {job.id: width}
    return {}
