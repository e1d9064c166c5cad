"""How wide would a job be if it were started again now? (genai's "scale")

Its own GPUs count as free, those of nodes that its rules or a cordon keep it off do not. Never above what it can use or
its user may hold, never below what it needs; whether others make room for more is the planner's business, not this
question's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from swell.api.documents import node_document
from swell.model.cluster import Node
from swell.model.job import Dimension
from swell.model.placement import NO_RULES, objection
from swell.model.plan import JobView, Shape, Snapshot, Standing
from swell.model.resources import Resources, gpus_of

EPSILON = 1e-9  # shares of a GPU do not add up exactly


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
    return _allowed(job, snapshot, max(job.shape.width_min, min(job.shape.width_max, _widest(job, room))))


def _allowed(job: JobView, snapshot: Snapshot, width: int) -> int:
    """The largest up to this that its user may hold. Where the least is too much it stays: it would not come back."""
    gpus_max = snapshot.users.get(job.user, Standing()).gpus_max
    if gpus_max is None:
        return width

    def gpus(tasks: Iterable[Resources]) -> float:
        return sum(gpus_of(resources, snapshot.card_mib) for resources in tasks)

    others = snapshot.gpus_held(job.user) - gpus(slot.resources for slot in job.slots)
    for narrower in range(width, job.shape.width_min - 1, -1):
        tasks = (resources for resources, count in job.shape.tasks_at(narrower) for _ in range(count))
        if others + gpus(tasks) <= gpus_max + EPSILON:
            return narrower
    return job.width


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
