"""How wide should every elastic job be?

Running jobs and waiting ones compete alike: everybody has a seat at the least width, and `knapsack.py` shares out the
rest as if the cluster were one big machine. place.py fits the answer to the nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd
from typing import Any

from swell.model.cluster import Node
from swell.model.job import Dimension, JobId
from swell.model.plan import JobView, Places, Shape, Snapshot
from swell.model.resources import Resources
from swell.model.width import step_of
from swell.planner.admit import Admitted
from swell.planner.knapsack import share_out
from swell.planner.nodes import Same
from swell.planner.preempt import can_yield
from swell.planner.price import ONE_MACHINE, Contender, Option, contender, has_known_length, quietness
from swell.planner.room import Room

WAIT_S_MAX = 300.0  # how long a job waits at the most while jobs that are sooner done make better use of its room
NOTHING_KNOWN: Mapping[Any, Any] = {}
KnownContenders = dict[tuple[JobId, int], tuple[JobView, Contender]]  # by job and units of a step, and as which view


@dataclass(frozen=True, slots=True)
class Seat:
    """A job and the places its least width has, or will have."""

    job: JobView
    places: Places
    is_fixed: bool = False  #: it holds a width that cannot be changed at this moment


@dataclass(frozen=True, slots=True)
class ContenderGroup:
    """Those that share out one kind of unit: GPUs, or CPUs of jobs without GPUs."""

    users: tuple[str, ...]  #: whose jobs they are
    contenders: tuple[Contender, ...]
    spare: int  #: units that are left when everybody has the least
    limits: Mapping[str, float]

    def knowing(self, kept: Mapping[JobId, int], known: Mapping[tuple[JobId, int], float]) -> ContenderGroup:
        settled = (_kept(one, kept) for one in self.contenders)
        return replace(self, contenders=tuple(_as_known(one, known) for one in settled))


@dataclass(frozen=True, slots=True)
class Widths:
    """What was decided for every elastic job that has a seat."""

    by_job: Mapping[JobId, int]
    contenders: Mapping[JobId, Contender]
    groups: tuple[ContenderGroup, ...]
    known: KnownContenders  #: before anything was known of places

    def of(self, job: JobView) -> int:
        return self.by_job.get(job.id, job.shape.width_min)

    def at_most(self, job: JobView) -> list[Option]:
        """The width that was decided and all narrower ones, the widest first."""
        if job.id not in self.contenders:
            return [Option(job.shape.width_min, 0, 0.0, 1.0)]
        width = self.of(job)
        return [option for option in reversed(self.contenders[job.id].options) if option.width <= width]


def size(snapshot: Snapshot, admitted: Admitted, before: Widths | None = None) -> Widths:
    """For those that run, those that start now and those for whom room is made, all together.

    `before`: what was decided of the same snapshot; of jobs that are as they were, what it knows holds.
    """
    known = {} if before is None else before.known
    seats = elastic_seats(admitted, snapshot.now)
    groups = []
    for counts_gpus in (True, False):
        of_kind = [seat for seat in seats if bool(_step(seat.job.shape).gpus) == counts_gpus]
        if of_kind:
            everybody, spare = _contenders(of_kind, admitted.line, snapshot, known, counts_gpus=counts_gpus)
            limits = _limits(of_kind, snapshot, admitted) if counts_gpus else {}
            groups.append(ContenderGroup(tuple(seat.job.user for seat in of_kind), tuple(everybody), spare, limits))
    return _widths(tuple(groups), known)


def size_again(
    widths: Widths, *, kept: Mapping[JobId, int] = NOTHING_KNOWN, known: Mapping[tuple[JobId, int], float]
) -> Widths:
    """`kept`: widths that are settled; `known`: how long a job would take at a width, where there is room for it."""
    return _widths(tuple(group.knowing(kept, known) for group in widths.groups), widths.known)


def _widths(groups: tuple[ContenderGroup, ...], known: KnownContenders) -> Widths:
    found: dict[JobId, int] = {}
    for group in groups:
        found |= _shared(group.users, list(group.contenders), group.spare, group.limits)
    return Widths(found, {one.job: one for group in groups for one in group.contenders}, groups, known)


def _kept(one: Contender, kept: Mapping[JobId, int]) -> Contender:
    return replace(one, fixed=kept[one.job]) if one.job in kept else one


def _as_known(one: Contender, known: Mapping[tuple[JobId, int], float]) -> Contender:
    if not any((one.job, option.width) in known for option in one.options):
        return one
    options = (option._replace(left_s=known.get((one.job, option.width), option.left_s)) for option in one.options)
    return replace(one, options=tuple(options))


def elastic_seats(admitted: Admitted, now: float) -> list[Seat]:
    """All that can have another width."""
    waiting = [Seat(one.job, one.places) for one in (*admitted.starts, *admitted.claims) if one.job.shape.is_elastic]
    running = admitted.elastic.values()
    return [*(Seat(job, admitted.seats[job.id], is_fixed=not can_yield(job, now)) for job in running), *waiting]


def _limits(seats: Sequence[Seat], snapshot: Snapshot, admitted: Admitted) -> dict[str, float]:
    """For each user with a limit: by how many GPUs their jobs may exceed their least widths, all together."""
    return {user: admitted.kept.spare_gpus(user) for user in {seat.job.user for seat in seats} & snapshot.users.keys()}


def _shared(
    users: Sequence[str], everybody: list[Contender], spare: int, more: Mapping[str, float]
) -> dict[JobId, int]:
    """What a user's limit keeps from one goes to the others."""
    entries = [_Entry(user, one, one.fixed is not None) for user, one in zip(users, everybody, strict=True)]
    while True:
        chosen = share_out(everybody, spare)
        allowed = dict(chosen)
        _cut(entries, allowed, more)
        short = {job for job, width in allowed.items() if width < chosen[job]}
        if not short:
            return allowed
        everybody = [replace(one, fixed=allowed[one.job]) if one.job in short else one for one in everybody]


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
        width = fitted[self.one.job]
        return self.one.option(width).cost - self.one.options[0].cost if width else 0


