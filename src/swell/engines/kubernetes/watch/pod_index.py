"""Which pods belong together?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, TypeVar

from swell.engines.kubernetes.watch.observed_objects import JOB, JOBSET_NAME, RESERVATION, STAND_IN, PodSeen
from swell.engines.kubernetes.watch.unreadable import STORE

K = TypeVar("K")
Index = dict[K, set[str]]  # → uids
JobKey = tuple[str, str]  # store, job
DEPARTED_MAX = 2000  # each is looked for within a moment, or never


class PodIndex:
    """All pods, by what they are asked for. Not thread-safe: its cluster is."""

    def __init__(self) -> None:
        self._pods: dict[str, PodSeen] = {}
        self.waiting: dict[str, PodSeen] = {}  #: those that came by kubectl and are to be placed by us
        self.by_job: Index[JobKey] = defaultdict(set)
        self.by_owner: Index[str] = defaultdict(set)
        self.by_set: Index[tuple[str, str]] = defaultdict(set)
        self.by_group: Index[tuple[str, str]] = defaultdict(set)
        self.by_node: Index[str] = defaultdict(set)
        self.reserving: Index[str] = defaultdict(set)
        self.stand_ins: Index[str] = defaultdict(set)
        self.promised: Index[str] = defaultdict(set)  #: by node: those that are being bound there
        self._promised_to: dict[str, str] = {}  #: uid → node
        self.departed: dict[str, PodSeen] = {}  #: uid → how it had ended before it was deleted; the last of them

    def of(self, uids: Iterable[str]) -> list[PodSeen]:
        """Those of them that are there."""
        return [self._pods[uid] for uid in uids if uid in self._pods]

    def keep(self, pod: PodSeen) -> None:
        self._pods[pod.uid] = pod
        if pod.document is not None and not pod.has_ended and not pod.is_deleting:
            self.waiting[pod.uid] = pod
        if pod.node or pod.has_ended:
            self.break_promise(pod.uid)
        for index, key in self._keys(pod):
            index[key].add(pod.uid)

    def drop(self, pod: PodSeen) -> None:
        self._pods.pop(pod.uid, None)
        self.waiting.pop(pod.uid, None)
        for index, key in self._keys(pod):
            _discard(index, key, pod.uid)

    def depart(self, pod: PodSeen) -> None:
        """It is gone. Whoever has not looked since it ended can still learn how."""
        if pod.ended is not None:
            self.departed[pod.uid] = pod
            if len(self.departed) > DEPARTED_MAX:
                del self.departed[next(iter(self.departed))]

    def promise(self, uid: str, node: str) -> None:
        """Until it is seen where it is, has gone, or the promise is broken."""
        self.break_promise(uid)
        self._promised_to[uid] = node
        self.promised[node].add(uid)

    def break_promise(self, uid: str) -> None:
        node = self._promised_to.pop(uid, None)
        if node is not None:
            _discard(self.promised, node, uid)

    def _keys(self, pod: PodSeen) -> Iterable[tuple[Index[Any], Any]]:
        if JOB in pod.labels:
            yield self.by_job, (pod.labels.get(STORE, ""), pod.labels[JOB])
        if RESERVATION in pod.labels:
            yield self.reserving, pod.labels.get(STORE, "")
        if STAND_IN in pod.labels:
            yield self.stand_ins, pod.labels.get(STORE, "")
        if pod.owner is not None:
            yield self.by_owner, pod.owner.uid
        if JOBSET_NAME in pod.labels:
            yield self.by_set, (pod.namespace, pod.labels[JOBSET_NAME])
        if pod.group:
            yield self.by_group, (pod.namespace, pod.group)
        if pod.node and not pod.has_ended:
            yield self.by_node, pod.node


def _discard(index: Index[K], key: K, uid: str) -> None:
    found = index.get(key)
    if found is not None:
        found.discard(uid)
        if not found:
            del index[key]
