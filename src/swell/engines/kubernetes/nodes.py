"""What does a node of the cluster offer us?

What it can hold, less what stands there and is none of ours. Which GPU a pod gets is the device plugin's choice, so
GPUs are only counted: those that others hold are marked as theirs, and our own keep their numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from swell.engines.kubernetes.picture import RESERVATION, TOTAL, NodeSeen, PodSeen, parse_number
from swell.model.cluster import Device, DeviceId, Node
from swell.model.resources import NOTHING


def make_node(
    seen: NodeSeen,
    foreign: Iterable[PodSeen],
    held: Set[DeviceId],
    reserving: Iterable[PodSeen] = (),
    empty: Set[DeviceId] = frozenset(),
) -> Node:
    """`held`: devices that jobs of ours have there; `empty`: those of them on which no pod stands yet, or any more.
    `reserving`: pods of ours that keep GPUs for those who share them.

    A GPU that is reserved and that nobody shares any more is not free before its pod is gone. What others have taken of
    ours is not free either when the job that was to have it gives up.
    """
    taken, pods = NOTHING, 0
    for pod in foreign:
        taken += pod.needs
        pods += 1
    numbers = [f"gpu-{number}" for number in range(seen.room.gpus)]
    totals = {pod.labels[RESERVATION]: parse_number(pod.annotations.get(TOTAL, "")) or 0 for pod in reserving}
    pods += len(totals)
    left = totals.keys() - held
    free = [name for name in reversed(numbers) if name not in held and name not in left]
    lost = [name for name in reversed(numbers) if name in empty and name not in left]
    theirs = {*[*free, *lost][: taken.gpus], *left}
    sizes = {name: min(seen.gpu_memory_mib, totals.get(name) or seen.gpu_memory_mib) for name in numbers}
    return Node(
        id=seen.name,
        cpus_milli=max(0, seen.room.cpus_milli - taken.cpus_milli),
        memory_mib=max(0, seen.room.memory_mib - taken.memory_mib),
        devices=tuple(
            Device(name, mib, seen.gpu_model, outsiders_mib=max(1, mib) if name in theirs else 0)
            for name, mib in sizes.items()
        ),
        is_reachable=seen.is_ready,
        tasks_max=max(0, seen.pods_max - pods),
        labels=seen.labels,
        taints=seen.taints,
        is_cordoned=seen.is_cordoned,
        container_runtime="kubernetes",
    )
