"""Where do the tasks of a job fit?

A cluster has thousands of nodes, and thousands of jobs of a few kinds start in one plan. So what was counted for one
job is kept for the next: a `Tally` knows how many tasks of one kind each node holds and which node comes first, and
after somebody has taken room it counts again only where that was. It belongs to the sheet it was counted on.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import NamedTuple

from swell.model.cluster import NodeId
from swell.model.placement import Company, Rules
from swell.model.plan import Place, Places, Shape
from swell.model.resources import Resources
from swell.planner.room import Room, at, size

TALLIES_MAX = 16  # a sheet's kinds of tasks at once; each costs about two megabytes with 5,000 nodes
Groups = Sequence[tuple[Resources, int]]  # equal tasks and how many, in rank order
Key = tuple[int | NodeId, ...]  # ends in the node, so no two are equal


class Kind(NamedTuple):
    """Equal tasks, and how their node is chosen."""

    resources: Resources
    tasks: int
    rules: Rules | None = None
    is_steady: bool = False
    copies_max: int = 0  #: the node that holds more is better, up to so many; 0: all that hold them are
    gpus_max: int = 0  #: the same with GPUs

    def is_company(self, company: Company) -> bool:
        return self.rules is not None and self.rules.company is company


class _Line:
    """Nodes, least key first; keys may change. What is in the heap and no longer true is dropped when it comes up."""

    def __init__(self) -> None:
        self._keys: dict[NodeId, Key] = {}
        self._heap: list[Key] = []

    def fill(self, keys: dict[NodeId, Key]) -> None:
        self._keys, self._heap = keys, list(keys.values())
        heapify(self._heap)

    def put(self, node: NodeId, key: Key | None) -> None:
        """None: not among them."""
        if key is None:
            self._keys.pop(node, None)
        elif self._keys.get(node) != key:
            self._keys[node] = key
            heappush(self._heap, key)

    def first(self) -> NodeId | None:
        while self._heap:
            node = str(self._heap[0][-1])
            if self._keys.get(node) == self._heap[0]:
                return node
            heappop(self._heap)
        return None

    def upto(self, count: int, copies: dict[NodeId, int]) -> list[NodeId]:
        """The first that hold so many together, or all there are."""
        found: dict[NodeId, Key] = {}
        while count > 0 and (node := self.first()) is not None:
            key = heappop(self._heap)
            if node not in found:  # a key that came back is in the heap twice
                found[node] = key
                count -= copies[node]
        for key in found.values():
            heappush(self._heap, key)
        return list(found)


class Tally:
    """How many tasks of one kind fit on each node of some rooms, in every one of them."""

    def __init__(self, kind: Kind, rooms: Sequence[Room]) -> None:
        self._kind = kind
        self._others = rooms[1:]  # keeps them alive: they are known by their ids
        self._allowed = rooms[0].ground.allowed(kind.rules)
        self._whole, self._parts = _Line(), _Line()  # nodes that hold them all, and that hold some
        self._seen = [len(room.touched) for room in rooms]
        rows = [(node, *self._look(node, rooms)) for node in rooms[0].nodes if node in self._allowed]
        self.copies = {node: copies for node, copies, _, _ in rows}
        self.total = sum(self.copies.values())
        self._whole.fill({node: key for node, _, key, _ in rows if key is not None})
        self._parts.fill({node: key for node, _, _, key in rows if key is not None})

    def refresh(self, rooms: Sequence[Room]) -> None:
        changed = {node for room, seen in zip(rooms, self._seen, strict=True) for node in room.touched[seen:]}
        self._seen = [len(room.touched) for room in rooms]
        for node in changed:
            if node in self._allowed:
                copies, whole, part = self._look(node, rooms)
                self.total += copies - self.copies[node]
                self.copies[node] = copies
                self._whole.put(node, whole)
                self._parts.put(node, part)

    def _look(self, node: NodeId, rooms: Sequence[Room]) -> tuple[int, Key | None, Key | None]:
        """How many fit there, and its keys among those that hold all and some of them."""
        kind, room = self._kind, at(rooms, node)
        copies = room.copies(node, kind.resources)
        ground = room.ground
        if copies > 1 and kind.is_company(Company.APART) and ground.nodes[node].labels is not None:
            copies = 1
        if not copies:
            return 0, None, None
        number = ground.numbers[node]
        if copies < kind.tasks:
            is_part = not (kind.is_company(Company.TOGETHER) and ground.is_cluster)
            return copies, None, (-number if kind.is_steady else -copies, node) if is_part else None
        best = -min(copies, kind.copies_max), -min(max(room.on(node).gpus, 0), kind.gpus_max)
        tightness = (number,) if kind.is_steady else room.tightness(node, kind.resources, kind.tasks)
        return copies, (*best, *tightness, node), None

    def best(self) -> NodeId | None:
        """The node for all of them; None: no single one holds them."""
        return self._whole.first()

    def parts(self, count: int) -> list[NodeId]:
        """The nodes that hold so many together, or all there are; only where none holds them all."""
        return self._parts.upto(count, self.copies)


def tally(kind: Kind, rooms: Sequence[Room]) -> Tally:
    """As things are now."""
    kept = rooms[0].tallies
    key = (kind, *map(id, rooms[1:]))
    found = kept.pop(key, None)
    if found is None:
        found = Tally(kind, rooms)
        if len(kept) >= TALLIES_MAX:
            del kept[next(iter(kept))]
    else:
        found.refresh(rooms)
    kept[key] = found  # the last one used is the last to go
    return found


def find(shape: Shape, rooms: Sequence[Room], *, width: int | None = None, is_steady: bool = False) -> Places | None:
    """A place for every task, or None when they do not all fit in every room. Without a width: the least to start.

    Tasks that start now go where they fit tightest. A *steady* choice does not look at how full a node is, so
    that room kept for a job stays where it is while others start beside it: planning twice changes nothing.
    For equal tasks that share no GPU the answer None is exact; the roles of a gang are placed one by one, those with
    the fewest nodes to choose from first, then the largest, which can miss a way to fit them all.
    """
    groups = shape.tasks_at(least_width(shape) if width is None else width)
    kinds = [Kind(*group, shape.rules_of(role), is_steady) for role, group in enumerate(groups)]
    if len(kinds) == 1:
        places = _places(kinds[0], rooms)
        return None if places is None else tuple(places)
    found: list[list[Place]] = [[] for _ in kinds]
    for role in sorted(range(len(kinds)), key=lambda role: _choice(kinds[role], rooms)):
        places = _places(kinds[role], rooms)
        if places is None:
            break
        found[role] = places
        for room in rooms:
            room.take(places)
    for room in rooms:
        room.give(chain.from_iterable(found))
    return None if places is None else tuple(chain.from_iterable(found))


def least_width(shape: Shape) -> int:
    """What it must have to start: one of an array's tasks."""
    return 1 if shape.is_array else shape.width_min


