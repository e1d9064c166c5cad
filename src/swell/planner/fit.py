"""Where do the tasks of a job fit?

A cluster has thousands of nodes, and thousands of jobs of a few kinds start in one plan. So what was counted for one
job is kept for the next: a `Tally` knows how many tasks of one kind each node holds and which node comes first, and
after somebody has taken room it counts again only where that was. It belongs to the room it was counted in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush, merge
from itertools import chain
from typing import NamedTuple

from swell.model.cluster import NodeId
from swell.model.job import Dimension
from swell.model.placement import Company, PlacementRules
from swell.model.plan import JobView, Place, Places, Shape
from swell.model.resources import NOTHING, Resources
from swell.planner.alike import AlikeNodes, ClassNumber
from swell.planner.room import Room, at, places_on, size

TALLIES_MAX, ROWS_MAX = 16, 300_000  # a room's kinds of tasks at once, or their rows: 0.2 kilobytes each
COPIES_KEPT_MAX = 20_000  # classes of which it is known how many tasks of one size fit
LOOKS_SPARE = 2000  # how many classes that no node is in any more are remembered, in case one comes back
Groups = Sequence[tuple[Resources, int]]  # equal tasks and how many, in rank order
Key = tuple[int | NodeId, ...]


class TaskKind(NamedTuple):
    """Equal tasks, and how their node is chosen."""

    resources: Resources
    tasks: int
    rules: PlacementRules | None = None
    is_steady: bool = False
    copies_max: int = 0  #: the node that holds more is better, up to so many; 0: all that hold them are
    gpus_max: int = 0  #: the same with GPUs

    def is_company(self, company: Company) -> bool:
        return self.rules is not None and self.rules.company is company

    def is_spread(self, room: Room) -> bool:
        """Does it ask for nothing, so that a cluster would hold all of them on one node? They would be in each other's
        way there, as what they take is more than nothing."""
        takes_nothing = self.resources == NOTHING and not self.is_steady
        return takes_nothing and room.table.is_cluster and not self.is_company(Company.TOGETHER)


class _Look(NamedTuple):
    """What holds for every node of a class."""

    copies: int  #: how many of the tasks fit there
    whole: Key | None  #: how good it is for all of them, the least is best; None: it does not hold them all
    is_part: bool = False  #: may it have some of them?


class _Line:
    """Classes of nodes, least key first; keys may change. What is in the heap and no longer true is dropped when it
    comes up."""

    def __init__(self) -> None:
        self._keys: dict[ClassNumber, Key] = {}
        self._heap: list[tuple[Key, int, ClassNumber]] = []
        self._entries = 0  # of equal keys the first that came

    def put(self, which: ClassNumber, key: Key | None) -> None:
        """None: not among them."""
        if key is None:
            self._keys.pop(which, None)
        elif self._keys.get(which) != key:
            self._keys[which] = key
            self._entries += 1
            heappush(self._heap, (key, self._entries, which))

    def first(self) -> ClassNumber | None:
        while self._heap:
            key, _, which = self._heap[0]
            if self._keys.get(which) == key:
                return which
            heappop(self._heap)
        return None


class Tally:
    """How many tasks of one kind fit on each node of some rooms, in every one of them. Nodes that are alike are
    looked at once."""

    def __init__(self, kind: TaskKind, rooms: Sequence[Room]) -> None:
        self._kind = kind
        self._alike = alike(rooms, kind)
        self._seen = len(self._alike.changed)
        self._looks: dict[ClassNumber, _Look] = rooms[0].looks.setdefault((kind, len(rooms)), {})
        self._known = rooms[0].copies_known.setdefault((kind.resources, len(rooms)), {})
        self._by_number = kind.is_steady or kind.is_spread(rooms[0])  # which of two equal nodes comes first
        self._sizes: dict[ClassNumber, int] = {}  # of classes, as they were counted
        self._whole = _Line()  # classes whose nodes hold them all
        self.total = 0
        for which in self._alike.members:
            self._count(which, rooms)

    @property
    def classes(self) -> int:
        return len(self._sizes)

    def refresh(self, rooms: Sequence[Room]) -> None:
        self._alike.refresh(rooms)
        changed = self._alike.changed
        if self._seen < len(changed):
            for which in dict.fromkeys(changed[self._seen :]):
                self._count(which, rooms)
            self._seen = len(changed)

    def _count(self, which: ClassNumber, rooms: Sequence[Room]) -> None:
        """As many nodes as are in the class now."""
        numbers = self._alike.members.get(which, ())
        look = self._looks.get(which)
        if look is None:
            if not numbers:
                return
            look = self._looks[which] = self._look(self._alike.names[numbers[0]], which, rooms)
            if len(self._looks) > 2 * len(self._sizes) + LOOKS_SPARE:
                self._looks = {one: found for one, found in self._looks.items() if self._sizes.get(one) or one == which}
        self.total += look.copies * (len(numbers) - self._sizes.get(which, 0))
        if numbers:
            self._sizes[which] = len(numbers)
        else:
            self._sizes.pop(which, None)
        if look.whole is not None:
            first = None if not numbers else numbers[0] if self._by_number else self._alike.names[numbers[0]]
            self._whole.put(which, None if first is None else (*look.whole, first))

    def _look(self, node: NodeId, which: ClassNumber, rooms: Sequence[Room]) -> _Look:
        kind, table = self._kind, rooms[0].table
        copies = self._copies_on(node, which, rooms)
        if copies > 1 and kind.is_company(Company.APART) and table.nodes[node].labels is not None:
            copies = 1
        if not copies:
            return _Look(0, None)
        if copies < kind.tasks:
            return _Look(copies, None, is_part=not (kind.is_company(Company.TOGETHER) and table.is_cluster))
        if kind.is_spread(rooms[0]):
            return _Look(copies, (-copies,))
        room = at(rooms, node)
        best = -min(copies, kind.copies_max), -min(max(room.on(node).gpus, 0), kind.gpus_max)
        return _Look(copies, best if kind.is_steady else (*best, *room.tightness(node, kind.resources, kind.tasks)))

    def _copies_on(self, node: NodeId, which: ClassNumber, rooms: Sequence[Room]) -> int:
        """Without rules about each other. Known also to tallies of more or fewer such tasks, whoever comes next."""
        (make, _), *states = self._alike.keys[which]
        key = (make, *states)
        copies = self._known.get(key)
        if copies is None:
            if len(self._known) >= COPIES_KEPT_MAX:
                self._known.clear()
            copies = self._known[key] = at(rooms, node).copies(node, self._kind.resources)
        return copies

    def copies(self, node: NodeId) -> int:
        return self._looks[self._alike.class_of[node]].copies

    def best(self) -> NodeId | None:
        """The node for all of them; None: no single one holds them."""
        which = self._whole.first()
        return None if which is None else self._alike.names[self._alike.members[which][0]]

    def spread(self, count: int) -> list[NodeId]:
        """The node of each of so many, always the one that takes most more; together they must fit."""
        left = [(-self.copies(node), node) for node in self.most_first()]
        heapify(left)
        found: list[NodeId] = []
        while len(found) < count:
            negative, node = heappop(left)
            found.append(node)
            if negative < -1:
                heappush(left, (negative + 1, node))
        return sorted(found)

    def parts(self, count: int) -> list[NodeId]:
        """The nodes that hold so many together, or all there are; only where none holds them all."""
        found: list[NodeId] = []
        for node in self._large_last() if self._kind.is_steady else self._most_first_by_name():
            if count <= 0:
                break
            found.append(node)
            count -= self.copies(node)
        return found

    def _large_last(self) -> Iterator[NodeId]:
        """Those that hold some, the largest node first."""
        classes = [reversed(numbers) for which, numbers in self._alike.members.items() if self._looks[which].is_part]
        return map(self._alike.names.__getitem__, merge(*classes, reverse=True))

    def _most_first_by_name(self) -> Iterator[NodeId]:
        """Those that hold some, where most fit first."""
        by_copies: defaultdict[int, list[Iterator[NodeId]]] = defaultdict(list)
        for which, numbers in self._alike.members.items():
            look = self._looks[which]
            if look.is_part:
                by_copies[look.copies].append(map(self._alike.names.__getitem__, numbers))
        return chain.from_iterable(merge(*by_copies[copies]) for copies in sorted(by_copies, reverse=True))

    def most_first(self) -> Iterator[NodeId]:
        """All that hold any, where most fit first, then small nodes first."""
        by_copies: defaultdict[int, list[Sequence[int]]] = defaultdict(list)
        for which, numbers in self._alike.members.items():
            by_copies[self._looks[which].copies].append(numbers)
        in_order = (merge(*by_copies[copies]) for copies in sorted(by_copies, reverse=True) if copies)
        return map(self._alike.names.__getitem__, chain.from_iterable(in_order))

    def small_first(self) -> Iterator[NodeId]:
        """All that hold any."""
        classes = [numbers for which, numbers in self._alike.members.items() if self._looks[which].copies]
        return map(self._alike.names.__getitem__, merge(*classes))


def alike(rooms: Sequence[Room], kind: TaskKind) -> AlikeNodes:
    """The classes of nodes for such tasks, as things are now."""
    tells_gpus, first = kind.resources.is_share, rooms[0]
    rules = kind.rules if first.table.allowed(kind.rules) is not first.table.nodes else None
    key = rules, tells_gpus, *map(id, rooms[1:])
    found = first.alike.pop(key, None)
    if found is None:
        found = AlikeNodes(rooms, rules, tells_gpus=tells_gpus)
        if len(first.alike) >= TALLIES_MAX:
            del first.alike[next(iter(first.alike))]
    else:
        found.refresh(rooms)
    first.alike[key] = found  # the last one used is the last to go
    return found


def tally(kind: TaskKind, rooms: Sequence[Room]) -> Tally:
    """As things are now."""
    kept = rooms[0].tallies
    key = (kind, *map(id, rooms[1:]))
    found = kept.pop(key, None)
    if found is None:
        found = Tally(kind, rooms)
        if len(kept) >= max(TALLIES_MAX, ROWS_MAX // max(1, found.classes)):
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
    kinds = _kinds(shape, least_width(shape) if width is None else width, rooms[0], is_steady=is_steady)
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


def _kinds(shape: Shape, width: int, room: Room, *, is_steady: bool) -> Sequence[TaskKind]:
    """By role; the same objects for the same shape."""
    key = id(shape), width, is_steady
    known = room.kinds.get(key)
    if known is None:  # with the shape, so that no other one gets its id
        groups = shape.tasks_at(width)
        kinds = [TaskKind(*group, shape.rules_of(role), is_steady) for role, group in enumerate(groups)]
        known = room.kinds[key] = shape, kinds
    return known[1]


def most_tasks(shape: Shape, rooms: Sequence[Room]) -> int:
    """A bound on its width in these rooms, as far as the number of tasks goes; cheaper than to look for places."""
    if shape.dimension is not Dimension.TASKS or shape.is_split:
        return shape.width_max
    return tally(TaskKind(shape.roles[0][0], 1, shape.rules_of(0)), rooms).total


def least_width(shape: Shape) -> int:
    """What it must have to start: one of an array's tasks."""
    return 1 if shape.is_array else shape.width_min


