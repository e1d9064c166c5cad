"""Which nodes are there, and which of them may a role use?"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from operator import attrgetter

from swell.model.cluster import Device, DeviceId, Node, NodeId
from swell.model.placement import Rules
from swell.planner.allow import objections

Gpus = frozenset[tuple[NodeId, DeviceId]]


def smallest_first(node: Node) -> list[Device]:
    """The order in which GPUs are given away: what is large is left for those who need that.

    Among equals that of the node, where neighbours are often connected more closely.
    """
    return sorted(node.devices, key=attrgetter("memory_mib"))


class Cards:
    """The GPUs of one node: how large each is, in the order in which they are opened for sharing."""

    def __init__(self, node: Node, foreign: Gpus | None) -> None:
        ours = [device for device in smallest_first(node) if (node.id, device.id) not in (foreign or ())]
        self.sizes = {one.id: one.memory_mib - (0 if foreign is None else one.outsiders_mib) for one in ours}
        self.least_mib = min((device.memory_mib for device in node.devices), default=0)


class Ground:
    """What stays as it is while room is given and taken: the nodes, small ones first."""

    def __init__(self, nodes: Iterable[Node], foreign: Gpus | None) -> None:
        in_order = sorted(nodes, key=lambda node: (len(node.devices), node.cpus_milli, node.memory_mib, node.id))
        self.nodes = {node.id: node for node in in_order}
        self.cards = {node.id: Cards(node, foreign) for node in in_order}
        self.numbers = {node.id: number for number, node in enumerate(in_order)}
        self.is_cluster = any(node.labels is not None for node in in_order)  # otherwise there are no rules
        self._allowed: dict[Rules | None, frozenset[NodeId]] = {}

    def allowed(self, rules: Rules | None) -> Collection[NodeId]:
        """Where tasks with these rules may go."""
        if not self.is_cluster:
            return self.nodes
        if rules not in self._allowed:
            self._allowed[rules] = frozenset(self.nodes.keys() - objections(rules, self.nodes).keys())
        return self._allowed[rules]
