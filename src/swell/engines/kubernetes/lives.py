"""Which attempts are there, what of them has changed, and which are to be looked after?"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any

from swell.engines.kubernetes.life import Life, roots
from swell.engines.kubernetes.picture import SCHEDULER, PodSeen, labelled_job
from swell.engines.kubernetes.wanted import Wanted
from swell.model.cluster import DeviceId, NodeId
from swell.model.job import AttemptId

Document = dict[str, Any]

BY_NUMBER = attrgetter("job", "number")  # comparing attempts themselves takes five times as long


class Lives:
    """Thread-safe: the controller, the watches and whoever makes the calls all come here."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._lock = threading.RLock()
        self._lives: dict[AttemptId, Life] = {}
        self._by_job: dict[int, AttemptId] = {}
        self._by_root: dict[str, AttemptId] = {}  #: of objects and pods that came by kubectl
        self._by_node: dict[NodeId, set[AttemptId]] = defaultdict(set)
        self._sharing: set[AttemptId] = set()  #: those that share GPUs
        self._limited: set[AttemptId] = set()  #: those with a time limit
        self._changed: set[AttemptId] = set()  #: to be told to the controller
        self._due: dict[AttemptId, None] = {}  #: to be looked after, in order
        self._stale_nodes: set[NodeId] = set()
        self.bell = threading.Event()  #: somebody is due

    # -- the controller's words --------------------------------------------------------------------------------------

    def find(self, attempt: AttemptId) -> Life | None:
        with self._lock:
            return self._lives.get(attempt)

    def begin(self, wanted: Wanted, document: Document) -> None:
        """Told again, it starts from what is seen; what was reported before is reported again."""
        with self._lock:
            life = self._lives.get(wanted.attempt)
            if life is None:
                life = Life(wanted, document)
                life.memory.kind = _called(life)
                self._lives[wanted.attempt] = life
                self._by_job[wanted.attempt.job] = wanted.attempt
                self._by_root |= dict.fromkeys(roots(document), wanted.attempt)
            else:
                self._stale_nodes |= _nodes(life)
                self._leave_nodes(life)
                life.wanted = replace(wanted, has_begun=wanted.has_begun or life.wanted.has_begun)
                life.reported.clear()
                life.run = None
            for node in _nodes(life):
                self._by_node[node].add(wanted.attempt)
            if any(wanted.shares_mib):
                self._sharing.add(wanted.attempt)
            if wanted.time_limit_s is not None:
                self._limited.add(wanted.attempt)
            self._touch(wanted.attempt, wanted.nodes)

    def stop(self, attempt: AttemptId, grace_s: float, generation: int) -> None:
        with self._lock:
            life = self._lives.get(attempt)
            if life is None:
                return
            if not (life.wanted.is_stopping and life.wanted.grace_s <= grace_s):
                life.wanted = replace(life.wanted, is_stopping=True, grace_s=grace_s, generation=generation)
                life.memory.deleted.clear()
            self._touch(attempt, ())

    def has_begun(self, life: Life) -> None:
        with self._lock:
            life.wanted = replace(life.wanted, has_begun=True)

    def forget(self, attempt: AttemptId) -> None:
        with self._lock:
            life = self._lives.pop(attempt, None)
            if life is None:
                return
            if self._by_job.get(attempt.job) == attempt:
                del self._by_job[attempt.job]
            for root in roots(life.document):
                if self._by_root.get(root) == attempt:  # another of its name may be known by it now
                    del self._by_root[root]
            self._changed.discard(attempt)
            self._due.pop(attempt, None)
            self._limited.discard(attempt)
            self._stale_nodes.update(life.wanted.nodes)
            self._leave_nodes(life)
            if attempt in self._sharing:
                self._sharing.discard(attempt)
                self.bell.set()  # the last one leaves a GPU behind

    def _leave_nodes(self, life: Life) -> None:
        for node in _nodes(life):
            self._by_node[node].discard(life.wanted.attempt)
            if not self._by_node[node]:
                del self._by_node[node]

    # -- whose turn it is ----------------------------------------------------------------------------------------------

    def touched(self, found: Iterable[tuple[Mapping[str, str], str]], nodes: Iterable[NodeId]) -> bool:
        """Labels and roots of what has changed in the cluster. Does it concern the controller?"""
        with self._lock:
            attempts = {self._attempt_of(labels, root) for labels, root in found}
            for attempt in attempts:
                if attempt is not None:
                    self._touch(attempt, ())
            self._stale_nodes.update(nodes)
            return bool(attempts - {None}) or bool(self._stale_nodes)

    def again(self, life: Life) -> None:
        """It is to be looked at once more."""
        with self._lock:
            if life.wanted.attempt in self._lives:
                self._due.setdefault(life.wanted.attempt)
                self._changed.add(life.wanted.attempt)

    def tell(self, life: Life) -> None:
        """Only the controller has to look."""
        with self._lock:
            self._changed.add(life.wanted.attempt)

    def take_changed(self) -> tuple[list[Life], set[NodeId]]:
        """Lives and nodes of which the controller has not been told."""
        with self._lock:
            changed, self._changed = self._changed, set()
            stale, self._stale_nodes = self._stale_nodes, set()
            return [self._lives[attempt] for attempt in sorted(changed, key=BY_NUMBER) if attempt in self._lives], stale

    def due(self) -> list[AttemptId]:
        with self._lock:
            return list(self._due)

    def take_due(self, attempt: AttemptId) -> Life | None:
        with self._lock:
            self._due.pop(attempt, None)
            return self._lives.get(attempt)

    def sharing(self) -> list[Wanted]:
        with self._lock:
            return [self._lives[attempt].wanted for attempt in self._sharing]

    def limited(self) -> list[Life]:
        with self._lock:
            return [self._lives[attempt] for attempt in self._limited]

    def not_begun(self) -> list[Life]:
        """Of which nothing has run yet."""
        with self._lock:
            return [life for life in self._lives.values() if not (life.wanted.has_begun or life.wanted.is_stopping)]

    def _touch(self, attempt: AttemptId, nodes: Iterable[NodeId]) -> None:
        self._changed.add(attempt)
        self._due.setdefault(attempt)
        self._stale_nodes.update(nodes)
        self.bell.set()

    # -- whose something is --------------------------------------------------------------------------------------------

    def is_active(self, job: int) -> bool:
        return job in self._by_job

    def whose(self, pod: PodSeen, root: str) -> AttemptId | None:
        """None: of no attempt that is there."""
        return self._attempt_of(pod.labels if pod.scheduler == SCHEDULER else {}, root)

    def seats_on(self, node: NodeId) -> Counter[AttemptId]:
        """How many pods of each attempt were planned there."""
        with self._lock:
            lives = [self._lives[attempt] for attempt in self._by_node.get(node, ())]
        return Counter(
            life.wanted.attempt for life in lives for place in life.wanted.lanes.values() if place.node == node
        )

    def held_on(self, node: NodeId, is_one: Callable[[AttemptId], bool] = lambda _: True) -> set[DeviceId]:
        """Devices that attempts have there: all, or those that are meant."""
        with self._lock:
            lives = [self._lives[attempt] for attempt in self._by_node.get(node, ()) if is_one(attempt)]
        places = (place for life in lives for place in life.wanted.lanes.values())
        return {device for place in places if place.node == node for device in place.devices}

    def _attempt_of(self, labels: Mapping[str, str], root: str) -> AttemptId | None:
        job = labelled_job(labels, self._store)
        return self._by_root.get(root) if job is None else self._by_job.get(job)


def _nodes(life: Life) -> set[NodeId]:
    return {place.node for place in life.wanted.lanes.values()}


def _called(life: Life) -> str:
    """Its object, in words; empty: it has none."""
    if not life.has_object:
        return ""
    kind, metadata = life.document["kind"], life.document["metadata"]
    return str(kind) if life.is_ours else f"{kind} {metadata['namespace']}/{metadata['name']}"
