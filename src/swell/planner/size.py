"""Where can a job sit, and how far can it spread from there?

A job gets a seat at its least width, so that as many as possible run; resize.py says how wide it should be, and
`spread` how much of that there is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from swell.model.cluster import NodeId
from swell.model.job import Dimension
from swell.model.placement import Company
from swell.model.plan import JobView, Place, Places, Shape
from swell.model.resources import COPIES_MAX
from swell.planner.fit import Groups, Kind, find, least_width, ranks, tally
from swell.planner.room import Room, at


def least(shape: Shape) -> Groups:
    """The tasks it must have to start: a gang's at the least width, one of an array's."""
    return shape.tasks_at(least_width(shape))


def most(job: JobView) -> int:
    """The largest width it can use now."""
    return min(job.shape.width_max, job.unfinished) if job.shape.is_array else job.shape.width_max


def seat(job: JobView, rooms: Sequence[Room]) -> Places | None:
    """Where it can start at its least width; one that cannot leave its node goes where it can be widest."""
    if not _stays_on_one_node(job.shape):
        return find(job.shape, rooms)
    kind = _kind(job)
    best = tally(kind, rooms).best()
    return None if best is None else tuple(at(rooms, best).place(best, kind.resources, 1, is_steady=False))


def claim(job: JobView, rooms: Sequence[Room]) -> Places | None:
    """What to keep for it where arrays give way; the same places as long as nobody else touches them."""
    if not job.shape.is_array:
        return find(job.shape, rooms, is_steady=True)
    kind = _kind(job, is_steady=True)
    counted = tally(kind, rooms)
    best = counted.best()
    if best is None:
        return None
    width = min(most(job), counted.copies[best])
    return tuple(at(rooms, best).place(best, kind.resources, width, is_steady=True))


def _stays_on_one_node(shape: Shape) -> bool:
    """An array does (docs/flaws.md says why), and so does one task."""
    is_one_task = shape.dimension is Dimension.GPUS and len(shape.roles) == 1 and shape.roles[0][1] == 1
    return shape.is_array or is_one_task


def _kind(job: JobView, *, is_steady: bool = False) -> Kind:
    """One task, where it, or the array it is of, can be widest."""
    kind = Kind(least(job.shape)[0][0], 1, job.shape.rules_of(0), is_steady)
    if job.shape.is_array:
        return kind._replace(copies_max=most(job))
    return kind._replace(gpus_max=job.shape.width_max) if job.shape.is_elastic else kind


def spread(shape: Shape, seat: Places, rooms: Sequence[Room], *, width_max: int) -> tuple[int, Places]:
    """The width the rooms allow a gang that has a seat: around it, or, if it can be wider so, elsewhere."""
    width, places = _grow(shape, seat, rooms, width_max)
    if width == width_max:
        return width, places
    _exchange(rooms, given=places, taken=())
    elsewhere = find(shape, rooms, width=width_max)
    if elsewhere is not None:
        width, places = width_max, elsewhere
    _exchange(rooms, given=(), taken=places)
    return width, places


def _exchange(rooms: Sequence[Room], *, given: Places, taken: Places) -> None:
    for room in rooms:
        room.give(given)
        room.take(taken)


def _grow(shape: Shape, places: Places, rooms: Sequence[Room], width_max: int) -> tuple[int, Places]:
    """Takes what it adds."""
    if shape.dimension is Dimension.GPUS:
        return _grow_tasks_wider(shape, places, rooms, width_max)
    return _grow_more_tasks(shape, places, rooms, width_max)


def _grow_tasks_wider(shape: Shape, places: Places, rooms: Sequence[Room], width_max: int) -> tuple[int, Places]:
    """Every task that has GPUs gets as many more as the fullest of their nodes allows."""
    tasks = Counter(place.node for place in places if place.resources.gpus)
    room = min(max(at(rooms, node).on(node).gpus, 0) // count for node, count in tasks.items())
    width = min(shape.width_min + room, width_max)
    sizes = ranks(shape.tasks_at(width))
    wider = tuple(place._replace(resources=resources) for place, resources in zip(places, sizes, strict=True))
    _exchange(rooms, given=places, taken=wider)
    return width, wider


def _grow_more_tasks(shape: Shape, places: Places, rooms: Sequence[Room], width_max: int) -> tuple[int, Places]:
    """Beside its other tasks first, then where most fit; ranks on one node stay neighbours."""
    resources, width = shape.roles[0][0], shape.width_min
    tasks = Counter(place.node for place in places[:width])
    grown = list(places[:width])
    for node, copies in _nodes_to_grow_on(shape, tasks, rooms, width_max - width):
        more = min(copies, width_max - width)
        added = (Place(node, resources),) * more
        _exchange(rooms, given=(), taken=added)
        grown += added
        width += more
    order = {node: number for number, node in enumerate(dict.fromkeys(place.node for place in grown))}
    grown.sort(key=lambda place: order[place.node])
    return width, (*grown, *places[shape.width_min :])


def _nodes_to_grow_on(
    shape: Shape, tasks: Counter[NodeId], rooms: Sequence[Room], count: int
) -> list[tuple[NodeId, int]]:
    """With how many tasks fit on each. Those that want each other near stay where they are, others avoid that."""
    rules = shape.rules_of(0)
    company = Company.ANY if rules is None or not rooms[0].ground.is_cluster else rules.company
    counted = tally(Kind(shape.roles[0][0], COPIES_MAX + 1, rules), rooms)
    copies = counted.copies
    here = sorted((node for node in tasks if copies.get(node)), key=lambda node: (-copies[node], node))
    if company is Company.TOGETHER:
        return [(node, copies[node]) for node in here]
    others = [node for node in counted.parts(count + sum(copies[node] for node in here)) if node not in tasks]
    return [(node, copies[node]) for node in (others if company is Company.APART else [*here, *others])]
