"""Which nodes are there, and which of them may a role use?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Generic, TypeVar

from swell.model.cluster import DeviceId, Node, NodeId
from swell.model.placement import NO_RULES, PlacementRules, objection, unlabeled_objection
from swell.model.quantity import number_of

RULES_KEPT_MAX = 64  # different rules in use at once; each costs about half a megabyte with 5,000 nodes


def objections(rules: PlacementRules | None, nodes: Mapping[NodeId, Node]) -> dict[NodeId, str]:
    """What is in the way, of those nodes that may not be used."""
    known = _kept(rules or NO_RULES)
    if len(known) > 2 * len(nodes):  # those that went away
        known.clear()
    found: dict[NodeId, str] = {}
    of_unlabeled = unlabeled_objection(rules)
    for name, node in nodes.items():
        if node.labels is None:
            if of_unlabeled is not None:
                found[name] = of_unlabeled
            continue
        before = known.get(name)
        if before is None or before[0] is not node:
            before = known[name] = node, _objection(rules or NO_RULES, node)
        if before[1] is not None:
            found[name] = before[1]
    return found


def counted(problems: Iterable[str]) -> list[str]:
    """In words, the most frequent first: "3 nodes: it is cordoned"."""
    in_order = sorted(Counter(problems).items(), key=lambda one: (-one[1], one[0]))
    return [f"{number_of(count, 'node')}: {problem}" for problem, count in in_order]


@lru_cache(maxsize=RULES_KEPT_MAX)
def _kept(_: PlacementRules) -> dict[NodeId, tuple[Node, str | None]]:
    return {}


def _objection(rules: PlacementRules, node: Node) -> str | None:
    return objection(rules, dict(node.labels or ()), node.taints, name=node.id, is_cordoned=node.is_cordoned)


T = TypeVar("T")


class Same(Generic[T]):
    """Equal only to itself: comparing what is in it would cost more than what is remembered of it."""

    def __init__(self, value: T) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value


Gpus = frozenset[tuple[NodeId, DeviceId]]
KNOWN_MAX = 4  # of one plan: with and without what outsiders use, all nodes and those that answer


class NodeGpus:
    """The GPUs of one node: how large each is, in the order in which they are opened for sharing."""

    def __init__(self, node: Node, foreign: Gpus | None, *, has_foreign: bool) -> None:
        sizes = node.sizes_mib if foreign is None else node.left_mib
        if foreign is not None and has_foreign:
            sizes = {device: mib for device, mib in sizes.items() if (node.id, device) not in foreign}
        self.sizes = sizes
        self.numbers = {device: number for number, device in enumerate(sizes)}
        self.least_mib = node.devices_by_size[0].memory_mib if node.devices else 0


class NodeTable:
    """What stays as it is while room is given and taken: the nodes, small ones first."""

    def __init__(self, nodes: Sequence[Node], foreign: Gpus | None) -> None:
        in_order = sorted(nodes, key=lambda node: (len(node.devices), node.cpus_milli, node.memory_mib, node.id))
        self.nodes = {node.id: node for node in in_order}
        with_foreign = {node for node, _ in foreign or ()}
        self.gpus_by_node = {node.id: NodeGpus(node, foreign, has_foreign=node.id in with_foreign) for node in in_order}
        self.numbers = {node.id: number for number, node in enumerate(in_order)}
        self.names = [node.id for node in in_order]
        makes: dict[tuple[object, ...], int] = {}
        #: equal numbers: equal nodes, but for their names and labels
        self.makes = {node.id: makes.setdefault(self._make(node), len(makes)) for node in in_order}
        self.is_cluster = any(node.labels is not None for node in in_order)  # otherwise only labels of our own count
        self._allowed: dict[PlacementRules | None, frozenset[NodeId]] = {}

    def _make(self, node: Node) -> tuple[object, ...]:
        gpus = self.gpus_by_node[node.id]
        sizes = tuple(gpus.sizes.values()), gpus.least_mib, len(node.devices)
        return *sizes, node.cpus_milli, node.memory_mib, node.labels is None

    @classmethod
    def of(cls, nodes: Sequence[Node], foreign: Gpus | None) -> NodeTable:
        """The last one again where nothing has changed: the same nodes are the same tuple."""
        return _known(Same(nodes), foreign) if isinstance(nodes, tuple) else cls(nodes, foreign)

    def allowed(self, rules: PlacementRules | None) -> Collection[NodeId]:
        """Where tasks with these rules may go."""
        if not self.is_cluster and unlabeled_objection(rules) is None:
            return self.nodes
        if rules not in self._allowed:
            self._allowed[rules] = frozenset(self.nodes.keys() - objections(rules, self.nodes).keys())
        return self._allowed[rules]


@lru_cache(maxsize=KNOWN_MAX)
def _known(nodes: Same[tuple[Node, ...]], foreign: Gpus | None) -> NodeTable:
    return NodeTable(nodes.value, foreign)


def answering(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Those that can be reached; the same tuple where nothing has changed."""
    return _answering(Same(nodes))


@lru_cache(maxsize=1)
def _answering(nodes: Same[tuple[Node, ...]]) -> tuple[Node, ...]:
    reached = tuple(node for node in nodes.value if node.is_reachable)
    return nodes.value if len(reached) == len(nodes.value) else reached
