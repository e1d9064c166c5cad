"""Who is a Kubernetes object, and what do its annotations ask for?

Two families of annotations count. `request`, `limit` and `replicas`, without a prefix, are what genai's workload
manager writes: a range of GPUs of one pod, and how many pods. `swell.dev/…` says what Kubernetes has no field for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from swell.errors import Rejected
from swell.manifests.affinity import read_labels
from swell.manifests.command import read_folder
from swell.manifests.context import Context
from swell.manifests.fields import (
    Fields,
    inside,
    quantity,
    read_name,
    refuse_unknown,
    take_mapping,
    take_optional,
    take_text,
    whole_number,
)
from swell.manifests.kueue import kueue_notes
from swell.manifests.native import read_epochs, read_priority, read_resize
from swell.model.job import Numbered, ResizeMode
from swell.model.kind import ManifestKind, find_kind
from swell.model.member_loss import ON_MEMBER_LOST
from swell.model.quantity import COUNT_MAX, parse_memory, parse_range, parse_time_limit
from swell.model.shared_volume import ANNOTATION as SHARED_VOLUME
from swell.model.shared_volume import parse_shared_volume

OBJECT = Fields(used=("apiVersion", "kind", "metadata", "spec"), idle=("status",))
METADATA = Fields(
    used=("name", "generateName", "namespace", "annotations", "labels"),
    idle=(
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "finalizers",
        "managedFields",
        "ownerReferences",
        "selfLink",
    ),
)
RANGE = ("request", "limit")
SHARE = "swell.dev/gpu-memory"
PRIORITY = "swell.dev/priority"
FOLDER = "swell.dev/checkpoints"
OWN_PREFIX = "swell.dev/"
TASKS = "swell.dev/tasks"
NAMES = ("checkpoints", "epochs", "gpu-memory", "priority", "resize", "shared-volume", "tasks", "time")
OWN = tuple(OWN_PREFIX + name for name in NAMES)


@dataclass(frozen=True, slots=True)
class ObjectIdentity:
    """What the object says of itself. None: it says nothing of that."""

    name: str
    namespace: str
    gpus: tuple[int, int] | None = None  #: of one pod, as annotated
    gpu_memory_mib: int | None = None  #: a share of one GPU for each pod that has one, as annotated
    replicas: int | None = None  #: pods, as annotated
    tasks: tuple[int, int] | None = None  #: pods of a Job that start together, as annotated
    epochs: int | None = None
    priority: int | None = None
    resize: ResizeMode = ResizeMode.AT_CHECKPOINT
    time_limit_s: float | None = None
    checkpoints: str | None = None  #: the folder for them, as its containers see it
    labels: Mapping[str, str] = field(default_factory=dict)
    added: Mapping[str, str] = field(default_factory=dict)  #: labels that a controller would give its pods
    #: What `valueFrom.fieldRef` finds beside name and namespace, by path.
    fields: Mapping[str, str | Numbered] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  #: what of its labels and annotations has no effect, in words
    #: What every container is given, unless it says otherwise.
    variables: Mapping[str, str | Numbered] = field(default_factory=dict)


def read_object(document: dict[str, Any], context: Context) -> tuple[ObjectIdentity, dict[str, Any]]:
    """Who it is, and its `spec`, not looked at yet."""
    OBJECT.check(document, "the manifest", on_cluster=context.on_cluster)
    metadata = take_optional(document.get("metadata"), "metadata")
    METADATA.check(metadata, "metadata", on_cluster=context.on_cluster)
    kind = find_kind(document["apiVersion"], document["kind"])
    assert kind is not None, "its reader was found by its kind"
    identity = _identity(metadata, kind, context)
    if identity.tasks is not None and not kind.takes_task_range:
        raise Rejected(
            f"metadata.annotations: {TASKS} is a range of tasks, for a batch/v1 Job, but this is a {kind.name}; "
            "leave it out (of a PyTorchJob write elasticPolicy: {minReplicas, maxReplicas})"
        )
    return identity, take_mapping(document.get("spec"), "spec")


def _identity(metadata: dict[str, Any], kind: ManifestKind, context: Context) -> ObjectIdentity:
    given = take_optional(metadata.get("annotations"), "metadata.annotations")
    is_there = metadata.get("uid") is not None and context.on_cluster
    if ON_MEMBER_LOST in given and not (is_there and kind.is_bare_pod):
        raise Rejected(_no_member_lost(kind))
    if not is_there:  # what is in a cluster already may have some from us
        refuse_unknown([name for name in given if name.startswith(OWN_PREFIX)], OWN, "metadata.annotations")
    said = {name: (given[name], f"metadata.annotations: {name}") for name in given if given[name] is not None}
    if SHARED_VOLUME in said:
        quantity(parse_shared_volume, *said[SHARED_VOLUME])
    namespace = metadata.get("namespace")
    labels = read_labels(metadata.get("labels"), "metadata.labels")
    return ObjectIdentity(
        name=_name(metadata, context),
        namespace="default" if namespace is None else take_text(namespace, "metadata.namespace"),
        gpus=_annotated_range(said),
        gpu_memory_mib=_annotated_share(said),
        replicas=whole_number(*said["replicas"], low=1, high=COUNT_MAX) if "replicas" in said else None,
        tasks=_annotated_tasks(said),
        epochs=read_epochs(*said["swell.dev/epochs"]) if "swell.dev/epochs" in said else None,
        priority=read_priority(*said[PRIORITY]) if PRIORITY in said else None,
        resize=_annotated_resize(said, kind, context),
        time_limit_s=quantity(parse_time_limit, *said["swell.dev/time"]) if "swell.dev/time" in said else None,
        checkpoints=_annotated_folder(said, context),
        labels=labels,
        notes=kueue_notes(metadata, "metadata"),
    )


def _no_member_lost(kind: ManifestKind) -> str:
    otherwise = (
        f"where a pod of a {kind.name} is lost its controller makes another, which gets the place of the first"
        if kind.makes_pods
        else f"a {kind.name} that is submitted is in none"
    )
    return (
        f"metadata.annotations: {ON_MEMBER_LOST} is for pods of a group that come by kubectl; {otherwise}; leave it out"
    )


def _annotated_resize(said: dict[str, tuple[Any, str]], kind: ManifestKind, context: Context) -> ResizeMode:
    """Genai resizes PyTorchJobs only: a Pod or a Job that is stopped begins from nothing, or not again at all."""
    if "swell.dev/resize" in said:
        return read_resize(*said["swell.dev/resize"])
    return context.resize if kind.follows_caller_resize else ResizeMode.AT_CHECKPOINT


def _name(metadata: dict[str, Any], context: Context) -> str:
    with inside("metadata: "):
        if metadata.get("name") is not None:
            return read_name(metadata["name"])
        if metadata.get("generateName") is not None:
            return read_name(take_text(metadata["generateName"], "generateName").rstrip("-"))
        if context.name:
            return read_name(context.name)
        raise Rejected("neither name nor generateName is given; write name: train")


def _annotated_folder(said: dict[str, tuple[object, str]], context: Context) -> str | None:
    if FOLDER not in said:
        return None
    base = "/" if context.on_cluster else context.workdir
    return read_folder(said[FOLDER][0], base, said[FOLDER][1], otherwise="one that Swell names")


def _annotated_share(said: dict[str, tuple[object, str]]) -> int | None:
    if SHARE not in said:
        return None
    mib = quantity(parse_memory, *said[SHARE])
    if mib < 1:
        raise Rejected(f"metadata.annotations: {SHARE} is nothing; write how much of one GPU's memory, as in 6GiB")
    ranged = [name for name in RANGE if name in said]
    if ranged:
        raise Rejected(
            f"metadata.annotations has {SHARE!r}, a share of one GPU, and {ranged[0]!r}, a number of GPUs; keep one"
        )
    return mib


def _annotated_tasks(said: dict[str, tuple[object, str]]) -> tuple[int, int] | None:
    if TASKS not in said:
        return None
    low, high = quantity(parse_range, *said[TASKS])
    if low < 1:
        raise Rejected(f"metadata.annotations: {TASKS} is {low} at the least, which is too few; a job has at least 1")
    return low, high


def _annotated_range(said: dict[str, tuple[object, str]]) -> tuple[int, int] | None:
    given = [name for name in RANGE if name in said]
    if not given:
        return None
    if len(given) == 1:
        other = RANGE[1 - RANGE.index(given[0])]
        raise Rejected(f"metadata.annotations has {given[0]!r} without {other!r}; a range of GPUs needs both")
    low, high = (whole_number(*said[name], low=0, high=COUNT_MAX) for name in RANGE)
    if high < low:
        raise Rejected(f"metadata.annotations: request {low} is above limit {high}; the request is the least")
    if low == 0 < high:
        raise Rejected(
            f"metadata.annotations: request 0 and limit {high}: a range must start at 1 or more; write request: '1'"
        )
    return low, high
