"""Which nodes are there, and which of them may a role use?"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache

from swell.model.cluster import DeviceId, Node, NodeId
from swell.model.placement import Rules
from swell.planner.allow import objections
from swell.planner.same import Same

Gpus = frozenset[tuple[NodeId, DeviceId]]
KNOWN_MAX = 4  # of one plan: with and without what outsiders use, all nodes and those that answer


class Cards:
    """The GPUs of one node: how large each is, in the order in which they are opened for sharing."""

    def __init__(self, node: Node, foreign: Gpus | None, *, has_foreign: bool) -> None:
        sizes = node.sizes_mib if foreign is None else node.left_mib
        if foreign is not None and has_foreign:
            sizes = {device: mib for device, mib in sizes.items() if (node.id, device) not in foreign}
        self.sizes = sizes
        self.least_mib = node.devices_by_size[0].memory_mib if node.devices else 0


class Ground:
    """What stays as it is while room is given and taken: the nodes, small ones first."""

    def __init__(self, nodes: Sequence[Node], foreign: Gpus | None) -> None:
        in_order = sorted(nodes, key=lambda node: (len(node.devices), node.cpus_milli, node.memory_mib, node.id))
        self.nodes = {node.id: node for node in in_order}
        with_foreign = {node for node, _ in foreign or ()}
        self.cards = {node.id: Cards(node, foreign, has_foreign=node.id in with_foreign) for node in in_order}
        self.numbers = {node.id: number for number, node in enumerate(in_order)}
        self.is_cluster = any(node.labels is not None for node in in_order)  # otherwise there are no rules
        self._allowed: dict[Rules | None, frozenset[NodeId]] = {}

    @classmethod
    def of(cls, nodes: Sequence[Node], foreign: Gpus | None) -> Ground:
        """The last one again where nothing has changed: the same nodes are the same tuple."""
        return _known(Same(nodes), foreign) if isinstance(nodes, tuple) else cls(nodes, foreign)

    def allowed(self, rules: Rules | None) -> Collection[NodeId]:
        """Where tasks with these rules may go."""
        if not self.is_cluster:
            return self.nodes
        if rules not in self._allowed:
            self._allowed[rules] = frozenset(self.nodes.keys() - objections(rules, self.nodes).keys())
        return self._allowed[rules]


@lru_cache(maxsize=KNOWN_MAX)
def _known(nodes: Same[tuple[Node, ...]], foreign: Gpus | None) -> Ground:
    return Ground(nodes.value, foreign)


def answering(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Those that can be reached; the same tuple where nothing has changed."""
    return _answering(Same(nodes))


@lru_cache(maxsize=1)
def _answering(nodes: Same[tuple[Node, ...]]) -> tuple[Node, ...]:
    reached = tuple(node for node in nodes.value if node.is_reachable)
    return nodes.value if len(reached) == len(nodes.value) else reached
