"""What does a node of the cluster offer us?

What it can hold, less what stands there and is none of ours. Which GPU a pod gets is the device plugin's choice, so
GPUs are only counted: those that others hold are marked as theirs, and our own keep their numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set

from swell.engines.kubernetes.attempt.live_attempts import LiveAttempts
from swell.engines.kubernetes.sharing.reserver import Reservations
from swell.engines.kubernetes.watch.cluster import Cluster
from swell.engines.kubernetes.watch.observed_objects import RESERVATION, TOTAL, NodeSeen, PodSeen, parse_number
from swell.model.cluster import Device, DeviceId, Node, NodeId
from swell.model.job import AttemptId
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


class Offers:
    """The same objects as before for those that nothing has changed on, and for all of them together; of one thread.

    Whoever plans knows what it has seen before by that.
    """

    def __init__(self, cluster: Cluster, live_attempts: LiveAttempts, reservations: Reservations) -> None:
        self._cluster = cluster
        self._live_attempts = live_attempts
        self._reservations = reservations
        self._made: dict[NodeId, Node] = {}
        self._all: tuple[Node, ...] = ()

    def look(self, seen: Mapping[NodeId, NodeSeen], stale: Iterable[NodeId]) -> tuple[Node, ...]:
        is_news = False
        for name in {*stale, *(self._made.keys() ^ seen.keys())}:
            if name in seen:
                made = self._make(seen[name])
                if self._made.get(name) != made:
                    self._made[name] = made
                    is_news = True
            elif self._made.pop(name, None) is not None:
                is_news = True
        if is_news:
            self._all = tuple(self._made[name] for name in sorted(self._made))
        return self._all

    def _make(self, node: NodeSeen) -> Node:
        there = self._cluster.pods_on(node.name)
        reserving = [pod for pod in there if self._reservations.is_one(pod)]
        seats = self._live_attempts.seats_on(node.name)
        foreign = [pod for pod in there if not self._reservations.is_one(pod) and not self._has_seat(pod, seats)]
        seated = self._live_attempts.held_on(node.name, lambda attempt: not seats[attempt])
        held = self._live_attempts.held_on(node.name)
        return make_node(node, foreign, held, reserving, held - seated)

    def _has_seat(self, pod: PodSeen, seats: Counter[AttemptId]) -> bool:
        """Was it planned there? One of ours that somebody else has put there takes room like anybody's."""
        attempt = self._live_attempts.whose(pod, self._cluster.root(pod))
        if attempt is None or not seats[attempt]:
            return False
        seats[attempt] -= 1
        return True
