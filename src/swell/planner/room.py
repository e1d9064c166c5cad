"""How much of each node is free?

A `Room` is a private, mutable sheet of one planning run. Several sheets are kept side by side (what nobody
holds, what nobody ahead has a claim to, what is left once the first waiting job has started); a task that
must fit on several of them is placed on what is there in every one (`common`).

GPUs are counted: which ones a task gets that takes them whole is said at the end (place.py), and only those of tasks
that run have names. A task that takes a *share* of a GPU's memory names its GPU at once: that one is *open* from then
on, no longer counted among the whole ones, and counted again when the last share of it is given back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from swell.model.cluster import DeviceId, Node, NodeId
from swell.model.plan import Slot
from swell.model.resources import COPIES_MAX, Resources

Groups = Sequence[tuple[Resources, int]]  # equal tasks and how many, in rank order
Gpus = frozenset[tuple[NodeId, DeviceId]]


class Place(NamedTuple):
    """Where a task goes, and what it takes there."""

    node: NodeId
    resources: Resources
    devices: tuple[DeviceId, ...] = ()  #: the GPU of which it takes a share; the whole ones that are known already


Places = tuple[Place, ...]  # in rank order


class _Open(NamedTuple):
    """A GPU that is shared."""

    free_mib: int  #: below zero where more is used than was promised
    shares: int


class Cards:
    """The GPUs of one node: how large each is, in the order in which they are opened for sharing."""

    def __init__(self, node: Node, foreign: Gpus | None) -> None:
        ours = [device for device in node.devices if (node.id, device.id) not in (foreign or ())]
        self.sizes = {one.id: one.memory_mib - (0 if foreign is None else one.outsiders_mib) for one in ours}
        self.least_mib = min((device.memory_mib for device in node.devices), default=0)


class _Shared:
    """Which GPUs of one node are open, and which are known to be held whole."""

    def __init__(self, open_: dict[DeviceId, _Open], whole: frozenset[DeviceId]) -> None:
        self.open = open_
        self.whole = whole

    def copy(self) -> _Shared:
        return _Shared(dict(self.open), self.whole)


class Room:
    """Free resources by node, small nodes first. Below zero where more was promised than is there yet."""

    def __init__(
        self, free: dict[NodeId, Resources], cards: dict[NodeId, Cards], shared: dict[NodeId, _Shared]
    ) -> None:
        self._free = free
        self._cards = cards
        self._shared = shared  # of nodes that have GPUs

    @classmethod
    def of(cls, nodes: Iterable[Node], *, foreign: Gpus | None = None) -> Room:
        """What the nodes offer, without `foreign` GPUs; None: as if nobody outside Swell used any."""
        in_order = sorted(nodes, key=lambda node: (*size(node.capacity), node.id))
        cards = {node.id: Cards(node, foreign) for node in in_order}
        free = {node.id: replace(node.capacity, gpus=len(cards[node.id].sizes)) for node in in_order}
        return cls(free, cards, {node.id: _Shared({}, frozenset()) for node in in_order if node.devices})

    def copy(self) -> Room:
        return Room(dict(self._free), self._cards, {node: shared.copy() for node, shared in self._shared.items()})

    def on(self, node: NodeId) -> Resources:
        """Its CPUs, memory and whole GPUs."""
        return self._free[node]

    def largest_share_mib(self, node: NodeId) -> int:
        """The most memory one GPU there has to give."""
        wholes = self._cards[node].sizes.values() if self._free[node].gpus > 0 else ()
        return max([*self._sharable(node).values(), *wholes], default=0)

    def has(self, slot: Slot) -> bool:
        """As it stands: its own GPUs, not any."""
        if slot.node not in self._free or not slot.resources.fits_in(self._free[slot.node]):
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
                if place.resources.is_share:
                    self._take_share(place.node, place.devices[0], place.resources.gpu_memory_mib)
                elif place.devices:
                    self._shared[place.node].whole |= {*place.devices}
                    self._free[place.node] += self._open_among(place)

    def give(self, places: Iterable[Place]) -> None:
        for place in places:
            if place.node in self._free:
                self._free[place.node] += place.resources
                if place.resources.is_share:
                    self._give_share(place.node, place.devices[0], place.resources.gpu_memory_mib)
                elif place.devices:
                    self._shared[place.node].whole -= {*place.devices}
                    self._free[place.node] -= self._open_among(place)

    @property
    def nodes(self) -> Iterable[NodeId]:
        return self._free.keys()

    def copies(self, node: NodeId, resources: Resources) -> int:
        """How many such tasks fit there side by side; one that wants nothing fits without end."""
        if resources.is_share:
            return len(self.shares(node, resources, COPIES_MAX, is_steady=True))
        if resources.gpus and resources.gpu_memory_mib > self._cards[node].least_mib:
            return 0
        return resources.copies_in(self._free[node])

    def place(self, node: NodeId, resources: Resources, count: int, *, is_steady: bool) -> list[Place]:
        """That many such tasks there, which must fit."""
        if resources.is_share:
            return self.shares(node, resources, count, is_steady=is_steady)
        return [Place(node, resources)] * count

    def shares(self, node: NodeId, resources: Resources, count: int, *, is_steady: bool) -> list[Place]:
        """Up to so many shares, each where the GPU is left with least; a steady choice takes the first that fits."""
        count = min(count, resources.copies_in(self._free[node]))
        if node not in self._shared:
            return []
        trial = Room({node: self._free[node]}, self._cards, {node: self._shared[node].copy()})
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

    # -- one GPU, several tasks --------------------------------------------------------------------------------

    def _open_on(self, node: NodeId) -> dict[DeviceId, _Open]:
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
        """An open one before a whole one: what is whole stays whole for those who need that."""
        fitting = {device: free_mib for device, free_mib in self._sharable(node).items() if free_mib >= mib}
        if fitting:
            return min(fitting) if is_steady else min(fitting, key=lambda device: (fitting[device], device))
        if self._free[node].gpus < 1:
            return None
        sizes, shared = self._cards[node].sizes, self._shared[node]
        unopened = (device for device in sizes if device not in shared.open and device not in shared.whole)
        return next((device for device in unopened if sizes[device] >= mib), None)

    def _free_mib(self, node: NodeId, device: DeviceId) -> int:
        shared = self._shared[node]
        if device in shared.open:
            return self._sharable(node).get(device, 0)
        is_whole = self._free[node].gpus > 0 and device not in shared.whole
        return self._cards[node].sizes.get(device, 0) if is_whole else 0

    def _take_share(self, node: NodeId, device: DeviceId, mib: int) -> None:
        opened = self._shared[node].open
        if device not in opened:
            opened[device] = _Open(self._cards[node].sizes.get(device, 0), 0)
            self._free[node] -= NO_GPU if device in self._shared[node].whole else ONE_GPU
        opened[device] = _Open(opened[device].free_mib - mib, opened[device].shares + 1)

    def _give_share(self, node: NodeId, device: DeviceId, mib: int) -> None:
        opened = self._shared[node].open
        before = opened[device]
        opened[device] = _Open(before.free_mib + mib, before.shares - 1)
        if before.shares == 1:
            del opened[device]
            self._free[node] += NO_GPU if device in self._shared[node].whole else ONE_GPU

    def _narrow(self, other: Room) -> None:
        """Keep what is there in the other room, too."""
        for node, free in self._free.items():
            theirs = other._free[node]
            if node in self._shared:
                free, theirs = self._narrow_gpus(other, node, free, theirs)
            self._free[node] = free.least(theirs)

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


def size(free: Resources) -> tuple[int, int, int]:
    """Nodes are compared by what is scarcest first."""
    return free.gpus, free.cpus_milli, free.memory_mib


def taken(slots: Iterable[Slot]) -> Places:
    return tuple([Place(slot.node, slot.resources, slot.devices) for slot in slots])


def ranks(groups: Groups) -> list[Resources]:
    """What each task takes, by rank."""
    return [resources for resources, count in groups for _ in range(count)]


def common(rooms: Sequence[Room]) -> Room:
    """What is there in every room; a sheet of its own."""
    first, *others = rooms
    found = first.copy()
    for room in others:
        found._narrow(room)
    return found


def find(groups: Groups, rooms: Sequence[Room], *, is_steady: bool = False) -> Places | None:
    """A place for every task, or None when they do not all fit in every room.

    Tasks that start now go where they fit tightest. A *steady* choice does not look at how full a node is, so
    that room kept for a job stays where it is while others start beside it: planning twice changes nothing.
    For equal tasks that share no GPU the answer None is exact; the roles of a gang are placed one by one, largest
    first, which can miss a way to fit them all.
    """
    room = common(rooms)
    found: list[list[Place]] = [[] for _ in groups]
    for role in sorted(range(len(groups)), key=lambda role: size(groups[role][0]), reverse=True):
        places = _spread(*groups[role], room, is_steady=is_steady)
        if places is None:
            return None
        room.take(places)
        found[role] = places
    return tuple(chain.from_iterable(found))


def _spread(resources: Resources, count: int, room: Room, *, is_steady: bool) -> list[Place] | None:
    """Equal tasks on one node if one holds them all, else on the largest."""
    copies = {node: room.copies(node, resources) for node in room.nodes}
    whole = [node for node, n in copies.items() if n >= count]
    if whole:
        best = whole[0]
        if not is_steady:
            best = min(whole, key=lambda node: (*room.tightness(node, resources, count), node))
        return room.place(best, resources, count, is_steady=is_steady)
    chosen: list[Place] = []
    for node in reversed(copies) if is_steady else sorted(copies, key=lambda node: (-copies[node], node)):
        chosen += room.place(node, resources, min(copies[node], count - len(chosen)), is_steady=is_steady)
        if len(chosen) == count:
            return chosen
    return None
