"""How much of each node is free?

A `Room` is a private, mutable sheet of one planning run. Several sheets are kept side by side (what nobody
holds, what nobody ahead has a claim to, what is left once the first waiting job has started); a task that
must fit on several of them is placed on what is there in every one (`at`).

GPUs are counted, and those of tasks that run or start now have names, too (place.py); for one that waits any whole one
will do. A task that takes a *share* of a GPU's memory always names its GPU: that one is *open* from then on, no longer
counted among the whole ones, and counted again when the last share of it is given back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from swell.model.cluster import DeviceId, Node, NodeId
from swell.model.plan import JobView, Place, Places, Slot
from swell.model.resources import COPIES_MAX, Resources
from swell.planner.ground import Gpus, Ground

if TYPE_CHECKING:
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
        ground: Ground,
        free: dict[NodeId, Resources],
        tasks: dict[NodeId, int],
        shared: dict[NodeId, _Shared],
    ) -> None:
        self.ground = ground
        self._free = free
        self._tasks = tasks  # how many more it takes, of nodes that have a limit
        self._cards = ground.cards
        self._shared = shared  # of nodes that have GPUs
        self.touched: list[NodeId] = []  #: where anything was given or taken, one entry each time
        self.tallies: dict[object, Tally] = {}  #: what fit.py has counted here

    @classmethod
    def of(cls, nodes: Sequence[Node], *, foreign: Gpus | None = None) -> Room:
        """What the nodes offer, without `foreign` GPUs; None: as if nobody outside Swell used any."""
        ground = Ground.of(nodes, foreign)
        here = ground.nodes.values()
        free = {one.id: _offer(one, len(ground.cards[one.id].sizes)) for one in here}
        tasks = {one.id: one.tasks_max for one in here if one.tasks_max is not None}
        return cls(ground, free, tasks, dict.fromkeys((one.id for one in here if one.devices), NOTHING_SHARED))

    def copy(self) -> Room:
        return Room(self.ground, dict(self._free), dict(self._tasks), dict(self._shared))

    def only(self, node: NodeId) -> Room:
        """A sheet of its own with one node."""
        tasks = {node: self._tasks[node]} if node in self._tasks else {}
        shared = {node: self._shared[node]} if node in self._shared else {}
        return Room(self.ground, {node: self._free[node]}, tasks, shared)

    def on(self, node: NodeId) -> Resources:
        """Its CPUs, memory and whole GPUs."""
        return self._free[node]

    def largest_share_mib(self, node: NodeId) -> int:
        """The most memory one GPU there has to give."""
        wholes = self._cards[node].sizes.values() if self._free[node].gpus > 0 else ()
        return max([*self._sharable(node).values(), *wholes], default=0)

    def takes_more(self, node: NodeId) -> bool:
        """As far as the number of tasks goes."""
        return self._tasks.get(node, 1) > 0

    def is_whole(self, node: NodeId) -> bool:
        """Is nothing promised there that is not there?"""
        free = self._free[node]
        return free.gpus >= 0 and free.cpus_milli >= 0 and free.memory_mib >= 0 and self._tasks.get(node, 0) >= 0

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
        for place in places:
            if place.node in self._free:  # a node that went away holds nothing we could plan with
                self._free[place.node] -= place.resources
                self._note(place.node, -1)
                if place.devices and place.node in self._shared:  # it may have lost its last GPU
                    self._take_devices(place)

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
                    self._take_devices(place)
        for node in tasks.keys() & self._free.keys():
            self._free[node] -= Resources(cpus[node], memory[node], gpus[node])
            self._note(node, -tasks[node])

    def give(self, places: Iterable[Place]) -> None:
        for place in places:
            if place.node in self._free:
                self._free[place.node] += place.resources
                self._note(place.node, +1)
                if place.devices and place.node in self._shared:
                    self._give_devices(place)

    def _note(self, node: NodeId, more: int) -> None:
        self.touched.append(node)
        if node in self._tasks:
            self._tasks[node] += more

    @property
    def nodes(self) -> Iterable[NodeId]:
        return self._free.keys()

    def copies(self, node: NodeId, resources: Resources) -> int:
        """How many such tasks fit there side by side; one that wants nothing fits without end."""
        if resources.is_share:
            return len(self.shares(node, resources, COPIES_MAX, is_steady=True))
        if resources.gpus and resources.gpu_memory_mib > self._cards[node].least_mib:
            return 0
        return self._copies(node, resources)

    def _copies(self, node: NodeId, resources: Resources) -> int:
        """By CPUs, memory, whole GPUs and the number of tasks."""
        copies = resources.copies_in(self._free[node])
        return max(0, min(copies, self._tasks[node])) if node in self._tasks else copies

    def place(self, node: NodeId, resources: Resources, count: int, *, is_steady: bool) -> list[Place]:
        """That many such tasks there, which must fit."""
        if resources.is_share:
            return self.shares(node, resources, count, is_steady=is_steady)
        return [Place(node, resources)] * count

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
        """How much would be left if they went there, what matters most first; the least is the tightest fit."""
        if not resources.is_share:
            return size(self._free[node])
        devices = [place.devices[0] for place in self.shares(node, resources, count, is_steady=False)]
        opened = set(devices) - self._open_on(node).keys()
        return len(opened), min(self._free_mib(node, device) for device in devices), *size(self._free[node])

    def _take_devices(self, place: Place) -> None:
        if place.resources.is_share:
            self._take_share(place.node, place.devices[0], place.resources.gpu_memory_mib)
        else:
            shared = self._shared[place.node]
            self._shared[place.node] = shared._replace(whole=shared.whole.union(place.devices))
            if shared.open:
                self._free[place.node] += self._open_among(place)

    def _give_devices(self, place: Place) -> None:
        if place.resources.is_share:
            self._give_share(place.node, place.devices[0], place.resources.gpu_memory_mib)
        else:
            shared = self._shared[place.node]
            self._shared[place.node] = shared._replace(whole=shared.whole.difference(place.devices))
            if shared.open:
                self._free[place.node] -= self._open_among(place)

    # -- one GPU, several tasks --------------------------------------------------------------------------------

    def _open_on(self, node: NodeId) -> Mapping[DeviceId, _Open]:
        return self._shared[node].open if node in self._shared else {}

    def _open_among(self, place: Place) -> Resources:
        """GPUs that are held whole, and somebody who waits has a claim to a share of: they are missing only once."""
        opened = self._open_on(place.node)
        return Resources(gpus=sum(device in opened for device in place.devices))

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
            sizes, shared = self._cards[node].sizes, self._shared[node]
            unopened = sizes.keys() - shared.open.keys() - shared.whole
            fitting |= {device: sizes[device] for device in unopened if sizes[device] >= mib}
        return next((device for device in self._cards[node].sizes if device in fitting), None)

    def _free_mib(self, node: NodeId, device: DeviceId) -> int:
        if node not in self._shared:
            return 0
        shared = self._shared[node]
        if device in shared.open:
            return self._sharable(node).get(device, 0)
        is_whole = self._free[node].gpus > 0 and device not in shared.whole
        return self._cards[node].sizes.get(device, 0) if is_whole else 0

    def _take_share(self, node: NodeId, device: DeviceId, mib: int) -> None:
        shared = self._shared[node]
        before = shared.open.get(device)
        if before is None:
            before = _Open(self._cards[node].sizes.get(device, 0), 0)
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
        both = {device: self._least_share(other, node, device) for device in {*mine.open, *their.open}}
        free -= Resources(gpus=len(both.keys() - mine.open.keys() - mine.whole))
        theirs -= Resources(gpus=len(both.keys() - their.open.keys() - their.whole))
        self._shared[node] = _Shared(both, mine.whole | their.whole)
        return free, theirs

    def _least_share(self, other: Room, node: NodeId, device: DeviceId) -> _Open:
        return _Open(min(self._free_mib(node, device), other._free_mib(node, device)), 1)


NO_GPU, ONE_GPU = Resources(), Resources(gpus=1)


def _offer(node: Node, gpus: int) -> Resources:
    return node.capacity if gpus == len(node.devices) else Resources(node.cpus_milli, node.memory_mib, gpus)


def size(free: Resources) -> tuple[int, int, int]:
    """Nodes are compared by what is scarcest first."""
    return free.gpus, free.cpus_milli, free.memory_mib


def unnamed(places: Places) -> Places:
    """The same, of whole GPUs any."""
    return tuple([place._replace(devices=()) if place.resources.gpus else place for place in places])


def at(rooms: Sequence[Room], node: NodeId) -> Room:
    """What is there on one node in every room; for reading only."""
    first, *others = rooms
    if not others:
        return first
    found = first.only(node)
    for room in others:
        found._narrow(room)
    return found
