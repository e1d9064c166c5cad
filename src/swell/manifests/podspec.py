"""What does a Kubernetes pod, or the template of one, ask for?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from swell.errors import Rejected
from swell.manifests.affinity import is_about_tags, read_labels, read_rules, selectors
from swell.manifests.container import CONTAINER, KEPT_IN_CLUSTERS, ContainerFields, read_container
from swell.manifests.context import Context
from swell.manifests.demand import CLAIMS
from swell.manifests.fields import (
    Fields,
    shorten,
    take_choice,
    take_list,
    take_mapping,
    take_optional,
    take_text,
    whole_number,
)
from swell.manifests.kueue import kueue_notes
from swell.manifests.metadata import METADATA, ObjectIdentity
from swell.manifests.native import PRIORITY_MAX, read_priority
from swell.manifests.wholepod import GATES, NODE_NAME, REPLACED, read_whole_pod
from swell.model.placement import PlacementRules
from swell.model.placement_fields import POD_GROUP
from swell.model.quantity import DURATION_S_MAX

CONTAINERS_MAX = 32  # a pod has two or three; each may be a large text
RETRIES_DEFAULT = 6  # Kubernetes' backoffLimit of a Job
GROUP_SIZE = "fluence.group-size"  # a label: how many start together
HOLD = "leave it out, or submit it and `swell hold` it"
TEMPLATE = Fields(used=("metadata", "spec"))
POD = Fields(
    used=(
        "containers",
        "restartPolicy",
        "activeDeadlineSeconds",
        "terminationGracePeriodSeconds",
        "priority",
        "priorityClassName",
        "nodeSelector",
        "affinity",
        "tolerations",
        "workloadRef",
        "schedulingGroup",
    ),
    idle=(
        "automountServiceAccountToken",
        "dnsConfig",
        "dnsPolicy",
        "enableServiceLinks",
        "hostAliases",
        "hostIPC",
        "hostNetwork",
        "hostPID",
        "hostUsers",
        "hostname",
        "hostnameOverride",
        "imagePullSecrets",
        "nodeName",
        "os",
        "overhead",
        "preemptionPolicy",
        "readinessGates",
        "runtimeClassName",
        "schedulerName",
        "securityContext",
        "serviceAccount",
        "serviceAccountName",
        "setHostnameAsFQDN",
        "shareProcessNamespace",
        "subdomain",
        "topologySpreadConstraints",
        "volumes",
    ),
    refused={
        "initContainers": "cannot be run: a job here has no step before its tasks; "
        "put it into the command, or submit it as a job of its own and let this one wait for it",
        "ephemeralContainers": "cannot be run: they are added to a pod that runs; leave it out",
        "resourceClaims": "asks for devices by claim, which this machine does not have; ask for nvidia.com/gpu",
        "resources": "is for the pod as a whole, but every process has its own here; give resources to the containers",
        "schedulingGates": f"keeps it from being started; {HOLD}",
    },
    refused_on_cluster={"nodeName": NODE_NAME, "resourceClaims": CLAIMS, "schedulingGates": GATES},
)
HERE = "this machine runs processes, not pods, so these fields have no effect"
RULES = ("nodeSelector", "affinity", "tolerations")  # which node: workers have no labels but their tags
SECONDS_MAX = int(DURATION_S_MAX)
INT32_MAX = 2**31 - 1
NEVER = "Never"  # a preemptionPolicy


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod. None: the manifest does not say."""

    where: str
    containers: tuple[ContainerFields, ...]  #: at least one; each name once; on a cluster one, for the whole pod
    restart: str | None
    deadline_s: float | None
    grace_s: float | None
    priority: int | None
    preempts: bool  #: may it, by its PriorityClass, take the room of pods of lower priority?
    rules: PlacementRules | None  #: which nodes it may go to; None: any
    group: str | None  #: the name of those that start with it
    notes: tuple[str, ...]  #: what it asks for without effect, in words
    labels: Mapping[str, str] = field(default_factory=dict)  #: also those that its controller gives it
    selectors: tuple[
        tuple[str, object], ...
    ] = ()  #: of its rules about other pods: where each stands, and what it says


def read_template(
    value: object, where: str, identity: ObjectIdentity, context: Context, *, restarts: tuple[str, ...]
) -> Pod:
    template = take_mapping(value, where)
    TEMPLATE.check(template, where, on_cluster=context.on_cluster)
    metadata = take_optional(template.get("metadata"), f"{where}.metadata")
    METADATA.check(metadata, f"{where}.metadata", on_cluster=context.on_cluster)
    labels = {**read_labels(metadata.get("labels"), f"{where}.metadata.labels"), **identity.added}
    spec = take_mapping(template.get("spec"), f"{where}.spec")
    notes = kueue_notes(metadata, f"{where}.metadata")
    pod = read_pod(spec, f"{where}.spec", labels, identity, context, restarts=restarts)
    return replace(pod, notes=(*pod.notes, *notes)) if notes else pod


