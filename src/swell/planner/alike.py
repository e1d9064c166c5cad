"""Which nodes are alike at this moment?

A cluster has thousands of nodes, and most of them are in one of a few states: empty, full, or with one kind of job on
them. What is asked of one node then has the same answer for all that are in the same state, so fit.py asks it once
for each such class. A class is known by its key: what of a node never changes while a plan is made (its size, its GPUs,
which rules it meets), and what is free there in each of some rooms.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Any

from swell.model.cluster import NodeId
from swell.model.placement import PlacementRules
from swell.planner.room import Room

ClassKey = tuple[Any, ...]  #: what stays as it is, then what is free in each room
ClassNumber = int  #: of a key, among the rooms that are copies of each other: comparing keys takes long


class AlikeNodes:
    """The nodes of some rooms that certain rules allow, by class."""

    def __init__(self, rooms: Sequence[Room], rules: PlacementRules | None, *, tells_gpus: bool) -> None:
        """`tells_gpus`: for tasks that share GPUs, it matters which of them are free."""
        table = rooms[0].table
        self._others = rooms[1:]  # keeps them alive: they are known by their ids
        self._tells_gpus = tells_gpus
        self._seen = [len(room.touched) for room in rooms]
        self._allowed = table.allowed(rules)
        self._fixed: dict[NodeId, Any] = {}  # what stays as it is
        self._classes = rooms[0].classes
        self.numbers, self.names = table.numbers, table.names
        self.members: dict[ClassNumber, list[int]] = {}  #: the numbers of its nodes, ascending; none is empty
        self.changed: list[ClassNumber] = []  #: classes that have gained or lost a node, one entry each time
        self.class_of: dict[NodeId, ClassNumber] = {}
        self.keys: dict[ClassNumber, ClassKey] = {}  #: of all classes that nodes were in
        for node in rooms[0].nodes:
            if node in self._allowed:
                self._fixed[node] = rooms[0].fixed(node)
                which = self.class_of[node] = self._class(node, rooms)
                self.members.setdefault(which, []).append(self.numbers[node])
        for numbers in self.members.values():
            numbers.sort()

    def _class(self, node: NodeId, rooms: Sequence[Room]) -> ClassNumber:
        key = self._key(node, rooms)
        which = self._classes.setdefault(key, len(self._classes))
        self.keys[which] = key
        return which

    def _key(self, node: NodeId, rooms: Sequence[Room]) -> ClassKey:
        tells_gpus = self._tells_gpus
        for room in rooms:
            tells_gpus = tells_gpus or room.has_open(node)
        if len(rooms) == 1:
            return self._fixed[node], rooms[0].state(node, tells_gpus=tells_gpus)
        return self._fixed[node], *[room.state(node, tells_gpus=tells_gpus) for room in rooms]

    def refresh(self, rooms: Sequence[Room]) -> None:
        """After room was taken or given back."""
        seen = [len(room.touched) for room in rooms]
        if seen == self._seen:
            return
        touched: set[NodeId] = set()
        for room, before in zip(rooms, self._seen, strict=True):
            touched.update(room.touched[before:])
        self._seen = seen
        for node in touched:
            if node in self._allowed:
                which, before = self._class(node, rooms), self.class_of[node]
                if which != before:
                    self.class_of[node] = which
                    self._move(self.numbers[node], before, which)

    def _move(self, number: int, before: ClassNumber, after: ClassNumber) -> None:
        numbers = self.members[before]
        if len(numbers) == 1:
            del self.members[before]
        else:
            del numbers[bisect_left(numbers, number)]
        others = self.members.get(after)
        if others is None:
            self.members[after] = [number]
        else:
            insort(others, number)
        self.changed += (before, after)
