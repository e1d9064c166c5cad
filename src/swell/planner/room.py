"""How much of each node is free?

A `Room` is a private, mutable account of one planning run. Several accounts are kept side by side (what nobody
holds, what nobody ahead has a claim to, what is left once the first waiting job has started); a task that
must fit on several of them is placed on what is there in every one (`at`).

GPUs are counted, and those of tasks that run or start now have names, too (place.py); for one that waits any whole one
will do. A task that takes a *share* of a GPU's memory always names its GPU: that one is *open* from then on, no longer
counted among the whole ones, and counted again when the last share of it is given back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from swell.model.cluster import DeviceId, Node, NodeId
from swell.model.plan import JobView, Place, Places, Slot
from swell.model.resources import Resources
from swell.planner.mix import Mix, NodeState
from swell.planner.nodes import Gpus, NodeTable

if TYPE_CHECKING:
    from swell.planner.alike import AlikeNodes
    from swell.planner.fit import Tally


class _Open(NamedTuple):
    """A GPU that is shared."""

    free_mib: int  #: below zero where more is used than was promised
    shares: int


class _Shared(NamedTuple):
    """Which GPUs of one node are open, and which are known to be held whole. Never changed, but replaced."""

    open: Mapping[DeviceId, _Open]
    whole: frozenset[DeviceId]


NOTHING_SHARED = _Shared({}, frozenset())


class Room:
    """Free resources by node, small nodes first. Below zero where more was promised than is there yet."""

    def __init__(
        self,
        table: NodeTable,
        free: dict[NodeId, Resources],
        tasks: dict[NodeId, int],
        shared: dict[NodeId, _Shared],
        mix: Mix | None = None,
    ) -> None:
        self.table = table
        self._mix = mix  # who may come next; None: it makes no difference
        self._free = free
        self._tasks = tasks  # how many more it takes, of nodes that have a limit
        self._gpus_by_node = table.gpus_by_node
        self._shared = shared  # of nodes that have GPUs
        self._states: dict[NodeId, NodeState] = {}  # as far as they were asked for since anything changed there
        self.touched: list[NodeId] = []  #: where anything was given or taken, one entry each time
        self.tallies: dict[object, Tally] = {}  #: what fit.py has counted here
        self.alike: dict[object, AlikeNodes] = {}  #: and which nodes it found alike
        self.classes: dict[Any, int] = {}  #: their numbers, the same in all copies of this room
        self.kinds: dict[Any, Any] = {}  #: of tasks that a shape has at a width, known to its copies, too
        self.looks: dict[object, dict[Any, Any]] = {}  #: and what it knows of each class, with the copies of this room
        self.copies_known: dict[object, dict[Any, int]] = {}  #: and of each class, whoever may come next

    @classmethod
    def of(cls, nodes: Sequence[Node], *, foreign: Gpus | None = None, mix: Mix | None = None) -> Room:
        """What the nodes offer, without `foreign` GPUs; None: as if nobody outside Swell used any."""
        table = NodeTable.of(nodes, foreign)
        here = table.nodes.values()
        free = {one.id: _offer(one, len(table.gpus_by_node[one.id].sizes)) for one in here}
        tasks = {one.id: one.tasks_max for one in here if one.tasks_max is not None}
        return cls(table, free, tasks, dict.fromkeys((one.id for one in here if one.devices), NOTHING_SHARED), mix)

    def copy(self) -> Room:
        found = Room(self.table, dict(self._free), dict(self._tasks), dict(self._shared), self._mix)
        found.classes, found.kinds = self.classes, self.kinds
        found.looks, found.copies_known = self.looks, self.copies_known
        return found

    def knowing(self, mix: Mix | None) -> Room:
        """The same account, for who may come next now."""
        self._mix = mix
        self._states.clear()
        self.tallies.clear()
        self.alike.clear()
        self.looks = {}
        return self

    def only(self, node: NodeId) -> Room:
        """An account of its own with one node."""
        tasks = {node: self._tasks[node]} if node in self._tasks else {}
        shared = {node: self._shared[node]} if node in self._shared else {}
        return Room(self.table, {node: self._free[node]}, tasks, shared, self._mix)

    def on(self, node: NodeId) -> Resources:
        """Its CPUs, memory and whole GPUs."""
        return self._free[node]

    def largest_share_mib(self, node: NodeId) -> int:
        """The most memory one GPU there has to give."""
        wholes = self._gpus_by_node[node].sizes.values() if self._free[node].gpus > 0 else ()
        return max([*self._sharable(node).values(), *wholes], default=0)

    def takes_more(self, node: NodeId) -> bool:
        """As far as the number of tasks goes."""
        return self._tasks.get(node, 1) > 0

    def would_be_whole(self, places: Places, sums: Sequence[tuple[NodeId, Resources, int]]) -> bool:
        """Would nothing be missing, if they were there, too? `sums`: the same places, by node.

        Of nodes that are out of reach nothing is known: there everything is as it is.
        """
        if self._may_share(places, sums):
            self.take(places)  # GPUs that are shared count together with those that are held whole
            is_whole = all(self._has_nothing_missing(node, NO_GPU, 0) for node, _, _ in sums)
            self.give(places)
            return is_whole
        return all(self._has_nothing_missing(*one) for one in sums)

    def _may_share(self, places: Places, sums: Sequence[tuple[NodeId, Resources, int]]) -> bool:
        """Is any of these, or a GPU of their nodes, a shared one?"""
        for node, _, _ in sums:
            if self.has_open(node):
                return True
        known = NO_GPU
        for place in places:
            if place.resources is not known:
                known = place.resources
                if known.is_share:
                    return True
        return False

    def _has_nothing_missing(self, node: NodeId, taken: Resources, tasks: int) -> bool:
        free = self._free.get(node)
        if free is None:
            return True
        is_there = free.gpus >= taken.gpus and free.cpus_milli >= taken.cpus_milli
        return is_there and free.memory_mib >= taken.memory_mib and self._tasks.get(node, tasks) >= tasks

    def has(self, slot: Slot) -> bool:
        """As it stands: its own GPUs, not any."""
        if slot.node not in self._free or not slot.resources.fits_in(self._free[slot.node]):
            return False
        if not self.takes_more(slot.node):
            return False
        if slot.resources.gpus:
            shared = self._shared[slot.node]
            return not any(device in shared.open or device in shared.whole for device in slot.devices)
        return (
            not slot.resources.is_share or self._free_mib(slot.node, slot.devices[0]) >= slot.resources.gpu_memory_mib
        )

    def take(self, places: Iterable[Place]) -> None:
        for node, resources, count, devices in _alike(places):
            if node in self._free:  # a node that went away holds nothing we could plan with
                self._free[node] -= resources if count == 1 else resources.times(count)
                self._note(node, -count)
                if devices and node in self._shared:  # it may have lost its last GPU
                    self._take_devices(node, resources, devices)

    def hold(self, jobs: Iterable[JobView]) -> None:
        """Take all that they hold, which may be tens of thousands of tasks: it is added up before it is taken."""
        cpus: defaultdict[NodeId, int] = defaultdict(int)
        memory: defaultdict[NodeId, int] = defaultdict(int)
        gpus: defaultdict[NodeId, int] = defaultdict(int)
        tasks: defaultdict[NodeId, int] = defaultdict(int)
        for job in jobs:
            for node, resources, count in job.sums:
                cpus[node] += resources.cpus_milli
                memory[node] += resources.memory_mib
                gpus[node] += resources.gpus
                tasks[node] += count
            for place in job.places:
                if place.devices and place.node in self._shared:
                    self._take_devices(place.node, place.resources, place.devices)
        for node in tasks.keys() & self._free.keys():
            self._free[node] -= Resources(cpus[node], memory[node], gpus[node])
            self._note(node, -tasks[node])

    def give(self, places: Iterable[Place]) -> None:
        for node, resources, count, devices in _alike(places):
            if node in self._free:
                self._free[node] += resources if count == 1 else resources.times(count)
                self._note(node, +count)
                if devices and node in self._shared:
                    self._give_devices(node, resources, devices)

    def _note(self, node: NodeId, more: int) -> None:
        self.touched.append(node)
        self._states.pop(node, None)
        if node in self._tasks:
            self._tasks[node] += more

    @property
    def nodes(self) -> Iterable[NodeId]:
        return self._free.keys()

    def copies(self, node: NodeId, resources: Resources) -> int:
        """How many such tasks fit there side by side; one that wants nothing fits without end."""
        if resources.is_share:
            return self._share_copies(node, resources)
        if resources.gpus and resources.gpu_memory_mib > self._gpus_by_node[node].least_mib:
            return 0
        return self._copies(node, resources)

    def _share_copies(self, node: NodeId, resources: Resources) -> int:
        if node not in self._shared:
            return 0
        wanted_mib, shared, free = resources.gpu_memory_mib, self._shared[node], self._free[node]
        on_open = sum(left // wanted_mib for left in self._sharable(node).values() if left > 0)
        sizes = self._gpus_by_node[node].sizes
        unopened = [mib for device, mib in sizes.items() if device not in shared.open and device not in shared.whole]
        on_whole = sum([mib // wanted_mib for mib in unopened if mib >= wanted_mib][: max(free.gpus, 0)])
        return min(self._copies(node, resources), on_open + on_whole)

    def _copies(self, node: NodeId, resources: Resources) -> int:
        """By CPUs, memory, whole GPUs and the number of tasks."""
        copies = resources.copies_in(self._free[node])
        return max(0, min(copies, self._tasks[node])) if node in self._tasks else copies

    def fixed(self, node: NodeId) -> tuple[object, ...]:
        """What of a node stays as it is and matters to where tasks go; alike.py."""
        return self.table.makes[node], () if self._mix is None else self._mix.rules_met(self.table, node)

    def has_open(self, node: NodeId) -> bool:
        shared = self._shared.get(node)
        return shared is not None and bool(shared.open)

    def state(self, node: NodeId, *, tells_gpus: bool) -> tuple[object, ...]:
        """What is free there, in a way that can be compared with other nodes; `tells_gpus`: and of which GPUs."""
        free = self._free[node]
        counts = free.cpus_milli, free.memory_mib, free.gpus, self._tasks.get(node)
        if not tells_gpus or node not in self._shared:
            return counts
        shared, numbers = self._shared[node], self._gpus_by_node[node].numbers
        opened = frozenset((numbers.get(device, device), *one) for device, one in shared.open.items())
        return *counts, opened, frozenset(numbers.get(device, device) for device in shared.whole)

    def shares(self, node: NodeId, resources: Resources, count: int, *, is_steady: bool) -> list[Place]:
        """Up to so many shares, each where the GPU is left with least; a steady choice takes the first that fits."""
        count = min(count, self._copies(node, resources))
        if node not in self._shared:
            return []
        trial = self.only(node)
        found: list[Place] = []
        while len(found) < count:
            device = trial._best_gpu(node, resources.gpu_memory_mib, is_steady=is_steady)
            if device is None:
                break
            found.append(Place(node, resources, (device,)))
            trial.take(found[-1:])
        return found

    def tightness(self, node: NodeId, resources: Resources, count: int) -> tuple[int, ...]:
        """How well they fit there, what matters most first; the least is best.

        First what others can use less of afterwards, then how much would be left.
        """
        if not resources.is_share:
            return self._spoiled(node, resources, count), *size(self._free[node])
        devices = self._devices_of_shares(node, resources, count)
        opened = set(devices) - self._open_on(node).keys()
        left_mib = min(self._free_mib(node, device) for device in devices)
        return self._spoiled(node, resources, count, devices), len(opened), left_mib, *size(self._free[node])

    def _devices_of_shares(self, node: NodeId, resources: Resources, count: int) -> list[DeviceId]:
        if count > 1:
            return [place.devices[0] for place in self.shares(node, resources, count, is_steady=False)]
        device = self._best_gpu(node, resources.gpu_memory_mib, is_steady=False)
        return [] if device is None else [device]

    def _spoiled(self, node: NodeId, resources: Resources, count: int, shared: Sequence[DeviceId] = ()) -> int:
        """By how much more of the node's GPUs would be wasted, could those to come not use them; see mix.py."""
        if self._mix is None or node not in self._shared:
            return 0
        before = self._state(node, self._mix)
        if len(shared) > 1:
            trial = self.only(node)
            trial.take([Place(node, resources, (device,)) for device in shared])
            return self._mix.growth(before, trial._state(node, self._mix))
        after = before.after(resources, count)
        if shared and shared[0] in self._open_on(node):
            after = after.with_share(self._free_mib(node, shared[0]), resources.gpu_memory_mib)
        elif shared:
            after = after.with_opened(self._gpus_by_node[node].sizes[shared[0]], resources.gpu_memory_mib)
        return self._mix.growth(before, after)

    def _state(self, node: NodeId, mix: Mix) -> NodeState:
        found = self._states.get(node)
        if found is None:
            free, sizes = self._free[node], self._gpus_by_node[node].sizes
            shared = tuple(sorted(self._sharable(node).values())) if self._open_on(node) else ()
            largest_mib, met = max(sizes.values(), default=0), mix.rules_met(self.table, node)
            found = NodeState(free.cpus_milli, free.memory_mib, max(free.gpus, 0), largest_mib, shared, met)
            self._states[node] = found
        return found

    def _take_devices(self, node: NodeId, resources: Resources, devices: Devices) -> None:
        """Of one share, or of any number of tasks with whole GPUs."""
        if resources.is_share:
            self._take_share(node, devices[0], resources.gpu_memory_mib)
        else:
            shared = self._shared[node]
            self._shared[node] = _Shared(shared.open, shared.whole.union(devices))
            if shared.open:
                self._free[node] += self._open_among(node, devices)

    def _give_devices(self, node: NodeId, resources: Resources, devices: Devices) -> None:
        if resources.is_share:
            self._give_share(node, devices[0], resources.gpu_memory_mib)
        else:
            shared = self._shared[node]
            self._shared[node] = _Shared(shared.open, shared.whole.difference(devices))
            if shared.open:
                self._free[node] -= self._open_among(node, devices)

    # -- one GPU, several tasks --------------------------------------------------------------------------------

    def _open_on(self, node: NodeId) -> Mapping[DeviceId, _Open]:
        return self._shared[node].open if node in self._shared else {}

    def _open_among(self, node: NodeId, devices: Devices) -> Resources:
        """GPUs that are held whole, and somebody who waits has a claim to a share of: they are missing only once."""
        opened = self._open_on(node)
        return Resources(gpus=sum(device in opened for device in devices))

    def _sharable(self, node: NodeId) -> dict[DeviceId, int]:
        """What open GPUs have left. Where more whole ones are promised than there are, the emptiest are closed."""
        whole = self._shared[node].whole if node in self._shared else ()
        found = {device: one.free_mib for device, one in self._open_on(node).items() if device not in whole}
        missing = -self._free[node].gpus
        if missing > 0:
            fullest_first = sorted(found, key=lambda device: (found[device], device))
            return {device: found[device] for device in fullest_first[: max(0, len(found) - missing)]}
        return found

    def _best_gpu(self, node: NodeId, mib: int, *, is_steady: bool) -> DeviceId | None:
        """An open one before a whole one: what is whole stays whole for those who need that.

        A steady choice does not look at that: others may open one meanwhile.
        """
        fitting = {device: free_mib for device, free_mib in self._sharable(node).items() if free_mib >= mib}
        if fitting and not is_steady:
            return min(fitting, key=lambda device: (fitting[device], device))
        if self._free[node].gpus > 0:
            sizes, shared = self._gpus_by_node[node].sizes, self._shared[node]
            unopened = sizes.keys() - shared.open.keys() - shared.whole
            fitting |= {device: sizes[device] for device in unopened if sizes[device] >= mib}
        return next((device for device in self._gpus_by_node[node].sizes if device in fitting), None)

    def _free_mib(self, node: NodeId, device: DeviceId) -> int:
        if node not in self._shared:
            return 0
        shared = self._shared[node]
        if device in shared.open:
            return self._sharable(node).get(device, 0)
        is_whole = self._free[node].gpus > 0 and device not in shared.whole
        return self._gpus_by_node[node].sizes.get(device, 0) if is_whole else 0

    def _take_share(self, node: NodeId, device: DeviceId, mib: int) -> None:
        shared = self._shared[node]
        before = shared.open.get(device)
        if before is None:
            before = _Open(self._gpus_by_node[node].sizes.get(device, 0), 0)
            self._free[node] -= NO_GPU if device in shared.whole else ONE_GPU
        after = _Open(before.free_mib - mib, before.shares + 1)
        self._shared[node] = shared._replace(open={**shared.open, device: after})

    def _give_share(self, node: NodeId, device: DeviceId, mib: int) -> None:
        shared = self._shared[node]
        before = shared.open[device]
        opened = {**shared.open, device: _Open(before.free_mib + mib, before.shares - 1)}
        if before.shares == 1:
            del opened[device]
            self._free[node] += NO_GPU if device in shared.whole else ONE_GPU
        self._shared[node] = shared._replace(open=opened)

    def _narrow(self, other: Room) -> None:
        """Keep what is there in the other room, too."""
        for node, free in self._free.items():
            theirs = other._free[node]
            if node in self._shared:
                free, theirs = self._narrow_gpus(other, node, free, theirs)
            self._free[node] = free.least(theirs)
            if node in self._tasks:
                self._tasks[node] = min(self._tasks[node], other._tasks[node])

    def _narrow_gpus(
        self, other: Room, node: NodeId, free: Resources, theirs: Resources
    ) -> tuple[Resources, Resources]:
        """A GPU that is open in one of them is open; where it was not, there is one whole one less."""
        mine, their = self._shared[node], other._shared[node]
        if not mine.open and not their.open:
            if not mine.whole >= their.whole:
                self._shared[node] = mine._replace(whole=mine.whole | their.whole)
            return free, theirs
        both = {device: self._least_share(other, node, device) for device in {*mine.open, *their.open}}
        free -= Resources(gpus=len(both.keys() - mine.open.keys() - mine.whole))
        theirs -= Resources(gpus=len(both.keys() - their.open.keys() - their.whole))
        self._shared[node] = _Shared(both, mine.whole | their.whole)
        return free, theirs

    def _least_share(self, other: Room, node: NodeId, device: DeviceId) -> _Open:
        return _Open(min(self._free_mib(node, device), other._free_mib(node, device)), 1)


