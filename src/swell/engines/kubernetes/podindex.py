"""Which pods belong together?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, TypeVar

from swell.engines.kubernetes.picture import JOB, JOBSET_NAME, POD_GROUP, RESERVATION, STAND_IN, STORE, PodSeen

K = TypeVar("K")
Index = dict[K, set[str]]  # → uids
JobKey = tuple[str, str]  # store, job


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

    def of(self, uids: Iterable[str]) -> list[PodSeen]:
        """Those of them that are there."""
        return [self._pods[uid] for uid in uids if uid in self._pods]

    def keep(self, pod: PodSeen) -> None:
        self._pods[pod.uid] = pod
        if pod.document is not None and not pod.has_ended and not pod.is_deleting:
            self.waiting[pod.uid] = pod
        for index, key in self._keys(pod):
            index[key].add(pod.uid)

    def drop(self, pod: PodSeen) -> None:
        self._pods.pop(pod.uid, None)
        self.waiting.pop(pod.uid, None)
        for index, key in self._keys(pod):
            found = index.get(key)
            if found is not None:
                found.discard(pod.uid)
                if not found:
                    del index[key]

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
        if POD_GROUP in pod.labels:
            yield self.by_group, (pod.namespace, pod.labels[POD_GROUP])
        if pod.node and not pod.has_ended:
            yield self.by_node, pod.node
