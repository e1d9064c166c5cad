"""Which nodes may the tasks of a role go to?

Rules are a cluster's: on a machine of our own they do not apply. A role without rules is one that asks for nothing and
tolerates nothing, so taints and cordons keep it off. Rules and nodes never change, and a node that stays as it was is
the same object in the next snapshot: an answer is kept for as long as it is asked about the same node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache

from swell.model.cluster import Node, NodeId
from swell.model.placement import NO_RULES, Rules, objection

RULES_KEPT_MAX = 64  # different rules in use at once; each costs about half a megabyte with 5,000 nodes


def objections(rules: Rules | None, nodes: Mapping[NodeId, Node]) -> dict[NodeId, str]:
    """What is in the way, of those nodes that may not be used."""
    known = _kept(rules or NO_RULES)
    if len(known) > 2 * len(nodes):  # those that went away
        known.clear()
    found: dict[NodeId, str] = {}
    for name, node in nodes.items():
        if node.labels is None:
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
    return [f"{count} node{'' if count == 1 else 's'}: {problem}" for problem, count in in_order]


@lru_cache(maxsize=RULES_KEPT_MAX)
def _kept(_: Rules) -> dict[NodeId, tuple[Node, str | None]]:
    return {}


def _objection(rules: Rules, node: Node) -> str | None:
    return objection(rules, dict(node.labels or ()), node.taints, name=node.id, is_cordoned=node.is_cordoned)
