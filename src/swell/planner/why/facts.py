"""What is true at this moment of the nodes that a job may use?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from swell.model.cluster import NodeId
from swell.model.job import JobId, JobState, ResizeMode
from swell.model.placement import PlacementRules
from swell.model.plan import JobView, Snapshot, taken
from swell.model.resources import NOTHING, Resources
from swell.planner.devices import foreign_gpus, held_gpus
from swell.planner.nodes import Same, objections
from swell.planner.preempt import may_yield_from, resumes
from swell.planner.room import Room


@dataclass(frozen=True, slots=True)
class Facts:
    """Of those nodes that answer."""

    free: tuple[Resources, ...]  #: by node; of GPU memory the most that one GPU has left
    foreign: int  #: GPUs that only processes outside Swell use
    holders: list[JobId]  #: who holds room there
    draining: list[JobId]  #: and will give some of it back when tasks end
    stopping: list[JobId]  #: or as soon as they have stopped, which they were told to do at once
    yielding: list[JobId]  #: or at their next checkpoint
    later: list[tuple[float, JobId]]  #: or may be asked to, from a moment on
    stiff: list[JobView]  #: those who cannot go on where they are, so nobody takes their room
    ends_at: float | None  #: when all holders have ended at the latest; None: nobody holds room
    full: int  #: how many nodes hold as many tasks as they may
    forbidden: tuple[str, ...]  #: for each node, answering or not, that may not be used: why


def _gives_back(job: JobView) -> bool:
    return job.yielding is not None and job.yielding < job.width


def _stops_at_once(job: JobView) -> bool:
    return job.state is JobState.STOPPING or job.mode is ResizeMode.IMMEDIATE


def facts(snapshot: Snapshot, rules: tuple[PlacementRules | None, ...]) -> Facts:
    """For a job whose roles have these rules; worked out once, as a listing explains thousands of jobs."""
    known = _known(Same(snapshot))
    if rules not in known:
        known[rules] = _facts(snapshot, rules)
    return known[rules]


def offered(room: Room, node: NodeId) -> Resources:
    """As people are told it: never below zero, and nothing where no more tasks may go."""
    if not room.takes_more(node):
        return NOTHING
    free = room.on(node)
    numbers = (free.cpus_milli, free.memory_mib, free.gpus, room.largest_share_mib(node))
    return Resources(*(max(number, 0) for number in numbers))


def forbidden_nodes(snapshot: Snapshot, rules: tuple[PlacementRules | None, ...]) -> dict[NodeId, str]:
    """Those that none of the roles may use, with what the first one finds in the way."""
    found = [objections(one, snapshot.nodes_by_id) for one in rules or (None,)]
    return {node: problem for node, problem in found[0].items() if all(node in others for others in found)}


@lru_cache(maxsize=1)
def _known(_: Same[Snapshot]) -> dict[tuple[PlacementRules | None, ...], Facts]:
    return {}


def _facts(snapshot: Snapshot, rules: tuple[PlacementRules | None, ...]) -> Facts:
    forbidden = forbidden_nodes(snapshot, rules)
    usable = [node for node in snapshot.nodes if node.is_reachable and node.id not in forbidden]
    foreign = foreign_gpus(snapshot, held_gpus(snapshot))
    room = Room.of(usable, foreign=foreign)
    held = [(job, slot) for job, slot in snapshot.held() if slot.node in room.nodes]
    room.take(taken(slot for _, slot in held))
    return Facts(
        free=tuple(offered(room, node) for node in room.nodes),
        foreign=sum(node in room.nodes for node, _ in foreign),
        holders=sorted({job.id for job, _ in held}),
        draining=sorted({job.id for job, slot in held if slot.is_draining}),
        stopping=sorted({job.id for job, _ in held if _gives_back(job) and _stops_at_once(job)}),
        yielding=sorted({job.id for job, _ in held if _gives_back(job) and not _stops_at_once(job)}),
        later=sorted(_later(snapshot, room)),
        stiff=[job for job in snapshot.holding if not job.shape.is_array and not resumes(job) and _is_in(job, room)],
        ends_at=max((job.ends_at for job, _ in held), default=None),
        full=sum(not room.takes_more(node) for node in room.nodes),
        forbidden=tuple(forbidden.values()),
    )


def _later(snapshot: Snapshot, room: Room) -> Iterator[tuple[float, JobId]]:
    """Who is wider than it must be, and has not run long enough to be made narrower."""
    for job in snapshot.holding:
        is_wide = job.shape.is_elastic and job.width > job.shape.width_min and not job.is_partly_over
        if is_wide and _is_in(job, room):
            yields_from = may_yield_from(job)
            if yields_from is not None and yields_from > snapshot.now:
                yield yields_from, job.id


def _is_in(job: JobView, room: Room) -> bool:
    return any(slot.node in room.nodes for slot in job.slots)
