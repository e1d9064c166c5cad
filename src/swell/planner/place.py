"""Which devices should each task get?"""

from __future__ import annotations

from swell.model.cluster import DeviceId, NodeId
from swell.model.plan import Slot, Snapshot
from swell.planner.room import Places


class Devices:
    """The free devices of every node, lowest number first."""

    def __init__(self, snapshot: Snapshot) -> None:
        held = {(slot.node, device) for _, slot in snapshot.held() for device in slot.devices}
        self._free: dict[NodeId, list[DeviceId]] = {
            node.id: [device.id for device in node.devices if (node.id, device.id) not in held]
            for node in snapshot.nodes
        }

    def take(self, node: NodeId, count: int) -> tuple[DeviceId, ...]:
        free = self._free[node]
        taken, self._free[node] = free[:count], free[count:]
        assert len(taken) == count, f"room said {count} devices are free on {node}, the list has {len(taken)}"
        return tuple(taken)


def place(places: Places, devices: Devices, *, first_number: int = 0) -> tuple[Slot, ...]:
    """Slots for tasks whose nodes are chosen."""
    return tuple(
        Slot(number, node, resources, devices.take(node, resources.gpus))
        for number, (node, resources) in enumerate(places, first_number)
    )
