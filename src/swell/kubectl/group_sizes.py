"""How many pods of a group start together, and who says so?

A group is named on its pods, in one of four ways (`objects/pod_group_name.py`); how many start together is said on the
pods themselves, or by an object of their namespace:

    a label of coscheduling            PodGroup of scheduling.x-k8s.io (`minMember`), or Fluence's label
    a LeaderWorkerSet's labels         its annotation on each pod
    `workloadRef` (Kubernetes 1.35)    Workload of scheduling.k8s.io (`minCount` of the pod group it names)
    `schedulingGroup` (1.36)           PodGroup of scheduling.k8s.io (`minCount`)

All of a namespace are asked for at once: pods come in bursts, and an API server under load takes its time for each.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from swell.engines.kubernetes.client.api_client import ApiClient, Selection
from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.client.resources import NotServed
from swell.engines.kubernetes.objects.pod_group_name import LWS_SIZE, SCHEDULING_GROUP, WORKLOAD
from swell.engines.kubernetes.watch.unreadable import readable
from swell.errors import NotFound
from swell.manifests.podspec import GROUP_SIZE

GROUP_API = "scheduling.x-k8s.io/v1alpha1"
LISTED_S = 5.0  # so long a list of groups is believed
LIST_AGAIN_S = 0.2  # where one is missing in it
SIZE_MAX = 1_000_000
EACH_ALONE = 1  # of a group whose policy is not `gang`: it only has a name
Sizes = dict[str, int]


@dataclass(frozen=True, slots=True)
class GroupKind:
    """Objects that say how many pods of a group start together."""

    api_version: str
    kind: str
    parse: Callable[[Document], Sizes]  #: name on the pods → how many
    is_awaited: bool  #: do pods wait until it is there?


def _pod_group(document: Document) -> Sizes:
    return {document["metadata"]["name"]: int((document.get("spec") or {}).get("minMember") or 0)}


def _workload(document: Document) -> Sizes:
    groups = (document.get("spec") or {}).get("podGroups") or ()
    return {f"{document['metadata']['name']}.{one['name']}": _gang(one.get("policy")) for one in groups}


def _scheduling_group(document: Document) -> Sizes:
    return {document["metadata"]["name"]: _gang((document.get("spec") or {}).get("schedulingPolicy"))}


def _gang(policy: Document | None) -> int:
    gang = (policy or {}).get("gang")
    return EACH_ALONE if gang is None else min(SIZE_MAX, max(1, int(gang["minCount"])))


COSCHEDULING = GroupKind(GROUP_API, "PodGroup", _pod_group, is_awaited=False)
#: By the field of the pod's specification that names it.
BY_FIELD = {
    WORKLOAD: GroupKind("scheduling.k8s.io/v1alpha1", "Workload", _workload, is_awaited=True),
    SCHEDULING_GROUP: GroupKind("scheduling.k8s.io/v1alpha2", "PodGroup", _scheduling_group, is_awaited=True),
}


@dataclass(frozen=True, slots=True)
class GroupSize:
    size: int | None = None  #: None: nobody says
    missing: str = ""  #: what must be there first, and is not; empty: nothing


class GroupSizes:
    def __init__(self, port: ApiClient, now: Callable[[], float] = time.time) -> None:
        self._port = port
        self._now = now
        self._listed: dict[tuple[GroupKind, str], tuple[float, Sizes]] = {}  #: when, and what

    def of(self, pod: Document, namespace: str, group: str) -> GroupSize:
        said = next(_said_on(pod), 0)
        if said:
            return GroupSize(said)
        spec = pod.get("spec") or {}
        field = next((name for name in BY_FIELD if spec.get(name)), None)
        kind = COSCHEDULING if field is None else BY_FIELD[field]
        name = group if field != WORKLOAD else f"{spec[WORKLOAD]['name']}.{spec[WORKLOAD]['podGroup']}"
        size = self._ask(kind, namespace, name)
        if size is None and kind.is_awaited:
            return GroupSize(None, f"{kind.kind} {name!r}, which its pods name, is not there yet")
        return GroupSize(size or None)

    def _ask(self, kind: GroupKind, namespace: str, name: str) -> int | None:
        at, sizes = self._listed.get((kind, namespace), (-math.inf, {}))
        age_s = self._now() - at
        if age_s > LISTED_S or (name not in sizes and age_s > LIST_AGAIN_S):
            sizes = self._list(kind, namespace)
            self._listed[kind, namespace] = self._now(), sizes
        return sizes.get(name)

    def _list(self, kind: GroupKind, namespace: str) -> Sizes:
        try:
            resource = self._port.resource(kind.api_version, kind.kind)
            found = self._port.list(Selection(resource, namespace)).items
        except (NotServed, NotFound):
            return {}
        return {name: size for sizes in readable(found, kind.parse) for name, size in sizes.items()}


def _said_on(pod: Document) -> Iterator[int]:
    """On the pod itself, by whoever wrote it."""
    metadata = pod.get("metadata") or {}
    for field, name in (("labels", GROUP_SIZE), ("annotations", LWS_SIZE)):
        text = str((metadata.get(field) or {}).get(name, ""))
        if text.isascii() and text.isdecimal() and 0 < int(text[:9]) <= SIZE_MAX:
            yield int(text[:9])
