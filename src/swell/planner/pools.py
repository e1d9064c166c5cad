"""How many workers of which pool do the waiting jobs lack?

The jobs in line for which there is not enough (shortage.py) are seated one after the other, as the planner would: first
in what is free now, then on workers that are on their way, then on workers that a pool could still start. Several jobs
share a worker where they fit. So a job that one idle machine and one new worker could hold asks for one worker, and a
job that no pool could ever hold asks for none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from swell.model.cluster import Node, NodeId
from swell.model.job import JobId, JobState
from swell.model.plan import JobView, Plan, SetSlots, Shape, Slot, Snapshot, Start, taken
from swell.model.pool import PoolOffer
from swell.planner.nodes import Same, answering
from swell.planner.room import Room
from swell.planner.seat import least, seat
from swell.planner.shortage import find_shortages

CANDIDATES_MAX = 500  # workers of one pool that one look considers; the next look goes on from there
JOBS_MAX = 5_000  # in line that one look considers


@dataclass(frozen=True, slots=True)
class PoolCapacity:
    """What a pool can bring."""

    name: str
    offer: PoolOffer
    under_way: int  #: workers that are launched and no nodes yet
    more: int  #: that it may launch beside them; 0: it is full, or cannot


@dataclass(frozen=True, slots=True)
class PoolNeed:
    workers: int = 0  #: that are no nodes yet; those that are under way count
    jobs: tuple[JobId, ...] = ()  #: that they are for, in line


NO_NEED = PoolNeed()


def find_pool_needs(snapshot: Snapshot, plan: Plan, pools: Sequence[PoolCapacity]) -> dict[str, PoolNeed]:
    """By the name of the pool; pools that nobody needs are in it, too."""
    in_order = sorted(pools, key=_smallest_first)
    stages = _Stages(snapshot, plan, in_order)
    used: dict[str, set[NodeId]] = {pool.name: set() for pool in pools}
    jobs: dict[str, list[JobId]] = {pool.name: [] for pool in pools}
    for shortage in find_shortages(snapshot, plan)[:JOBS_MAX]:
        nodes = stages.seat(snapshot.jobs_by_id[shortage.job])
        for name in {stages.pool_of[node] for node in nodes if node in stages.pool_of}:
            used[name] |= {node for node in nodes if stages.pool_of.get(node) == name}
            jobs[name].append(shortage.job)
    return {pool.name: PoolNeed(len(used[pool.name]), tuple(jobs[pool.name])) for pool in pools}


def can_hold(job: JobView, nodes: tuple[Node, ...], offer: PoolOffer, count: int) -> bool:
    """Could it run on these nodes and so many workers of a pool, were nobody else there?"""
    tasks = sum(number for _, number in least(job.shape))
    return _can_hold(Same(nodes), Same(job.shape), offer, min(count, tasks, CANDIDATES_MAX))


@lru_cache(maxsize=256)
def _can_hold(nodes: Same[tuple[Node, ...]], shape: Same[Shape], offer: PoolOffer, count: int) -> bool:
    job = JobView(0, shape.value, 0, JobState.QUEUED)
    return seat(job, [Room.of((*nodes.value, *_workers("pool", offer, count)))]) is not None


def _smallest_first(pool: PoolCapacity) -> tuple[int, int, int, str]:
    """A job that a small worker can run does not ask for a large one."""
    return pool.offer.gpus, pool.offer.cpus_milli, pool.offer.memory_mib, pool.name


def _workers(name: str, offer: PoolOffer, count: int) -> tuple[Node, ...]:
    """Their names sort after those of nodes, which go first where all else is equal."""
    return tuple(offer.node(f"~{name}~{number:05d}") for number in range(count))


class _Stages:
    """Rooms, each with more in it than the one before; what somebody takes is taken from all of them."""

    def __init__(self, snapshot: Snapshot, plan: Plan, pools: Sequence[PoolCapacity]) -> None:
        self.pool_of: dict[NodeId, str] = {}
        nodes: tuple[Node, ...] = answering(snapshot.nodes)
        coming = {pool.name: _workers(pool.name, pool.offer, pool.under_way) for pool in pools}
        batches = [tuple(node for one in coming.values() for node in one)]
        for pool in pools:
            more = min(pool.more, CANDIDATES_MAX)
            coming[pool.name] = _workers(pool.name, pool.offer, pool.under_way + more)
            batches.append(coming[pool.name][pool.under_way :])
        for name, virtual in coming.items():
            self.pool_of |= dict.fromkeys((node.id for node in virtual), name)
        foreign = frozenset((node.id, device) for node in nodes for device in node.used_outside)
        self._rooms = [Room.of(nodes, foreign=foreign)]
        for batch in filter(None, batches):
            nodes = (*nodes, *batch)
            self._rooms.append(Room.of(nodes, foreign=foreign))
        started = [*taken(_begun(snapshot, plan))]
        for room in self._rooms:
            room.hold(snapshot.holding)
            room.take(started)
        self._refused: set[int] = set()  # shapes by their ids: there is less room for the next of them

    def seat(self, job: JobView) -> set[NodeId]:
        """Where its tasks would go; empty: nowhere."""
        if id(job.shape) in self._refused:
            return set()
        for room in self._rooms:
            places = seat(job, [room])
            if places is not None:
                for other in self._rooms:
                    other.take(places)
                return {place.node for place in places}
        self._refused.add(id(job.shape))
        return set()


def _begun(snapshot: Snapshot, plan: Plan) -> list[Slot]:
    """What the plan gives to those that start now."""
    found: list[Slot] = []
    for action in plan.actions:
        if isinstance(action, Start):
            found += action.slots
        elif isinstance(action, SetSlots):
            known = {slot.number for slot in snapshot.jobs_by_id[action.job].slots}
            found += [slot for slot in action.slots if slot.number not in known]
    return found