def _choice(kind: TaskKind, rooms: Sequence[Room]) -> tuple[int, ...]:
    gpus, cpus_milli, memory_mib = size(kind.resources)
    return len(rooms[0].table.allowed(kind.rules)), -gpus, -cpus_milli, -memory_mib


def _places(kind: TaskKind, rooms: Sequence[Room]) -> list[Place] | None:
    """Equal tasks on one node if one holds them all, else on the largest."""
    counted = tally(kind, rooms)
    if counted.total < kind.tasks:
        return None
    if kind.tasks > 1 and kind.is_spread(rooms[0]):
        return [Place(node, kind.resources) for node in counted.spread(kind.tasks)]
    best = counted.best()
    nodes = counted.parts(kind.tasks) if best is None else [best]
    chosen: list[Place] = []
    for node in nodes:
        copies = counted.copies(node)
        count = min(copies, kind.tasks - len(chosen))
        if chosen and count < copies:
            node = _tightest(kind, count, rooms, chosen) or node
        chosen += places_on(rooms, node, kind.resources, count, is_steady=kind.is_steady)
    return chosen if len(chosen) == kind.tasks else None


def _tightest(kind: TaskKind, count: int, rooms: Sequence[Room], chosen: list[Place]) -> NodeId | None:
    """The node for the last few of many tasks, which do not fill one; None: one that is used already."""
    if kind.is_steady:
        return None
    best = tally(kind._replace(tasks=count), rooms).best()
    return None if any(place.node == best for place in chosen) else best