def gpus_per_step(shape: Shape) -> int:
    """What one more of width takes of GPUs."""
    return _step(shape).gpus


def _step(shape: Shape) -> _Unit:
    """What one more of width takes."""
    step = step_of(shape.roles, shape.dimension)
    return _Unit(step.gpus, step.cpus_milli)


@dataclass(frozen=True, slots=True)
class _Unit:
    gpus: int
    cpus_milli: int

    def cost(self, *, counts_gpus: bool) -> int:
        return self.gpus if counts_gpus else max(1, self.cpus_milli)


def _contenders(
    seats: Sequence[Seat], room: Room, snapshot: Snapshot, known: KnownContenders, *, counts_gpus: bool
) -> tuple[list[Contender], int]:
    """And how many units are to be shared out.

    GPUs one by one; CPUs, for jobs without GPUs, in the largest portions that come out even.
    """
    costs = [_step(seat.job.shape).cost(counts_gpus=counts_gpus) for seat in seats]
    portion = gcd(*costs)
    free = [room.on(node) for node in room.nodes]
    spare = sum(max(0, (left.gpus if counts_gpus else left.cpus_milli) // portion) for left in free)
    quiet = quietness(snapshot.arrivals, snapshot.now)
    return [
        _contender(seat, cost // portion, snapshot, quiet, known) for seat, cost in zip(seats, costs, strict=True)
    ], spare


def _contender(seat: Seat, unit: int, snapshot: Snapshot, quiet: float, known: KnownContenders) -> Contender:
    job, now = seat.job, snapshot.now
    before = known.get((job.id, unit))
    if before is not None and before[0] is job:
        return before[1]
    made = contender(job, unit, now, quiet, per_node(snapshot.nodes, job.shape))
    found = _with_wish(seat, made, now)
    known[job.id, unit] = job, found
    return found


def per_node(nodes: tuple[Node, ...], shape: Shape) -> int:
    """How many steps of width the largest node holds. A task that gets more GPUs stays on its node."""
    if shape.dimension is not Dimension.TASKS:
        return ONE_MACHINE
    return max(1, _copies_max(Same(nodes), shape.roles[0][0]))


@lru_cache(maxsize=256)
def _copies_max(nodes: Same[tuple[Node, ...]], task: Resources) -> int:
    capacities = {node.capacity for node in nodes.value}
    return max((task.copies_in(capacity) for capacity in capacities), default=1)


def _with_wish(seat: Seat, one: Contender, now: float) -> Contender:
    """What is decided already, cannot change now, or was asked for by hand is not up for choice."""
    if one.fixed is not None:
        return one
    fixed = seat.job.width if seat.is_fixed else seat.job.wanted or seat.job.returns
    return replace(one, fixed=fixed, may_wait=fixed is None and may_wait(seat.job, now))


def may_wait(job: JobView, now: float) -> bool:
    """Before its first start, if it is known how long it takes: one of which nothing is known may be short."""
    return not job.has_begun and has_known_length(job) and now - job.lined_up_at < WAIT_S_MAX
