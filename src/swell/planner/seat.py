"""Where can a job sit?

A job gets a seat at its least width, so that as many as possible run; size.py says how wide it should be, and place.py
where that is.
"""

from __future__ import annotations

from collections.abc import Sequence

from swell.model.job import Dimension
from swell.model.plan import JobView, Place, Places, Shape
from swell.planner.fit import Groups, TaskKind, find, least_width, tally
from swell.planner.room import Room, places_on


def least(shape: Shape) -> Groups:
    """The tasks it must have to start: a gang's at the least width, one of an array's."""
    return shape.tasks_at(least_width(shape))


def least_places(job: JobView) -> Places:
    """Where a running job would be at its least width: the first of its tasks, each with the first of its GPUs."""
    slots = job.slots
    if job.shape.dimension is Dimension.TASKS:
        slots = slots[: job.shape.width_min] + slots[job.width :]
    tasks = [resources for resources, count in job.shape.tasks_at(job.shape.width_min) for _ in range(count)]
    pairs = zip(slots, tasks, strict=True)
    return tuple(Place(slot.node, task, slot.devices[: 1 if task.is_share else task.gpus]) for slot, task in pairs)


def most(job: JobView) -> int:
    """The largest width it can use now."""
    if job.is_held:
        return 0
    return min(job.shape.width_max, job.unfinished) if job.shape.is_array else job.shape.width_max


def seat(job: JobView, rooms: Sequence[Room]) -> Places | None:
    """Where it can start at its least width; one that cannot leave its node goes where it can be widest."""
    if not _stays_on_one_node(job.shape):
        return find(job.shape, rooms)
    kind = _kind(job)
    best = tally(kind, rooms).best()
    return None if best is None else tuple(places_on(rooms, best, kind.resources, 1, is_steady=False))


def claim(job: JobView, rooms: Sequence[Room]) -> Places | None:
    """What to keep for it where arrays give way; the same places as long as nobody else touches them."""
    if not job.shape.is_array:
        return find(job.shape, rooms, is_steady=True)
    kind = _kind(job, is_steady=True)
    counted = tally(kind, rooms)
    best = counted.best()
    if best is None:
        return None
    width = min(most(job), counted.copies(best))
    return tuple(places_on(rooms, best, kind.resources, width, is_steady=True))


def _stays_on_one_node(shape: Shape) -> bool:
    """One task does, also the first of an array: the others follow it, and then go to other nodes."""
    is_one_task = shape.dimension is Dimension.GPUS and len(shape.roles) == 1 and shape.roles[0][1] == 1
    return shape.is_array or is_one_task


def _kind(job: JobView, *, is_steady: bool = False) -> TaskKind:
    """One task, where it, or the array it is of, can be widest."""
    kind = TaskKind(least(job.shape)[0][0], 1, job.shape.rules_of(0), is_steady)
    if job.shape.is_array:
        return kind._replace(copies_max=most(job))
    return kind._replace(gpus_max=job.shape.width_max) if job.shape.is_elastic else kind
