"""Which pods that came by kubectl are one job, and which of them may start now?

Those of one object that we read are one job, and every pod without a group's label is a job by itself. How many of a
group start together is said by its pods, or by an object (`group_sizes.py`); when nobody says it, the group is whole
when for a while none has come.

One rule for members, whenever they come, go or are replaced:

1. So many as the group says start together, first by name. They are one job.
2. Once so many are placed and stay, each further member is a job by itself: it starts when there is room for it.
3. A member that was placed counts as long as all that were placed with it stay. When one of them is deleted, they stop
   together, so whoever replaces it waits until enough are there to begin again (`adoption.py`).

While members that start together wait for room, further ones wait behind them, or they would take that room.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from swell.engines.kubernetes.client.api_client import ApiClient
from swell.engines.kubernetes.objects.kinds import KINDS
from swell.engines.kubernetes.objects.pod_group_name import LWS_NAME, LWS_WORKER
from swell.engines.kubernetes.watch.cluster import Cluster
from swell.engines.kubernetes.watch.observed_objects import (
    JOBSET_NAME,
    MPI_OPERATOR,
    OPERATOR,
    OPERATOR_JOB,
    PodSeen,
)
from swell.kubectl.group_sizes import GroupSizes
from swell.model.kind import JOBSET, MPIJOB

SETTLED_S = 2.0  # a group of which nobody says how many it has is whole when for so long none has come


@dataclass(frozen=True, slots=True)
class PodGroup:
    """Pods that are one job."""

    kind: str  #: of the object that makes them; Pod: by itself; PodGroup: by a label
    namespace: str
    name: str
    uid: str  #: of the object or the pod; empty: only a name is known
    is_remade: bool = False  #: of a label: their controllers make others, so they are no job together with plain pods


def group_of(pod: PodSeen) -> PodGroup:
    if JOBSET_NAME in pod.labels:
        return PodGroup(JOBSET.name, pod.namespace, pod.labels[JOBSET_NAME], "")
    if _is_of_mpijob(pod):
        return PodGroup(MPIJOB.name, pod.namespace, pod.labels[OPERATOR_JOB], "")
    if pod.owner is not None and pod.owner.kind in KINDS and pod.owner.kind != MPIJOB.name:
        return PodGroup(pod.owner.kind, pod.namespace, pod.owner.name, pod.owner.uid)
    if pod.group:
        return PodGroup("PodGroup", pod.namespace, pod.group, "", is_remade=pod.owner is not None)
    return PodGroup("Pod", pod.namespace, pod.name, pod.uid)


def _is_of_mpijob(pod: PodSeen) -> bool:
    """Launcher and workers have different owners; those in a pod group start with that."""
    is_made = pod.labels.get(OPERATOR) == MPI_OPERATOR and pod.labels.get(OPERATOR_JOB) is not None
    return is_made and pod.owner is not None and not pod.group


@dataclass(frozen=True, slots=True)
class GroupStart:
    """What becomes of the members of a group that are not taken in yet."""

    jobs: tuple[tuple[PodSeen, ...], ...] = ()  #: the members of each start together
    waits: str = ""  #: what the others wait for; empty: there are none
    least: int | None = None  #: how many of the group start together; None: nobody says


class PodGroups:
    def __init__(
        self,
        port: ApiClient,
        cluster: Cluster,
        is_taken: Callable[[PodSeen], bool],
        ahead: Callable[[Sequence[PodSeen]], int],
        staying: Callable[[Sequence[PodSeen]], list[PodSeen]],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._cluster = cluster
        self._is_taken = is_taken  #: is it of a job already?
        self._ahead = ahead  #: how many of them are of a job that has not ended
        self._staying = staying  #: those of them with which all stay that were placed together with them
        self._now = now
        self._sizes = GroupSizes(port, now)

    def start(self, group: PodGroup, pods: list[PodSeen]) -> GroupStart:
        """`pods`: the members of a group that are not taken in yet."""
        members = self._cluster.pods_of_group(group.namespace, group.name)
        living = [pod for pod in members if not (pod.has_ended or pod.is_deleting)]
        waiting = [pod for pod in living if not pod.node and pod.document is not None and not self._is_taken(pod)]
        placed = self._staying([pod for pod in living if pod.node])
        ahead = self._ahead([pod for pod in living if not pod.node])
        said = self._sizes.of(pods[0].document or {}, group.namespace, group.name)
        if said.missing:
            return GroupStart((), said.missing)
        size = said.size
        known = {pod.uid for pod in pods}
        is_old = any(group_of(pod) == group and pod.uid not in known for pod in waiting)
        if size is None:
            is_whole = self._now() - max(pod.created_at for pod in pods) >= SETTLED_S
        else:
            is_whole = len(placed) + len(waiting) >= size
        if size is not None and ahead and len(placed) < size:
            return GroupStart((), _after(group, ahead), size)
        if not is_whole or is_old:  # one that came since `pods` were looked for would be left alone
            is_still = self._now() - max(pod.created_at for pod in pods) >= SETTLED_S
            hint = _hint(waiting) if is_still and not is_whole and living == waiting else ""
            return GroupStart((), _incomplete(group, size, len(placed) + len(waiting)) + hint, size)
        if size is None:
            return GroupStart((tuple(pods),))
        if len(placed) >= size:
            return GroupStart(tuple((pod,) for pod in in_name_order(pods)), "", size)
        first = {pod.uid for pod in in_name_order(waiting)[: size - len(placed)]}
        together = tuple(pod for pod in pods if pod.uid in first)
        waits = _after(group, len(first)) if len(together) < len(pods) else ""
        return GroupStart((together,) if together else (), waits, size)


def _incomplete(group: PodGroup, size: int | None, there: int) -> str:
    of = "" if size is None else f" of {size}"
    return f"{there}{of} pods of the group {group.name!r} are there; they start together when it is whole"


ONE_BY_ONE = (
    "; StatefulSet {!r} makes the next pod only when this one is ready, unless it has podManagementPolicy: Parallel: "
    "delete it and create it again with that"
)
LEADER_FIRST = (
    "; LeaderWorkerSet {!r} makes the workers only when the leader is ready if it has startupPolicy: LeaderReady: "
    "write startupPolicy: LeaderCreated"
)


def _hint(waiting: Sequence[PodSeen]) -> str:
    """What to change where whoever makes the pods waits for the first to be ready, which waits for the others."""
    labels = [((pod.document or {}).get("metadata") or {}).get("labels") or {} for pod in waiting]
    if len(labels) == 1 and labels[0].get(LWS_WORKER) == "0":
        return LEADER_FIRST.format(labels[0].get(LWS_NAME, ""))
    sets = [pod.owner.name for pod in waiting if pod.owner is not None and pod.owner.kind == "StatefulSet"]
    return ONE_BY_ONE.format(sets[0]) if sets and len(sets) == len(set(sets)) else ""


def _after(group: PodGroup, count: int) -> str:
    return f"{count} pods of the group {group.name!r} start before this one; it starts after they are placed"


def in_name_order(pods: Iterable[PodSeen]) -> list[PodSeen]:
    """Numbers in names by their value: worker-2 before worker-10."""
    return sorted(pods, key=lambda pod: [_numbered(part) for part in re.split(r"(\d+)", pod.name)])


def _numbered(part: str) -> tuple[int, str]:
    return (int(part), "") if part.isdecimal() else (-1, part)
