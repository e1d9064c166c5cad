"""Which pods that came by kubectl are one job, and are they all there?

Those of one object that we read are, so are those with one group's label, and every other pod is a job by itself. How
many of a group start together is said by coscheduling's PodGroup (`minMember`) or by Fluence's label; when nobody says
it, the group is whole when for a while none has come.

As with coscheduling, members that are placed count: once so many are, whoever comes later, or again, waits for nobody.
Those that are taken in and still wait do not count, or the late ones would take the room that the first need.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from swell.engines.kubernetes.cluster import Cluster
from swell.engines.kubernetes.kinds import KINDS
from swell.engines.kubernetes.picture import JOBSET_NAME, POD_GROUP, PodSeen
from swell.engines.kubernetes.port import Port, Selection
from swell.engines.kubernetes.resources import NotServed
from swell.engines.kubernetes.unreadable import readable
from swell.errors import NotFound

Document = dict[str, Any]
GROUP_SIZE = "fluence.group-size"
GROUP_API = "scheduling.x-k8s.io/v1alpha1"
SETTLED_S = 2.0  # a group of which nobody says how many it has is whole when for so long none has come
LISTED_S = 5.0  # so long a list of groups is believed
LIST_AGAIN_S = 0.2  # where one is missing in it


@dataclass(frozen=True, slots=True)
class Group:
    """Pods that are one job."""

    kind: str  #: of the object that makes them; Pod: by itself; PodGroup: by a label
    namespace: str
    name: str
    uid: str  #: of the object or the pod; empty: only a name is known
    is_remade: bool = False  #: of a label: their controllers make others, so they are no job together with plain pods


def group_of(pod: PodSeen) -> Group:
    if JOBSET_NAME in pod.labels:
        return Group("JobSet", pod.namespace, pod.labels[JOBSET_NAME], "")
    if pod.owner is not None and pod.owner.kind in KINDS:
        return Group(pod.owner.kind, pod.namespace, pod.owner.name, pod.owner.uid)
    if POD_GROUP in pod.labels:
        return Group("PodGroup", pod.namespace, pod.labels[POD_GROUP], "", is_remade=pod.owner is not None)
    return Group("Pod", pod.namespace, pod.name, pod.uid)


class PodGroups:
    def __init__(
        self,
        port: Port,
        cluster: Cluster,
        is_taken: Callable[[PodSeen], bool],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._port = port
        self._cluster = cluster
        self._is_taken = is_taken  #: is it of a job already?
        self._now = now
        #: Namespace → when its groups were listed, and how many of each start together.
        self._listed: dict[str, tuple[float, dict[str, int]]] = {}

    def missing(self, group: Group, pods: list[PodSeen]) -> str | None:
        """Why those of a group that are not taken in yet wait for others; None: they need not."""
        living = [
            pod
            for pod in self._cluster.pods_of_group(group.namespace, group.name)
            if not (pod.has_ended or pod.is_deleting)
        ]
        there = [pod for pod in living if pod.node or (pod.document is not None and not self._is_taken(pod))]
        known = {pod.uid for pod in pods}
        is_old = any(not pod.node and group_of(pod) == group and pod.uid not in known for pod in there)
        size = self._size(group, pods)
        if size is None:
            is_whole = self._now() - max(pod.created_at for pod in pods) >= SETTLED_S
        else:
            is_whole = len(there) >= size
        if is_whole and not is_old:  # one that came since `pods` were looked for would be left alone
            return None
        of = "" if size is None else f" of {size}"
        before = sum(not pod.node and self._is_taken(pod) for pod in living)
        after = f" or {before} that came before are placed" if before else ""
        return (
            f"{len(there)}{of} pods of the group {group.name!r} are there; they start together when it is whole{after}"
        )

    def _size(self, group: Group, pods: list[PodSeen]) -> int | None:
        """How many start together; None: nobody says."""
        labels = (pods[0].document or {})["metadata"].get("labels") or {}
        said = labels.get(GROUP_SIZE, "")
        return (int(said) if said.isdecimal() else self._asked_size(group)) or None

    def _asked_size(self, group: Group) -> int:
        """All of a namespace at once: they come in bursts, and an API server under load takes its time for each."""
        at, sizes = self._listed.get(group.namespace, (-math.inf, {}))
        age_s = self._now() - at
        if age_s > LISTED_S or (group.name not in sizes and age_s > LIST_AGAIN_S):
            sizes = self._list_sizes(group.namespace)
            self._listed[group.namespace] = self._now(), sizes
        return sizes.get(group.name, 0)

    def _list_sizes(self, namespace: str) -> dict[str, int]:
        try:
            resource = self._port.resource(GROUP_API, "PodGroup")
            found = self._port.list(Selection(resource, namespace)).items
        except (NotServed, NotFound):
            return {}
        return dict(readable(found, _named_size))


def _named_size(group: Document) -> tuple[str, int]:
    return group["metadata"]["name"], int((group.get("spec") or {}).get("minMember") or 0)
