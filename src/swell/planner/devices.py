"""Which devices should each task get?"""

from __future__ import annotations

from collections.abc import Iterable

from swell.model.cluster import DeviceId, NodeId
from swell.model.plan import Place, Places, Slot, Snapshot
from swell.planner.nodes import Gpus


def held_gpus(snapshot: Snapshot) -> Gpus:
    return frozenset((slot.node, device) for _, slot in snapshot.held() for device in slot.devices)


def foreign_gpus(snapshot: Snapshot, held: Gpus) -> Gpus:
    """Those that processes outside Swell use, and no job of ours."""
    return frozenset(
        (node.id, device) for node in snapshot.nodes for device in node.used_outside if (node.id, device) not in held
    )


class FreeDevices:
    """The free devices of every node, smallest first."""

    def __init__(self, snapshot: Snapshot, unfree: Gpus) -> None:
        self._nodes = {node.id: node for node in snapshot.nodes}
        self._unfree = unfree
        self._free: dict[NodeId, list[DeviceId]] = {}  #: of nodes that were asked for

    def copy(self) -> FreeDevices:
        copied = FreeDevices.__new__(FreeDevices)
        copied._nodes, copied._unfree = self._nodes, self._unfree
        copied._free = {node: list(devices) for node, devices in self._free.items()}
        return copied

    def _on(self, node: NodeId) -> list[DeviceId]:
        if node not in self._free:
            sizes = self._nodes[node].sizes_mib if node in self._nodes else ()
            self._free[node] = [device for device in sizes if (node, device) not in self._unfree]
        return self._free[node]

    def leave_to_the_last(self, places: Iterable[Place]) -> None:
        """What is promised to somebody who waits is used meanwhile only where nothing else is left."""
        for place in places:
            free = self._on(place.node)
            for device in place.devices:
                if device in free:
                    free.remove(device)
                    free.append(device)

    def take(self, places: Iterable[Place]) -> Places:
        """With names for whole GPUs that have none yet; one that is shared from now on is nobody's whole one."""
        return tuple([self._named(place) for place in places])

    def give(self, places: Places) -> None:
        """Whole ones that were taken; they are the first to be taken again."""
        for place in reversed(places):
            if place.resources.gpus:
                self._on(place.node)[:0] = place.devices

    def _named(self, place: Place) -> Place:
        free = self._on(place.node)
        if place.resources.is_share:
            if place.devices[0] in free:
                free.remove(place.devices[0])
            return place
        missing = place.resources.gpus - len(place.devices)
        if not missing:
            return place
        assert missing <= len(free), f"room said {missing} devices are free on {place.node}, the list has {len(free)}"
        taken, self._free[place.node] = free[:missing], free[missing:]
        return Place(place.node, place.resources, (*place.devices, *taken))


def slots_of(places: Places, *, first_number: int = 0) -> tuple[Slot, ...]:
    """Slots for tasks whose nodes and devices are chosen."""
    return tuple(Slot(number, one.node, one.resources, one.devices) for number, one in enumerate(places, first_number))
