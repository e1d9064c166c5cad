"""What of an attempt is there?"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace

from swell.engines.kubernetes.attempt.follow import number
from swell.engines.kubernetes.attempt.live_attempt import LEAST, LiveAttempt, is_there, member_loss, uids
from swell.engines.kubernetes.attempt.wanted import AttemptSeen, Wanted
from swell.engines.kubernetes.objects.kinds import KINDS
from swell.engines.kubernetes.objects.objects import JobPlaces, ObjectSeen
from swell.engines.kubernetes.watch.cluster import Cluster
from swell.engines.kubernetes.watch.observed_objects import RANK, NodeSeen, PodSeen, parse_number
from swell.model.cluster import NodeId
from swell.model.member_loss import MemberLoss


class AttemptObserver:
    """What the watches show, or what the API server has answered since.

    Thread-safe, for a `LiveAttempt` at one moment: a look writes what it finds into the memory it is given.
    """

    def __init__(self, cluster: Cluster, store: str, places: JobPlaces) -> None:
        self._cluster = cluster
        self._store = store
        self._places = places
        self._numbering = threading.Lock()  #: two that look at once must not give a pod two numbers

    def look(self, live: LiveAttempt, nodes: Mapping[NodeId, NodeSeen]) -> AttemptSeen:
        seen = self._look(live, nodes)
        namespace = self._places.namespace(live.document)
        return replace(seen, ending=namespace) if self._cluster.is_ending(namespace) else seen

    def _look(self, live: LiveAttempt, nodes: Mapping[NodeId, NodeSeen]) -> AttemptSeen:
        present = frozenset(place.node for place in live.wanted.places.values() if is_there(nodes, place.node))
        if not live.origin.has_object:
            pods = self._pods_of(live)
            ranked = tuple((_rank(live, pod), pod) for pod in pods)
            seen = AttemptSeen(None, ranked, present, self._departed(live, pods))
            loss = member_loss(live.document)
            return seen if loss is MemberLoss.RESTART else self._with_loss(live, seen, loss, nodes)
        memory = live.memory
        found = self._newest(live)
        if found is None:
            return AttemptSeen(None, tuple((None, pod) for pod in self._left(live)), present)
        if found.uid in memory.deleted:
            found = replace(found, is_deleting=True)
        memory.kind = f"{found.kind} {found.namespace}/{found.name}"
        kind = KINDS[found.kind]
        pods = self._cluster.pods_of_object(found.kind, found.namespace, found.name, uid=found.uid)
        ranked = tuple((kind.rank(pod, found), pod) for pod in pods if not _is_of_before(pod, found, live.wanted))
        if kind.is_job:
            with self._numbering:
                ranked = number(ranked, live.wanted, memory)
        return AttemptSeen(found, ranked, present)

    def _with_loss(
        self, live: LiveAttempt, seen: AttemptSeen, loss: MemberLoss, nodes: Mapping[NodeId, NodeSeen]
    ) -> AttemptSeen:
        if loss is MemberLoss.GO_ON and not self._goes_on(live, seen):
            return seen
        if loss is MemberLoss.WAIT and not _is_one_left(seen):
            return seen  # all of them are gone, as with a StatefulSet that was deleted: nobody is left to wait
        places = live.wanted.places.values()
        closed = frozenset(place.node for place in places if place.node in nodes and nodes[place.node].is_cordoned)
        return replace(seen, on_loss=loss, closed=closed if loss is MemberLoss.WAIT else frozenset())

    def _goes_on(self, live: LiveAttempt, seen: AttemptSeen) -> bool:
        """Are as many left of the group as must run together, and one of this job? Who has succeeded counts."""
        metadata = live.document["metadata"]
        members = self._cluster.pods_of_group(metadata["namespace"], metadata["name"])
        left = [pod for pod in members if pod.phase == "Succeeded" or (pod.node and not _is_leaving(pod))]
        done = sum(pod.phase == "Succeeded" for pod in seen.departed.values())
        is_one_here = any(pod in left for pod in seen.staying.values())
        return is_one_here and len(left) + done >= live.document.get(LEAST, len(live.wanted.places))

    def _newest(self, live: LiveAttempt) -> ObjectSeen | None:
        found, fresh = self._object_of(live), live.memory.fresh
        if fresh is None or (found is not None and found.uid != fresh.uid):
            return found
        is_newer = found is None or int(fresh.version) > int(found.version)
        if is_newer and fresh.uid not in live.memory.deleted:
            return fresh
        live.memory.fresh = None
        return found

    def _object_of(self, live: LiveAttempt) -> ObjectSeen | None:
        if live.origin.is_ours:
            objects = self._cluster.objects_of_job((self._store, str(live.wanted.attempt.job)))
            kind = live.document["kind"]
            mine = [one for one in objects if one.kind == kind and self._is_ours(live, one.namespace)]
            return mine[0] if mine else None
        metadata = live.document["metadata"]
        found = self._cluster.object(live.document["kind"], metadata["namespace"], metadata["name"])
        return found if found is not None and found.uid == metadata["uid"] else None

    def _is_ours(self, live: LiveAttempt, namespace: str) -> bool:
        """A label is easily written elsewhere."""
        return self._places.may_hold(live.document, namespace)

    def _left(self, live: LiveAttempt) -> list[PodSeen]:
        """Of an object that is gone: those that the garbage collector has not reached yet hold their room."""
        if live.origin.is_ours:
            return self._made(live)
        metadata = live.document["metadata"]
        return self._cluster.pods_of_object(
            live.document["kind"], metadata["namespace"], metadata["name"], uid=metadata["uid"]
        )

    def _made(self, live: LiveAttempt) -> list[PodSeen]:
        there = self._cluster.pods_of_job((self._store, str(live.wanted.attempt.job)))
        return [pod for pod in there if self._is_ours(live, pod.namespace)]

    def _departed(self, live: LiveAttempt, pods: Iterable[PodSeen]) -> dict[int, PodSeen]:
        there = {pod.uid for pod in pods}
        gone = {rank: uid for rank, uid in live.memory.met.copy().items() if uid not in there}
        return {rank: pod for rank, uid in gone.items() if (pod := self._cluster.departed(uid)) is not None}

    def _pods_of(self, live: LiveAttempt) -> list[PodSeen]:
        """Made by us, at first or again; before them those that came by kubectl."""
        ours = self._made(live)
        return ours if live.origin.is_ours else [*self._cluster.pods(uids(live.document)), *ours]


def _is_one_left(seen: AttemptSeen) -> bool:
    """A member that stays, or that has done its work."""
    return bool(seen.staying) or any(pod.phase == "Succeeded" for pod in seen.departed.values())


def _is_of_before(pod: PodSeen, found: ObjectSeen, wanted: Wanted) -> bool:
    """Has it ended in an earlier attempt, where that was told, and is only not gone yet?"""
    is_over = pod.has_ended and pod.is_deleting
    return is_over and found.attempt == wanted.attempt and pod.attempt != found.pods_attempt


def _is_leaving(pod: PodSeen) -> bool:
    return pod.is_deleting or pod.has_ended


def _rank(live: LiveAttempt, pod: PodSeen) -> int | None:
    known = uids(live.document)
    return known.index(pod.uid) if pod.uid in known else parse_number(pod.annotations.get(RANK, "0"))
