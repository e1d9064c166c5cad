"""How much of each node is free?

A `Room` is a private, mutable sheet of one planning run. Several sheets are kept side by side (what nobody
holds, what nobody ahead has a claim to, what is left once the first waiting job has started); a task that
must fit on several of them is placed on what is there in every one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from swell.model.cluster import Node, NodeId
from swell.model.plan import Slot
from swell.model.resources import Resources

Groups = Sequence[tuple[Resources, int]]  # equal tasks and how many, in rank order
Places = tuple[tuple[NodeId, Resources], ...]  # where each task goes and what it takes there, in rank order


class Room:
    """Free resources by node, small nodes first. Below zero where more was promised than is there yet."""

    def __init__(self, free: dict[NodeId, Resources]) -> None:
        self._free = free

    @classmethod
    def of(cls, nodes: Iterable[Node]) -> Room:
        in_order = sorted(nodes, key=lambda node: (*size(node.capacity), node.id))
        return cls({node.id: node.capacity for node in in_order})

    def copy(self) -> Room:
        return Room(dict(self._free))

    def on(self, node: NodeId) -> Resources:
        return self._free[node]

    def has(self, slot: Slot) -> bool:
        return slot.node in self._free and slot.resources.fits_in(self._free[slot.node])

    def take(self, places: Places) -> None:
        for node, resources in places:
            if node in self._free:  # a node that went away holds nothing we could plan with
                self._free[node] -= resources

    def give(self, places: Places) -> None:
        for node, resources in places:
            if node in self._free:
                self._free[node] += resources

    @property
    def nodes(self) -> Iterable[NodeId]:
        return self._free.keys()


def size(free: Resources) -> tuple[int, int, int]:
    """Nodes are compared by what is scarcest first."""
    return free.gpus, free.cpus_milli, free.memory_mib


def taken(slots: Iterable[Slot]) -> Places:
    return tuple((slot.node, slot.resources) for slot in slots)


def ranks(groups: Groups) -> list[Resources]:
    """What each task takes, by rank."""
    return [resources for resources, count in groups for _ in range(count)]


def in_all(rooms: Sequence[Room]) -> dict[NodeId, Resources]:
    """What is there in every room."""
    first, *others = rooms
    free = {node: first.on(node) for node in first.nodes}
    for room in others:
        for node in free:
            free[node] = free[node].least(room.on(node))
    return free


def find(groups: Groups, rooms: Sequence[Room], *, is_steady: bool = False) -> Places | None:
    """A place for every task, or None when they do not all fit in every room.

    Tasks that start now go where they fit tightest. A *steady* choice does not look at how full a node is, so
    that room kept for a job stays where it is while others start beside it: planning twice changes nothing.
    For equal tasks the answer None is exact; the roles of a gang are placed one by one, largest first, which
    can miss a way to fit them all.
    """
    free = in_all(rooms)
    found: list[list[NodeId]] = [[] for _ in groups]
    for role in sorted(range(len(groups)), key=lambda role: size(groups[role][0]), reverse=True):
        resources, count = groups[role]
        nodes = _spread(resources, count, free, is_steady=is_steady)
        if nodes is None:
            return None
        for node in nodes:
            free[node] -= resources
        found[role] = nodes
    return tuple(zip(chain.from_iterable(found), ranks(groups), strict=True))


def _spread(resources: Resources, count: int, free: dict[NodeId, Resources], *, is_steady: bool) -> list[NodeId] | None:
    """Equal tasks on one node if one holds them all, else on the largest."""
    copies = {node: resources.copies_in(room) for node, room in free.items()}
    whole = [node for node, n in copies.items() if n >= count]
    if whole:
        return [whole[0] if is_steady else min(whole, key=lambda node: (*size(free[node]), node))] * count
    chosen: list[NodeId] = []
    for node in reversed(copies) if is_steady else sorted(copies, key=lambda node: (-copies[node], node)):
        chosen += [node] * min(copies[node], count - len(chosen))
        if len(chosen) == count:
            return chosen
    return None
