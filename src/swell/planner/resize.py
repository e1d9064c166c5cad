"""How wide should every elastic job be?

`share.py` says it as if a cluster were one big machine; here the answer is fitted to the nodes: whoever keeps its width
stays where it is, the others are fitted in widest first, and one for which no place is found at its width gets
the next narrower one. Everybody's least width has a seat already, so there always is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd

from swell.model.job import Dimension, JobId
from swell.model.plan import JobView, Place, Places, Shape
from swell.planner.fit import find
from swell.planner.price import Contender, contender
from swell.planner.room import Room
from swell.planner.share import share_out


@dataclass(frozen=True, slots=True)
class Seat:
    """An elastic job and the places its least width has, or will have."""

    job: JobView
    places: Places
    is_fixed: bool = False  #: it holds a width that cannot be changed at this moment


def widths(seats: Sequence[Seat], room: Room, now: float, quiet: float, more: Mapping[str, float]) -> dict[JobId, int]:
    """For each the width it should have, given the room that is left when everybody sits.

    `more`: by how many GPUs a user's jobs may be wider than their least, all together; without an entry: no limit.
    """
    found: dict[JobId, int] = {}
    for counts_gpus in (True, False):
        of_kind = [seat for seat in seats if bool(_step(seat.job.shape).gpus) == counts_gpus]
        if of_kind:
            found |= _shared(of_kind, room, now, quiet, more, counts_gpus=counts_gpus)
    return found


def _shared(
    seats: Sequence[Seat], room: Room, now: float, quiet: float, more: Mapping[str, float], *, counts_gpus: bool
) -> dict[JobId, int]:
    """What one cannot be given because of where the room is, or of its user's limit, goes to the others."""
    everybody, spare = _contenders(seats, room, now, quiet, counts_gpus=counts_gpus)
    entries = [_Entry(seat.job.user, one, one.fixed is not None) for seat, one in zip(seats, everybody, strict=True)]
    while True:
        chosen = share_out(everybody, spare)
        fitted = _fit(list(zip(seats, everybody, strict=True)), chosen, room)
        if counts_gpus and more:
            _cut(entries, fitted, more)
        short = {job for job, width in fitted.items() if width < chosen[job]}
        if not short:
            return fitted
        everybody = [replace(one, fixed=fitted[one.job]) if one.job in short else one for one in everybody]


def _cut(everybody: Sequence[_Entry], fitted: dict[JobId, int], more: Mapping[str, float]) -> None:
    """Take one step of width from the widest of a user whose jobs are too wide together; decided ones stay."""
    for user, limit in more.items():
        mine = [entry for entry in everybody if entry.user == user]
        wider = sum(entry.above_least(fitted) for entry in mine)
        open_ones = [entry.one for entry in mine if not entry.is_decided and entry.above_least(fitted)]
        if wider > limit and open_ones:
            widest = max(open_ones, key=lambda one: (fitted[one.job], one.job))
            fitted[widest.job] = max(one.width for one in widest.options if one.width < fitted[widest.job])


@dataclass(frozen=True, slots=True)
class _Entry:
    user: str
    one: Contender
    is_decided: bool

    def above_least(self, fitted: dict[JobId, int]) -> int:
        return self.one.option(fitted[self.one.job]).cost - self.one.options[0].cost


def least_places(job: JobView) -> Places:
    """Where a running job would be at its least width: the first of its tasks, each with the first of its GPUs."""
    slots = job.slots
    if job.shape.dimension is Dimension.TASKS:
        slots = slots[: job.shape.width_min] + slots[job.width :]
    tasks = [resources for resources, count in job.shape.tasks_at(job.shape.width_min) for _ in range(count)]
    pairs = zip(slots, tasks, strict=True)
    return tuple(Place(slot.node, task, slot.devices[: 1 if task.is_share else task.gpus]) for slot, task in pairs)


def is_there(seat: Seat, width: int, free: Room, others: Sequence[Room]) -> bool:
    """Has the room it would grow into been seen to be free, and is nobody's seat? Takes it then.

    One that yielded for room that others still hold would come back as narrow as it was.
    """
    held = seat.job.places
    free.give(held)
    for room in others:
        room.give(seat.places)
    places = find(seat.job.shape, (free, *others), width=width)
    free.take(held if places is None else places)
    for room in others:
        room.take(seat.places if places is None else places)
    return places is not None


def gpus_per_step(shape: Shape) -> int:
    """What one more of width takes of GPUs."""
    return _step(shape).gpus


def _step(shape: Shape) -> _Unit:
    """What one more of width takes."""
    if shape.dimension is Dimension.TASKS:
        return _Unit(shape.roles[0][0].gpus, shape.roles[0][0].cpus_milli)
    return _Unit(sum(count for resources, count in shape.roles if resources.gpus), 0)


@dataclass(frozen=True, slots=True)
class _Unit:
    gpus: int
    cpus_milli: int

    def cost(self, *, counts_gpus: bool) -> int:
        return self.gpus if counts_gpus else max(1, self.cpus_milli)


def _contenders(
    seats: Sequence[Seat], room: Room, now: float, quiet: float, *, counts_gpus: bool
) -> tuple[list[Contender], int]:
    """And how many units are to be shared out.

    GPUs one by one; CPUs, for jobs without GPUs, in the largest portions that come out even.
    """
    costs = [_step(seat.job.shape).cost(counts_gpus=counts_gpus) for seat in seats]
    portion = gcd(*costs)
    free = [room.on(node) for node in room.nodes]
    spare = sum(max(0, (left.gpus if counts_gpus else left.cpus_milli) // portion) for left in free)
    return [
        _with_wish(seat, contender(seat.job, cost // portion, now, quiet))
        for seat, cost in zip(seats, costs, strict=True)
    ], spare


def _with_wish(seat: Seat, one: Contender) -> Contender:
    """What is decided already, cannot change now, or was asked for by hand is not up for choice."""
    if one.fixed is not None:
        return one
    return replace(one, fixed=seat.job.width if seat.is_fixed else seat.job.wanted)


def _fit(seats: list[tuple[Seat, Contender]], chosen: dict[JobId, int], room: Room) -> dict[JobId, int]:
    left = room.copy()
    found: dict[JobId, int] = {}
    in_order = sorted(seats, key=lambda one: _fitting_order(one[0].job, chosen[one[0].job.id]))
    for seat, one in in_order:
        width = chosen[seat.job.id]
        left.give(seat.places)
        for option in (option.width for option in reversed(one.options) if option.width <= width):
            places = _places_at(seat.job, option, left)
            if places is not None:
                left.take(places)
                found[seat.job.id] = option
                break
        else:
            left.take(seat.places)
            found[seat.job.id] = seat.job.shape.width_min
    return found


def _fitting_order(job: JobView, width: int) -> tuple[bool, int, JobId]:
    return width != job.width, -width, job.id


def _places_at(job: JobView, width: int, room: Room) -> Places | None:
    """At its present width it stays where it is, if that is still its own."""
    if width == job.width and job.slots:
        places = job.places
        room.take(places)
        is_there = all(_is_whole(room, place.node) for place in places)
        room.give(places)
        return places if is_there else None
    return find(job.shape, (room,), width=width)


def _is_whole(room: Room, node: str) -> bool:
    return node not in room.nodes or room.is_whole(node)  # out of reach: as it is until we know more
