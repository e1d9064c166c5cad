"""What do all the nodes offer us?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from swell.engines.kubernetes.cluster import Cluster
from swell.engines.kubernetes.lives import Lives
from swell.engines.kubernetes.nodes import make_node
from swell.engines.kubernetes.picture import NodeSeen, PodSeen
from swell.engines.kubernetes.reserving import Reservations
from swell.model.cluster import Node, NodeId
from swell.model.job import AttemptId


class Offers:
    """The same objects as before for those that nothing has changed on, and for all of them together; of one thread.

    Whoever plans knows what it has seen before by that.
    """

    def __init__(self, cluster: Cluster, lives: Lives, reservations: Reservations) -> None:
        self._cluster = cluster
        self._lives = lives
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
        seats = self._lives.seats_on(node.name)
        foreign = [pod for pod in there if not self._reservations.is_one(pod) and not self._has_seat(pod, seats)]
        seated = self._lives.held_on(node.name, lambda attempt: not seats[attempt])
        held = self._lives.held_on(node.name)
        return make_node(node, foreign, held, reserving, held - seated)

    def _has_seat(self, pod: PodSeen, seats: Counter[AttemptId]) -> bool:
        """Was it planned there? One of ours that somebody else has put there takes room like anybody's."""
        attempt = self._lives.whose(pod, self._cluster.root(pod))
        if attempt is None or not seats[attempt]:
            return False
        seats[attempt] -= 1
        return True
