"""Which devices should each task get?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from swell.model.cluster import DeviceId, NodeId
from swell.model.plan import Slot, Snapshot
from swell.planner.ground import Gpus
from swell.planner.room import Place, Places


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

    def leave_to_the_last(self, places: Iterable[Place]) -> None:
        """What is promised to somebody who waits is used meanwhile only where nothing else is left."""
        for place in places:
            free = self._free.get(place.node, [])
            for device in place.devices:
                if device in free:
                    free.remove(device)
                    free.append(device)

    def name(self, slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
        """With GPUs for those that have none yet."""
        return tuple(
            slot if slot.devices or not slot.resources.gpus else replace(slot, devices=self._take(slot))
            for slot in slots
        )

    def _take(self, slot: Slot) -> tuple[DeviceId, ...]:
        free, count = self._free[slot.node], slot.resources.gpus
        taken, self._free[slot.node] = free[:count], free[count:]
        assert len(taken) == count, f"room said {count} devices are free on {slot.node}, the list has {len(taken)}"
        return tuple(taken)


def place(places: Places, *, first_number: int = 0) -> tuple[Slot, ...]:
    """Slots for tasks whose nodes are chosen; whole GPUs are named later."""
    return tuple(Slot(number, one.node, one.resources, one.devices) for number, one in enumerate(places, first_number))
