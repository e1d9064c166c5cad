"""Where can a job sit, and how far can it spread from there?

A job gets a seat at its least width, so that as many as possible run; resize.py says how wide it should be, and
`spread` how much of that there is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from swell.model.cluster import NodeId
from swell.model.job import Dimension
from swell.model.plan import JobView, Shape
from swell.model.resources import Resources
from swell.planner.room import Groups, Place, Places, Room, common, find, ranks


def least(shape: Shape) -> Groups:
    """The tasks it must have to start: a gang's at the least width, one of an array's."""
    return shape.tasks_at(1 if shape.is_array else shape.width_min)


def most(job: JobView) -> int:
    """The largest width it can use now."""
    return min(job.shape.width_max, job.unfinished) if job.shape.is_array else job.shape.width_max


def seat(job: JobView, rooms: Sequence[Room]) -> Places | None:
    """Where it can start at its least width; one that cannot leave its node goes where it can be widest."""
    if not _stays_on_one_node(job.shape):
        return find(least(job.shape), rooms)
    room = common(rooms)
    resources = least(job.shape)[0][0]
    fitting = [node for node in room.nodes if room.copies(node, resources)]
    if not fitting:
        return None
    best = min(fitting, key=lambda node: (-_width_in(job, room, node), *room.tightness(node, resources, 1), node))
    return tuple(room.place(best, resources, 1, is_steady=False))


def claim(job: JobView, rooms: Sequence[Room]) -> Places | None:
    """What to keep for it where arrays give way; the same places as long as nobody else touches them."""
    if not job.shape.is_array:
        return find(least(job.shape), rooms, is_steady=True)
    room = common(rooms)
    widths = {node: _width_in(job, room, node) for node in room.nodes}
    best = max(widths, key=lambda node: widths[node], default=None)
    if best is None or not widths[best]:
        return None
    return tuple(room.place(best, job.shape.roles[0][0], widths[best], is_steady=True))


def _stays_on_one_node(shape: Shape) -> bool:
    """An array does (docs/flaws.md says why), and so does one task."""
    is_one_task = shape.dimension is Dimension.GPUS and len(shape.roles) == 1 and shape.roles[0][1] == 1
    return shape.is_array or is_one_task


def _width_in(job: JobView, room: Room, node: NodeId) -> int:
    if job.shape.is_array:
        return min(most(job), room.copies(node, job.shape.roles[0][0]))
    return min(most(job), room.on(node).gpus)


def spread(shape: Shape, seat: Places, rooms: Sequence[Room], *, width_max: int) -> tuple[int, Places]:
    """The width the rooms allow a gang that has a seat: around it, or, if it can be wider so, elsewhere."""
    width, places = _grow(shape, seat, rooms, width_max)
    if width == width_max:
        return width, places
    _exchange(rooms, given=places, taken=())
    elsewhere = find(shape.tasks_at(width_max), rooms)
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
    free = common(rooms)
    room = min(max(free.on(node).gpus, 0) // count for node, count in tasks.items())
    more = min(room, width_max - shape.width_min)
    for sheet in rooms:
        sheet.take([Place(node, Resources(gpus=more * count)) for node, count in tasks.items()])
    width = shape.width_min + more
    wider = ranks(shape.tasks_at(width))
    return width, tuple(Place(place.node, resources) for place, resources in zip(places, wider, strict=True))


def _grow_more_tasks(shape: Shape, places: Places, rooms: Sequence[Room], width_max: int) -> tuple[int, Places]:
    """Beside its other tasks first, then where most fit; ranks on one node stay neighbours."""
    resources, width = shape.roles[0][0], shape.width_min
    tasks = Counter(place.node for place in places[:width])
    free = common(rooms)
    copies = {node: free.copies(node, resources) for node in free.nodes}
    for node in sorted(copies, key=lambda node: (node not in tasks, -copies[node], node)):
        more = min(copies[node], width_max - width)
        for room in rooms:
            room.take((Place(node, resources.times(more)),))
        tasks[node] += more
        width += more
    return width, (*(Place(node, resources) for node in tasks.elements()), *places[shape.width_min :])