def _choice(kind: Kind, rooms: Sequence[Room]) -> tuple[int, ...]:
    gpus, cpus_milli, memory_mib = size(kind.resources)
    return len(rooms[0].ground.allowed(kind.rules)), -gpus, -cpus_milli, -memory_mib


def _places(kind: Kind, rooms: Sequence[Room]) -> list[Place] | None:
    """Equal tasks on one node if one holds them all, else on the largest."""
    counted = tally(kind, rooms)
    if counted.total < kind.tasks:
        return None
    best = counted.best()
    nodes = counted.parts(kind.tasks) if best is None else [best]
    chosen: list[Place] = []
    for node in nodes:
        count = min(counted.copies[node], kind.tasks - len(chosen))
        chosen += at(rooms, node).place(node, kind.resources, count, is_steady=kind.is_steady)
    return chosen if len(chosen) == kind.tasks else None


def beside(shape: Shape, node: NodeId, rooms: Sequence[Room], *, count: int, held: int, is_steady: bool) -> Places:
    """Up to so many more of an array's tasks on the node where it holds some."""
    resources, rules = shape.roles[0][0], shape.rules_of(0)
    ground = rooms[0].ground
    if node not in ground.allowed(rules):
        return ()
    if rules is not None and rules.company is Company.APART and ground.nodes[node].labels is not None:
        count = min(count, 1 - held)
    room = at(rooms, node)
    count = min(count, room.copies(node, resources))
    return tuple(room.place(node, resources, count, is_steady=is_steady)) if count > 0 else ()


def ranks(groups: Groups) -> list[Resources]:
    """What each task takes, by rank."""
    return [resources for resources, count in groups for _ in range(count)]