def beside(shape: Shape, node: NodeId, rooms: Sequence[Room], *, count: int, held: Places, is_steady: bool) -> Places:
    """Up to so many more of an array's tasks on one node. `held`: those it has, wherever they are."""
    resources, rules = shape.roles[0][0], shape.rules_of(0)
    table = rooms[0].table
    if node not in table.allowed(rules):
        return ()
    if rules is not None and rules.company is Company.APART and table.nodes[node].labels is not None:
        count = min(count, 1 - sum(place.node == node for place in held))
    count = min(count, at(rooms, node).copies(node, resources))
    return tuple(places_on(rooms, node, resources, count, is_steady=is_steady)) if count > 0 else ()


def nodes_for_more(job: JobView, first: Places, rooms: Sequence[Room], *, is_steady: bool = False) -> list[NodeId]:
    """On which nodes may an array have further tasks, in which order? Where it is, then where most of them fit.

    Not where its attempt has ended: that worker has left it, or was lost.
    """
    kind = TaskKind(job.shape.roles[0][0], 1, job.shape.rules_of(0), is_steady)
    counted, table = tally(kind, rooms), rooms[0].table
    present = dict.fromkeys(place.node for place in first)
    together = kind.is_company(Company.TOGETHER) and table.is_cluster
    others = () if together else counted.small_first() if is_steady else counted.most_first()
    in_order = (*present, *(node for node in others if node not in present))
    return [node for node in in_order if node not in job.ended_on]


def ranks(groups: Groups) -> list[Resources]:
    """What each task takes, by rank."""
    return [resources for resources, count in groups for _ in range(count)]
