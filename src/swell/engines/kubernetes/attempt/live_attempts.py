"""Which attempts are there, what of them has changed, and which are to be looked after?"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from operator import attrgetter

from swell.engines.kubernetes.attempt.live_attempt import LiveAttempt, roots
from swell.engines.kubernetes.attempt.wanted import Wanted
from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.objects.objects import JobPlaces
from swell.engines.kubernetes.watch.observed_objects import PodSeen, labelled_job
from swell.engines.kubernetes.watch.unreadable import SCHEDULER
from swell.model.cluster import DeviceId, NodeId
from swell.model.job import AttemptId

BY_NUMBER = attrgetter("job", "number")  # comparing attempts themselves takes five times as long


class LiveAttempts:
    """Thread-safe: the controller, the watches and whoever makes the calls all come here."""

    def __init__(self, store: str, places: JobPlaces) -> None:
        self._store = store
        self._places = places
        self._lock = threading.RLock()
        self._attempts: dict[AttemptId, LiveAttempt] = {}
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

    def find(self, attempt: AttemptId) -> LiveAttempt | None:
        with self._lock:
            return self._attempts.get(attempt)

    def begin(self, wanted: Wanted, document: Document) -> None:
        """Told again, it starts from what is seen; what was reported before is reported again."""
        with self._lock:
            live = self._attempts.get(wanted.attempt)
            if live is None:
                live = LiveAttempt(wanted, document)
                live.memory.kind = _called(live)
                self._attempts[wanted.attempt] = live
                self._by_job[wanted.attempt.job] = wanted.attempt
                self._by_root |= dict.fromkeys(roots(document), wanted.attempt)
            else:
                self._stale_nodes |= _nodes(live)
                self._leave_nodes(live)
                live.wanted = replace(
                    wanted,
                    has_begun=wanted.has_begun or live.wanted.has_begun,
                    emptied=wanted.emptied | live.wanted.emptied,
                )
                live.reported.clear()
                live.run = None
            for node in _nodes(live):
                self._by_node[node].add(wanted.attempt)
            if any(wanted.shares_mib):
                self._sharing.add(wanted.attempt)
            if wanted.time_limit_s is not None:
                self._limited.add(wanted.attempt)
            self._touch(wanted.attempt, wanted.nodes)

    def stop(self, attempt: AttemptId, grace_s: float, generation: int, *, evicts: bool = False) -> None:
        with self._lock:
            live = self._attempts.get(attempt)
            if live is None:
                return
            known = live.wanted
            is_sterner = known.evicts and not evicts  # cancelled since: nobody guards it any more
            if not known.is_stopping or known.grace_s > grace_s or is_sterner:
                live.wanted = replace(known, is_stopping=True, grace_s=grace_s, generation=generation, evicts=evicts)
                live.memory.deleted.clear()
            self._touch(attempt, ())

    def has_begun(self, live: LiveAttempt) -> None:
        with self._lock:
            live.wanted = replace(live.wanted, has_begun=True)

    def have_ended(self, live: LiveAttempt, ranks: Iterable[int]) -> None:
        """These need their room no more, whatever becomes of the others."""
        with self._lock:
            live.wanted = replace(live.wanted, emptied=live.wanted.emptied.union(ranks))
            self._stale_nodes |= _nodes(live)

    def take_stale(self) -> set[NodeId]:
        """Nodes on which something has changed since they were looked at."""
        with self._lock:
            stale, self._stale_nodes = self._stale_nodes, set()
            return stale

    def forget(self, attempt: AttemptId) -> None:
        with self._lock:
            live = self._attempts.pop(attempt, None)
            if live is None:
                return
            if self._by_job.get(attempt.job) == attempt:
                del self._by_job[attempt.job]
            for root in roots(live.document):
                if self._by_root.get(root) == attempt:  # another of its name may be known by it now
                    del self._by_root[root]
            self._changed.discard(attempt)
            self._due.pop(attempt, None)
            self._limited.discard(attempt)
            self._stale_nodes.update(live.wanted.nodes)
            self._leave_nodes(live)
            if attempt in self._sharing:
                self._sharing.discard(attempt)
                self.bell.set()  # the last one leaves a GPU behind

    def _leave_nodes(self, live: LiveAttempt) -> None:
        for node in _nodes(live):
            self._by_node[node].discard(live.wanted.attempt)
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

    def again(self, live: LiveAttempt) -> None:
        """It is to be looked at once more."""
        with self._lock:
            if live.wanted.attempt in self._attempts:
                self._due.setdefault(live.wanted.attempt)
                self._changed.add(live.wanted.attempt)

    def tell(self, live: LiveAttempt) -> None:
        """Only the controller has to look."""
        with self._lock:
            self._changed.add(live.wanted.attempt)

    def take_changed(self) -> tuple[list[LiveAttempt], set[NodeId]]:
        """Lives and nodes of which the controller has not been told."""
        with self._lock:
            changed, self._changed = self._changed, set()
            stale, self._stale_nodes = self._stale_nodes, set()
            return [
                self._attempts[attempt] for attempt in sorted(changed, key=BY_NUMBER) if attempt in self._attempts
            ], stale

    def due(self) -> list[AttemptId]:
        with self._lock:
            return list(self._due)

    def take_due(self, attempt: AttemptId) -> LiveAttempt | None:
        with self._lock:
            self._due.pop(attempt, None)
            return self._attempts.get(attempt)

    def sharing(self) -> list[Wanted]:
        with self._lock:
            return [self._attempts[attempt].wanted for attempt in self._sharing]

    def limited(self) -> list[LiveAttempt]:
        with self._lock:
            return [self._attempts[attempt] for attempt in self._limited]

    def not_begun(self) -> list[LiveAttempt]:
        """Of which nothing has run yet."""
        with self._lock:
            return [live for live in self._attempts.values() if not (live.wanted.has_begun or live.wanted.is_stopping)]

    def _touch(self, attempt: AttemptId, nodes: Iterable[NodeId]) -> None:
        self._changed.add(attempt)
        self._due.setdefault(attempt)
        self._stale_nodes.update(nodes)
        self.bell.set()

    # -- whose something is --------------------------------------------------------------------------------------------

    def is_active(self, job: int) -> bool:
        return job in self._by_job

    def whose(self, pod: PodSeen, root: str) -> AttemptId | None:
        """None: of no attempt that is there. Labels count where the job is: they are easily written elsewhere."""
        found = self._attempt_of(pod.labels if pod.scheduler == SCHEDULER else {}, root)
        live = None if found is None else self.find(found)
        if live is None or self._places.may_hold(live.document, pod.namespace):
            return found
        return self._by_root.get(root)

    def seats_on(self, node: NodeId) -> Counter[AttemptId]:
        """How many pods of each attempt were planned there."""
        with self._lock:
            live_attempts = [self._attempts[attempt] for attempt in self._by_node.get(node, ())]
        return Counter(
            live.wanted.attempt for live in live_attempts for place in live.wanted.held if place.node == node
        )

    def held_on(self, node: NodeId, is_one: Callable[[AttemptId], bool] = lambda _: True) -> set[DeviceId]:
        """Devices that attempts have there: all, or those that are meant."""
        with self._lock:
            live_attempts = [self._attempts[attempt] for attempt in self._by_node.get(node, ()) if is_one(attempt)]
        places = (place for live in live_attempts for place in live.wanted.held)
        return {device for place in places if place.node == node for device in place.devices}

    def _attempt_of(self, labels: Mapping[str, str], root: str) -> AttemptId | None:
        job = labelled_job(labels, self._store)
        return self._by_root.get(root) if job is None else self._by_job.get(job)


def _nodes(live: LiveAttempt) -> set[NodeId]:
    return {place.node for place in live.wanted.lanes.values()}


def _called(live: LiveAttempt) -> str:
    """Its object, in words; empty: it has none."""
    if not live.origin.has_object:
        return ""
    kind, metadata = live.document["kind"], live.document["metadata"]
    return str(kind) if live.origin.is_ours else f"{kind} {metadata['namespace']}/{metadata['name']}"
