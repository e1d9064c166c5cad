"""What of an attempt is there?"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from swell.engines.kubernetes.cluster import Cluster
from swell.engines.kubernetes.jobplaces import JobPlaces
from swell.engines.kubernetes.kinds import KINDS
from swell.engines.kubernetes.life import Life, is_there, uids
from swell.engines.kubernetes.numbering import number
from swell.engines.kubernetes.objects import ObjectSeen
from swell.engines.kubernetes.picture import RANK, NodeSeen, PodSeen, parse_number
from swell.engines.kubernetes.wanted import Seen, Wanted
from swell.model.cluster import NodeId

Document = dict[str, Any]


class Sight:
    """What the watches show, or what the API server has answered since.

    Thread-safe, for a life at one moment: a look writes what it finds into the memory it is given.
    """

    def __init__(self, cluster: Cluster, store: str, places: JobPlaces) -> None:
        self._cluster = cluster
        self._store = store
        self._places = places
        self._numbering = threading.Lock()  #: two that look at once must not give a pod two numbers

    def look(self, life: Life, nodes: Mapping[NodeId, NodeSeen]) -> Seen:
        present = frozenset(place.node for place in life.wanted.places.values() if is_there(nodes, place.node))
        if not life.has_object:
            pods = self._pods_of(life)
            return Seen(None, tuple((_rank(life, pod), pod) for pod in pods), present, self._departed(life, pods))
        memory = life.memory
        found = self._newest(life)
        if found is None:
            return Seen(None, tuple((None, pod) for pod in self._left(life)), present)
        if found.uid in memory.deleted:
            found = replace(found, is_deleting=True)
        memory.kind = f"{found.kind} {found.namespace}/{found.name}"
        kind = KINDS[found.kind]
        pods = self._cluster.pods_of_object(found.kind, found.namespace, found.name, uid=found.uid)
        ranked = tuple((kind.rank(pod, found), pod) for pod in pods if not _is_of_before(pod, found, life.wanted))
        if found.kind == "Job":
            with self._numbering:
                ranked = number(ranked, life.wanted, memory)
        return Seen(found, ranked, present)

    def _newest(self, life: Life) -> ObjectSeen | None:
        found, fresh = self._object_of(life), life.memory.fresh
        if fresh is None or (found is not None and found.uid != fresh.uid):
            return found
        is_newer = found is None or int(fresh.version) > int(found.version)
        if is_newer and fresh.uid not in life.memory.deleted:
            return fresh
        life.memory.fresh = None
        return found

    def _object_of(self, life: Life) -> ObjectSeen | None:
        if life.is_ours:
            objects = self._cluster.objects_of_job((self._store, str(life.wanted.attempt.job)))
            kind = life.document["kind"]
            mine = [one for one in objects if one.kind == kind and self._is_ours(life, one.namespace)]
            return mine[0] if mine else None
        metadata = life.document["metadata"]
        found = self._cluster.object(life.document["kind"], metadata["namespace"], metadata["name"])
        return found if found is not None and found.uid == metadata["uid"] else None

    def _is_ours(self, life: Life, namespace: str) -> bool:
        """A label is easily written elsewhere."""
        return self._places.may_hold(life.document, namespace)

    def _left(self, life: Life) -> list[PodSeen]:
        """Of an object that is gone: those that the garbage collector has not reached yet hold their room."""
        if life.is_ours:
            return self._made(life)
        metadata = life.document["metadata"]
        return self._cluster.pods_of_object(
            life.document["kind"], metadata["namespace"], metadata["name"], uid=metadata["uid"]
        )

    def _made(self, life: Life) -> list[PodSeen]:
        return self._cluster.pods_of_job((self._store, str(life.wanted.attempt.job)))

    def _departed(self, life: Life, pods: Iterable[PodSeen]) -> dict[int, PodSeen]:
        there = {pod.uid for pod in pods}
        gone = {rank: uid for rank, uid in life.memory.met.copy().items() if uid not in there}
        return {rank: pod for rank, uid in gone.items() if (pod := self._cluster.departed(uid)) is not None}

    def _pods_of(self, life: Life) -> list[PodSeen]:
        """Made by us, at first or again; before them those that came by kubectl."""
        ours = [pod for pod in self._made(life) if self._is_ours(life, pod.namespace)]
        return ours if life.is_ours else [*self._cluster.pods(uids(life.document)), *ours]


def _is_of_before(pod: PodSeen, found: ObjectSeen, wanted: Wanted) -> bool:
    """Has it ended in an earlier attempt, where that was told, and is only not gone yet?"""
    is_over = pod.has_ended and pod.is_deleting
    return is_over and found.attempt == wanted.attempt and pod.attempt != found.pods_attempt


def _rank(life: Life, pod: PodSeen) -> int | None:
    known = uids(life.document)
    return known.index(pod.uid) if pod.uid in known else parse_number(pod.annotations.get(RANK, "0"))
