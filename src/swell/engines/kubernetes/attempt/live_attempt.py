"""What is an attempt from its start until it is forgotten, and what is said of it?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from swell.engines.kubernetes.attempt.api_calls import POD_KINDS
from swell.engines.kubernetes.attempt.origin import Origin
from swell.engines.kubernetes.attempt.state import Followed
from swell.engines.kubernetes.attempt.wanted import AttemptMemory, AttemptSeen, Wanted
from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.logs.stream import PodLog
from swell.engines.kubernetes.objects.kinds import KINDS
from swell.engines.kubernetes.watch.cluster import set_root
from swell.engines.kubernetes.watch.observed_objects import NodeSeen
from swell.model.cluster import NodeId
from swell.model.job import AttemptId
from swell.model.launch import RunSeen, TaskSeen
from swell.model.member_loss import MemberLoss

LEAST = "minMember"  # in the reference of a pod group: how many of it must run together
ON_LOSS = "onMemberLost"  # likewise: what becomes of the others when one is deleted


@dataclass(slots=True)
class LiveAttempt:
    """An attempt from its start until it is forgotten."""

    wanted: Wanted
    document: Document  #: its manifest
    memory: AttemptMemory = field(default_factory=AttemptMemory)
    reported: dict[int, TaskSeen] = field(default_factory=dict)
    run: Followed | None = None
    finished_at: float | None = None  #: None: it has not

    def at_this_moment(self) -> LiveAttempt:
        """For whoever makes no calls: what those that do write meanwhile was not seen here, nor is it written over.

        Numbers that are given to pods are shared: they hold for everybody.
        """
        memory = self.memory
        own = replace(
            memory,
            bound=dict(memory.bound),
            shared=dict(memory.shared),
            met=dict(memory.met),
            deleted=set(memory.deleted),
        )
        return replace(self, memory=own)

    @property
    def origin(self) -> Origin:
        """A manifest with a uid is somebody else's object; one without is ours to make and remove."""
        is_ours = "uid" not in self.document["metadata"]
        if self.document["kind"] not in POD_KINDS:
            return Origin.OUR_OBJECT if is_ours else Origin.FOUND_OBJECT
        if is_ours:
            return Origin.OUR_PODS
        pods = self.document.get("pods") or ()
        was_taken = self.wanted.attempt.number > 1 and bool(pods) and all("document" in pod for pod in pods)
        return Origin.REMADE_PODS if was_taken else Origin.FOUND_PODS


def member_loss(document: Document) -> MemberLoss:
    """As the reference of a pod group says; other jobs have no members that are lost one by one."""
    return MemberLoss(document.get(ON_LOSS, MemberLoss.RESTART))


def roots(document: Document) -> list[str]:
    """What pods and objects of it are known by (`Cluster.root`)."""
    metadata = document["metadata"]
    if document["kind"] in POD_KINDS or not KINDS[document["kind"]].makes_jobs or "uid" not in metadata:
        return uids(document)
    return [*uids(document), *(set_root(metadata["namespace"], metadata["name"], uid) for uid in (metadata["uid"], ""))]


def uids(document: Document) -> list[str]:
    """Of what came by kubectl: the object, or its pods."""
    pods = document.get("pods")
    if pods is not None:
        return [pod["uid"] for pod in pods]
    uid = document["metadata"].get("uid")
    return [] if uid is None else [uid]


def is_there(nodes: Mapping[NodeId, NodeSeen], name: NodeId) -> bool:
    node = nodes.get(name)
    return node is not None and node.is_ready


def differs(one: Followed, other: Followed) -> bool:
    """Beside their tasks, which are told one by one."""
    return replace(one, tasks=()) != replace(other, tasks=())


def make_run(wanted: Wanted, found: Followed, node: NodeId) -> RunSeen:
    mine = {number for number, place in wanted.lanes.items() if place.node == node}
    in_use = tuple(number for number in found.in_use if number in mine)
    return RunSeen(
        wanted.attempt,
        node,
        wanted.revision,
        in_use,
        found.left,
        found.is_finished,
        trouble=found.trouble,
        suspended=found.suspended,
    )


def logs_of(attempt: AttemptId, seen: AttemptSeen, nodes: Mapping[NodeId, NodeSeen]) -> Iterator[tuple[PodLog, bool]]:
    """What its pods have written that somebody can be asked for, and whether they have ended."""
    for rank, pod in seen.pods:
        has_run = pod.started_at is not None if pod.ended is None else pod.ended.has_run
        node = nodes.get(pod.node)
        if rank is not None and has_run and (node is None or node.has_address):
            yield PodLog(attempt, rank, pod.namespace, pod.name, pod.uid, pod.node), pod.ended is not None
