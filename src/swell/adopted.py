"""What do pods and objects that came by kubectl ask for, and what is kept of them?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from swell.engines.kubernetes.objects import without_server_fields
from swell.engines.kubernetes.picture import PodSeen
from swell.errors import Rejected
from swell.manifests import Context, read_document
from swell.manifests.metadata import PRIORITY, SHARE
from swell.model.job import Dimension, JobSpec, Role
from swell.podgroups import Group

Document = dict[str, Any]
CONTEXT = Context(workdir="/", on_cluster=True)


def refuse_shares(kind: str, spec: JobSpec) -> None:
    """Which GPU a pod shares is a variable of its container, and nothing can be added to pods that are there."""
    if kind != "PyTorchJob" and any(role.resources.is_share for role in spec.roles):
        raise Rejected(
            f"{SHARE} asks for a share of a GPU, which a {kind} can have only through `swell submit -f`: nothing can "
            "be added to pods that kubectl has made; submit it, or leave the annotation out and ask for nvidia.com/gpu"
        )


def rigid(kind: str, spec: JobSpec, tasks: int | None = None) -> JobSpec:
    """Pods and JobSets keep their size while they exist, the pods of a Job cannot be told a new one, and what kubectl
    made is not ours to make again. `tasks`: so many it has; None: its size is that of its one task."""
    if kind == "PyTorchJob" or spec.array is not None or spec.width_max == spec.width_min:
        return spec
    width = spec.width_min if tasks is None else tasks
    roles = spec.roles if tasks is None else tuple(replace(role, count=tasks) for role in spec.roles)
    note = (
        f"it came by kubectl as a {kind}, which Swell cannot resize: it runs at {width}, "
        f"and the range {spec.width_min}..{spec.width_max} has no effect; to have it resized, delete it with kubectl "
        "and submit it with `swell submit -f`"
    )
    return replace(spec, width_min=width, width_max=width, roles=roles, notes=(*spec.notes, note))


def within_limit(spec: JobSpec, document: Document, highest: int | None) -> JobSpec:
    """Whoever may create an object may write any priority on it: it counts as far as it may be asked for through the
    API. `highest` None: there is no limit. What a PriorityClass gives is the cluster's to allow."""
    metadata = document["metadata"]
    if highest is None or spec.priority <= highest or PRIORITY not in (metadata.get("annotations") or {}):
        return spec
    note = (
        f"{PRIORITY} asks for {spec.priority}, but the highest that namespace {metadata['namespace']!r} may ask for is "
        f"{highest}, so it waits with {highest}; to have more, ask an administrator (limits in Swell's config.json)"
    )
    return replace(spec, priority=highest, notes=(*spec.notes, note))


def read_object(
    document: Document, priority_classes: Mapping[str, int], priority_max: int | None
) -> tuple[JobSpec, Document]:
    spec = read_document(document, replace(CONTEXT, priority_classes=priority_classes))
    spec = within_limit(spec, document, priority_max)
    is_counted = document["kind"] == "Job" and spec.dimension is Dimension.TASKS
    tasks = document["spec"].get("completions") if is_counted else None
    return replace(rigid(document["kind"], spec, tasks), is_held=False, retries=0), _reference(document)


def read_pods(group: Group, pods: list[PodSeen], priority_max: int | None) -> tuple[JobSpec, Document]:
    """In the order of their names, numbers by their value; pods that are alike are one role."""
    ordered = sorted(pods, key=lambda pod: [_numbered(part) for part in re.split(r"(\d+)", pod.name)])
    documents = [pod.document or {} for pod in ordered]
    specs = [within_limit(read_document(one, CONTEXT), one, priority_max) for one in documents]
    roles: list[Role] = []
    for spec in specs:
        [role] = spec.roles
        if roles and (roles[-1].resources, roles[-1].rules) == (role.resources, role.rules):
            roles[-1] = replace(roles[-1], count=roles[-1].count + 1)
        else:
            roles.append(role)
    first = rigid("Pod", specs[0])
    is_one = len(pods) == 1
    spec = replace(
        first,
        name=group.name,
        roles=tuple(roles),
        dimension=first.dimension if is_one else Dimension.TASKS,
        width_min=first.width_min if is_one else roles[0].count,
        width_max=first.width_min if is_one else roles[0].count,
        priority=max(spec.priority for spec in specs),
        notes=tuple(dict.fromkeys(note for one in (first, *specs[1:]) for note in one.notes)),
        retries=0,
    )
    return spec, _pods_reference(group, ordered)


def _numbered(part: str) -> tuple[int, str]:
    return (int(part), "") if part.isdecimal() else (-1, part)


def _reference(document: Document) -> Document:
    metadata = {name: document["metadata"][name] for name in ("name", "namespace", "uid")}
    return {"apiVersion": document["apiVersion"], "kind": document["kind"], "metadata": metadata}


def _pods_reference(group: Group, pods: list[PodSeen]) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Pods",
        "metadata": {"name": group.name, "namespace": group.namespace, "uid": pods[0].uid},
        "pods": [{"name": pod.name, "uid": pod.uid, **_remade(pod)} for pod in pods],
    }


def _remade(pod: PodSeen) -> Document:
    """What we make another from, should we have to take it away again: it is on disk before the pod is bound.

    Of a pod with a controller nothing: that makes another by itself.
    """
    if pod.owner is not None or pod.document is None:
        return {}
    return {"document": without_server_fields(pod.document)}
