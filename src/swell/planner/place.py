"""Which devices should each task get?"""

from __future__ import annotations

from collections.abc import Iterable

from swell.model.cluster import DeviceId, NodeId
from swell.model.plan import Slot, Snapshot
from swell.planner.room import Gpus, Place, Places


def held_gpus(snapshot: Snapshot) -> Gpus:
    return frozenset((slot.node, device) for _, slot in snapshot.held() for device in slot.devices)


def foreign_gpus(snapshot: Snapshot, held: Gpus) -> Gpus:
    """Those that processes outside Swell use, and no job of ours."""
    return frozenset(
        (node.id, device.id)
        for node in snapshot.nodes
        for device in node.devices
        if device.outsiders_mib and (node.id, device.id) not in held
    )


class Devices:
    """The free devices of every node, lowest number first."""

    def __init__(self, snapshot: Snapshot, unfree: Gpus) -> None:
        self._free: dict[NodeId, list[DeviceId]] = {
            node.id: [device.id for device in node.devices if (node.id, device.id) not in unfree]
            for node in snapshot.nodes
        }

    def open(self, places: Iterable[Place]) -> None:
        """What is shared from now on is nobody's whole one. Before anything is taken."""
        for place in places:
            free = self._free[place.node]
            if place.resources.is_share and place.devices[0] in free:
                free.remove(place.devices[0])

    def take(self, node: NodeId, count: int) -> tuple[DeviceId, ...]:
        free = self._free[node]
        taken, self._free[node] = free[:count], free[count:]
        assert len(taken) == count, f"room said {count} devices are free on {node}, the list has {len(taken)}"
        return tuple(taken)


def place(places: Places, devices: Devices, *, first_number: int = 0) -> tuple[Slot, ...]:
    """Slots for tasks whose nodes are chosen."""
    return tuple(
        Slot(number, one.node, one.resources, one.devices or devices.take(one.node, one.resources.gpus))
        for number, one in enumerate(places, first_number)
    )
