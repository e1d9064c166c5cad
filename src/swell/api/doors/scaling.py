"""How wide would a job be if it were started again now? (genai's "scale")

Its own GPUs count as free, those of nodes that its rules or a cordon keep it off do not. Never above what it can use,
never below what it needs; whether others make room for more is the planner's business, not this question's.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from swell.api.documents import node_document
from swell.model.cluster import Node
from swell.model.job import Dimension
from swell.model.placement import NO_RULES, objection
from swell.model.plan import JobView, Shape, Snapshot


def free_gpus(snapshot: Snapshot) -> dict[str, int]:
    """By machine, whole ones that nobody holds; a machine without any is left out."""
    free = {
        node.id: sum(_is_free(gpu) for gpu in node_document(node, snapshot)["gpus"])
        for node in snapshot.nodes
        if node.is_reachable
    }
    return {node: count for node, count in free.items() if count}


def _is_free(gpu: dict[str, Any]) -> bool:
    return gpu["job"] is None and not gpu["shares"] and not gpu["outsiders_mib"]


def new_width(job: JobView, snapshot: Snapshot) -> int:
    room = Counter(free_gpus(snapshot))
    for slot in job.slots:
        room[slot.node] += len(slot.devices)
    room = Counter({node: room[node] for node in room if _may_use(job.shape, snapshot.nodes_by_id.get(node))})
    return max(job.shape.width_min, min(job.shape.width_max, _widest(job, room)))


def _may_use(shape: Shape, node: Node | None) -> bool:
    """May a task of it that has GPUs go there? Only a cluster's nodes have rules."""
    if node is None or node.labels is None:
        return node is not None
    labels = dict(node.labels)
    return any(
        objection(rules or NO_RULES, labels, node.taints, name=node.id, is_cordoned=node.is_cordoned) is None
        for (resources, _), rules in zip(shape.roles, shape.rules or (None,) * len(shape.roles), strict=True)
        if resources.gpus
    )


def _widest(job: JobView, room: Counter[str]) -> int:
    shape = job.shape
    if shape.dimension is Dimension.GPUS:
        tasks = sum(count for resources, count in shape.roles if resources.gpus)
        widths = range(shape.width_max, 0, -1)
        return next((width for width in widths if sum(free // width for free in room.values()) >= tasks), 0)
    (first, _), *others = shape.roles
    if first.gpus == 0:
        return shape.width_max
    taken = sum(resources.gpus * count for resources, count in others)
    return sum(free // first.gpus for free in room.values()) - -(-taken // first.gpus)