NO_GPU, ONE_GPU = Resources(), Resources(gpus=1)
Devices = tuple[DeviceId, ...]


def _alike(places: Iterable[Place]) -> Iterable[tuple[NodeId, Resources, int, Devices]]:
    """Equal tasks beside each other on one node count together; shares one by one. What they take, how many, where."""
    if isinstance(places, tuple) and len(places) == 1:
        [(node, resources, devices)] = places
        return ((node, resources, 1, devices),)
    return _counted(places)


def _counted(places: Iterable[Place]) -> Iterator[tuple[NodeId, Resources, int, Devices]]:
    node, resources, count, devices = "", NO_GPU, 0, ()  # type: tuple[NodeId, Resources, int, Devices]
    for place in places:
        if count and place.resources is resources and place.node == node and resources.gpus:
            count, devices = count + 1, devices + place.devices
            continue
        if count:
            yield node, resources, count, devices
        (node, resources, devices), count = place, 1
    if count:
        yield node, resources, count, devices


def _offer(node: Node, gpus: int) -> Resources:
    return node.capacity if gpus == len(node.devices) else Resources(node.cpus_milli, node.memory_mib, gpus)


def size(free: Resources) -> tuple[int, int, int]:
    """Nodes are compared by what is scarcest first."""
    return free.gpus, free.cpus_milli, free.memory_mib


def unnamed(places: Places) -> Places:
    """The same, of whole GPUs any."""
    return tuple([place._replace(devices=()) if place.resources.gpus else place for place in places])


def places_on(rooms: Sequence[Room], node: NodeId, resources: Resources, count: int, *, is_steady: bool) -> list[Place]:
    """That many such tasks on one node, where they must fit in every room."""
    if resources.is_share:
        return at(rooms, node).shares(node, resources, count, is_steady=is_steady)
    return [Place(node, resources)] * count


def at(rooms: Sequence[Room], node: NodeId) -> Room:
    """What is there on one node in every room; for reading only."""
    first, *others = rooms
    if not others:
        return first
    found = first.only(node)
    for room in others:
        found._narrow(room)
    return found