def read_pod(
    spec: dict[str, Any],
    where: str,
    labels: Mapping[str, str],
    identity: ObjectIdentity,
    context: Context,
    *,
    restarts: tuple[str, ...],
) -> Pod:
    POD.check(spec, where, on_cluster=context.on_cluster)
    restart = spec.get("restartPolicy")
    rules, notes = read_rules(spec, where, labels, on_cluster=context.on_cluster)
    priority, priority_notes = _priority(spec, where, context)
    containers, container_notes = _containers(spec, where, identity, context)
    return Pod(
        where=where,
        containers=containers,
        restart=None if restart is None else take_choice(restart, restarts, f"{where}.restartPolicy"),
        deadline_s=read_seconds(spec, "activeDeadlineSeconds", where, low=1),
        grace_s=read_seconds(spec, "terminationGracePeriodSeconds", where, low=0),
        priority=priority,
        preempts=context.on_cluster and priority is not None and _preempts(spec, context),
        rules=rules,
        group=labels.get(POD_GROUP, identity.labels.get(POD_GROUP)) or _named_group(spec, where),
        notes=(*identity.notes, *notes, *priority_notes, *container_notes),
        labels=labels,
        selectors=tuple(selectors(spec, where)) if context.on_cluster else (),
    )


def _named_group(spec: dict[str, Any], where: str) -> str | None:
    """Kubernetes' own way to say that pods start together: a group of a Workload (1.35), or a PodGroup (1.36)."""
    workload = take_optional(spec.get("workloadRef"), f"{where}.workloadRef")
    group = take_optional(spec.get("schedulingGroup"), f"{where}.schedulingGroup")
    named = workload.get("podGroup") or group.get("podGroupName")
    return None if named is None else take_text(named, f"{where}.workloadRef or schedulingGroup")


def _priority(spec: dict[str, Any], where: str, context: Context) -> tuple[int | None, tuple[str, ...]]:
    """A number counts for itself; a name counts as the caller's table says, which not every place has."""
    priority, name = spec.get("priority"), spec.get("priorityClassName")
    if priority is not None and not context.on_cluster:
        return read_priority(priority, f"{where}.priority"), ()
    if priority is not None:
        return _in_range(whole_number(priority, f"{where}.priority", low=-INT32_MAX, high=INT32_MAX)), ()
    if name is None:
        return None, ()
    known = context.priority_classes.get(take_text(name, f"{where}.priorityClassName"))
    if known is None:
        advice = "annotate swell.dev/priority: '100'" if context.on_cluster else "write priority: 100"
        said = f"{where}.priorityClassName {shorten(name)!r} is not known here and has no effect; {advice}"
        return None, (said,)
    return _in_range(known.value), ()


def _preempts(spec: dict[str, Any], context: Context) -> bool:
    """Pods in a cluster carry the policy of their class; templates only name the class."""
    if spec.get("preemptionPolicy") is not None:
        return bool(spec["preemptionPolicy"] != NEVER)
    known = context.priority_classes.get(str(spec.get("priorityClassName")))
    return known is None or known.preempts


def _in_range(priority: int) -> int:
    """Kubernetes goes to a billion; beyond ours all are alike."""
    return max(-PRIORITY_MAX, min(priority, PRIORITY_MAX))


def read_seconds(spec: dict[str, Any], field: str, where: str, *, low: int) -> float | None:
    if spec.get(field) is None:
        return None
    return float(whole_number(spec[field], f"{where}.{field}", low=low, high=SECONDS_MAX))


def _containers(
    spec: dict[str, Any], where: str, identity: ObjectIdentity, context: Context
) -> tuple[tuple[ContainerFields, ...], tuple[str, ...]]:
    """And what of them has no effect, in words."""
    entries = take_list(spec.get("containers"), f"{where}.containers")
    if not entries:
        raise Rejected(f"{where}.containers is empty; a pod has at least one container")
    if len(entries) > CONTAINERS_MAX:
        raise Rejected(f"{where}.containers has {len(entries)} containers; at most {CONTAINERS_MAX}: split the pod")
    if context.on_cluster:
        whole, notes = read_whole_pod(spec, where)
        return (whole,), notes
    return _processes(entries, f"{where}.containers", identity, context), tuple(_ignored(spec, entries))


def _ignored(spec: dict[str, Any], entries: list[dict[str, Any]]) -> Iterator[str]:
    """What means nothing where processes run on one machine, in words; the same of every pod that says the same."""
    named = [name for name in CONTAINER.idle if any(_is_said(entry.get(name)) for entry in entries)]
    named += [name for name in POD.idle if _is_said(spec.get(name)) and spec[name] not in REPLACED]
    named += [name for name in RULES if _is_said(spec.get(name)) and not is_about_tags(spec[name])]
    if named:
        yield f"{HERE}: {', '.join(named)}"
    variables = [one for entry in entries for one in entry.get("env") or () if _is_kept_in_clusters(one)]
    for name in dict.fromkeys(one["name"] for one in variables):
        yield f"{shorten(name)} is that of your own environment: this machine has no Secrets and ConfigMaps"


def _is_said(value: object) -> bool:
    return value not in (None, "", [], {}, False)


def _is_kept_in_clusters(variable: dict[str, Any]) -> bool:
    return any(kind in KEPT_IN_CLUSTERS for kind in variable.get("valueFrom") or ())


def _processes(
    entries: list[Any], where: str, identity: ObjectIdentity, context: Context
) -> tuple[ContainerFields, ...]:
    containers = tuple(
        read_container(entry, f"{where}[{number}]", number, identity, context) for number, entry in enumerate(entries)
    )
    names = [container.name for container in containers]
    for name in names:
        if names.count(name) > 1:
            raise Rejected(f"{where} has the name {name!r} twice; every container has its own")
    return containers
