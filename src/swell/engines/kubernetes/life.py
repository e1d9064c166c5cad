"""What is an attempt from its start until it is forgotten, and what is said of it?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from swell.engines.kubernetes.cluster import set_root
from swell.engines.kubernetes.hands import POD_KINDS
from swell.engines.kubernetes.logstream import PodLog
from swell.engines.kubernetes.picture import NodeSeen
from swell.engines.kubernetes.sheet import Followed
from swell.engines.kubernetes.wanted import Memory, Seen, Wanted
from swell.model.cluster import NodeId
from swell.model.job import AttemptId
from swell.model.launch import RunSeen, TaskSeen

Document = dict[str, Any]


@dataclass(slots=True)
class Life:
    """An attempt from its start until it is forgotten."""

    wanted: Wanted
    document: Document  #: its manifest
    memory: Memory = field(default_factory=Memory)
    reported: dict[int, TaskSeen] = field(default_factory=dict)
    run: Followed | None = None
    finished_at: float | None = None  #: None: it has not

    def at_this_moment(self) -> Life:
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
    def is_ours(self) -> bool:
        """Made by us, so that we may make and remove it; a manifest with a uid is somebody else's object."""
        return "uid" not in self.document["metadata"]

    @property
    def remakes(self) -> bool:
        """Plain pods of somebody else, of which an earlier attempt took away what it had bound."""
        pods = self.document.get("pods") or ()
        return self.wanted.attempt.number > 1 and bool(pods) and all("document" in pod for pod in pods)

    @property
    def has_object(self) -> bool:
        return self.document["kind"] not in POD_KINDS


def roots(document: Document) -> list[str]:
    """What pods and objects of it are known by (`Cluster.root`)."""
    metadata = document["metadata"]
    if document["kind"] != "JobSet" or "uid" not in metadata:
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


def logs_of(attempt: AttemptId, seen: Seen, nodes: Mapping[NodeId, NodeSeen]) -> Iterator[tuple[PodLog, bool]]:
    """What its pods have written that somebody can be asked for, and whether they have ended."""
    for rank, pod in seen.pods:
        has_run = pod.started_at is not None if pod.ended is None else pod.ended.has_run
        node = nodes.get(pod.node)
        if rank is not None and has_run and (node is None or node.has_address):
            yield PodLog(attempt, rank, pod.namespace, pod.name, pod.uid, pod.node), pod.ended is not None
