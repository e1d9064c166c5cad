"""Which tasks does a Kubernetes object become, and how wide may they be?"""

from __future__ import annotations

from dataclasses import dataclass, replace

from swell.errors import Rejected
from swell.manifests.affinity import NOT_KEPT, selects
from swell.manifests.container import ContainerFields
from swell.manifests.context import Context
from swell.manifests.metadata import SHARE, ObjectIdentity
from swell.manifests.native import RETRIES_MAX
from swell.manifests.native_roles import range_text
from swell.manifests.podspec import Pod
from swell.model.job import GRACE_S_DEFAULT, Array, Dimension, ExitRule, JobSpec, Role
from swell.model.placement import PlacementRules
from swell.model.resources import Resources

NONE = (0, 0)
NOTES_MAX = 20  # a page; whoever has more of them is told enough by the first


@dataclass(frozen=True, slots=True)
class Part:
    """Tasks that are alike: a role whose width is not decided yet."""

    name: str
    container: ContainerFields
    count: int
    rules: PlacementRules | None = None  #: of its pod

    @property
    def gpus(self) -> tuple[int, int]:
        return self.container.gpus or NONE


@dataclass(frozen=True, slots=True)
class Width:
    dimension: Dimension
    low: int
    high: int


def pod_parts(pod: Pod, identity: ObjectIdentity) -> tuple[Part, ...]:
    """One task for each container, in their order."""
    containers = annotated(pod.containers, identity, pod.where)
    parts = tuple(Part(container.name, container, 1, pod.rules) for container in containers)
    holders = [part for part in parts if part.gpus[1] > 0]
    if len(holders) > 1 and any(is_range(part.gpus) for part in holders):
        asked = ", ".join(f"{part.name!r}: {range_text(part.gpus)}" for part in holders)
        raise Rejected(
            f"{pod.where}.containers ask for a range of GPUs beside other GPUs ({asked}); "
            "only one container of a pod may have GPUs when one of them has a range"
        )
    return parts


def annotated(
    containers: tuple[ContainerFields, ...], identity: ObjectIdentity, where: str
) -> tuple[ContainerFields, ...]:
    """The annotations' range goes to the container with the GPUs, if it does not give a range of its own."""
    if identity.gpu_memory_mib is not None:
        return _shared(containers, identity.gpu_memory_mib, where)
    if identity.gpus is None:
        return containers
    said = [container for container in containers if container.gpus is not None]
    holders = [container for container in said if container.gpus != NONE] if said else list(containers)
    total = _sum(said) if said else identity.gpus
    fits = total == identity.gpus if is_range(total) else identity.gpus[0] <= total[0] <= identity.gpus[1]
    if not fits:
        raise Rejected(
            f"metadata.annotations ask for {range_text(identity.gpus)} GPUs (request, limit), but {where}.containers "
            f"for {range_text(total)}; make them the same, or leave the annotations out"
        )
    if said and (is_range(total) or total == identity.gpus):
        return containers
    names = _names(holders)
    if len(names) > 1:
        raise Rejected(
            f"metadata.annotations ask for {range_text(identity.gpus)} GPUs (request, limit), but not for which of the "
            f"containers {', '.join(names)}; write requests and limits of nvidia.com/gpu there instead"
        )
    return tuple(replace(one, gpus=identity.gpus) if one is holders[0] else one for one in containers)


def _shared(containers: tuple[ContainerFields, ...], mib: int, where: str) -> tuple[ContainerFields, ...]:
    """The share goes to the container that asks for a GPU, or to the only one. Then it has no whole GPU."""
    asking = [container for container in containers if container.gpus not in (None, NONE)]
    holders = asking or list(containers)
    if asking and _sum(asking) != (1, 1):
        raise Rejected(
            f"metadata.annotations: {SHARE} is a share of one GPU, but {where}.containers ask for "
            f"{range_text(_sum(asking))} whole ones; leave nvidia.com/gpu out, or write 1"
        )
    names = _names(holders)
    if len(names) > 1:
        raise Rejected(
            f"metadata.annotations: {SHARE} does not say which of the containers {', '.join(names)} has the share; "
            "write nvidia.com/gpu: 1 under the limits of that one"
        )
    return tuple(replace(one, gpus=None, gpu_memory_mib=mib) if one is holders[0] else one for one in containers)


def _names(holders: list[ContainerFields]) -> list[str]:
    return [repr(name) for container in holders for name in container.holders]


def annotated_pods(pods: tuple[Pod, ...], identity: ObjectIdentity) -> tuple[ContainerFields, ...]:
    """Of pods with one container each: the range is for every one that asks for GPUs; when none does, for every one."""
    are_silent = all(pod.containers[0].gpus is None for pod in pods)
    return tuple(
        annotated(pod.containers, identity, pod.where)[0]
        if are_silent or pod.containers[0].gpus is not None
        else pod.containers[0]
        for pod in pods
    )


def only_container(pod: Pod) -> ContainerFields:
    if len(pod.containers) > 1:
        raise Rejected(
            f"{pod.where}.containers has {len(pod.containers)} containers: each would count as a rank, and WORLD_SIZE "
            "would be wrong; keep the one that trains"
        )
    return pod.containers[0]


def _sum(containers: list[ContainerFields]) -> tuple[int, int]:
    spans = [container.gpus or NONE for container in containers]
    return sum(low for low, _ in spans), sum(high for _, high in spans)


def is_range(span: tuple[int, int]) -> bool:
    return span[0] < span[1]


def gang_width(parts: tuple[Part, ...]) -> Width:
    """All tasks that have GPUs are widened in step, so one range must hold for all of them."""
    holders = [part for part in parts if part.gpus[1] > 0]
    ranges = [part for part in holders if is_range(part.gpus)]
    if not ranges:
        is_one_task = sum(part.count for part in parts) == 1
        if is_one_task and holders:
            return Width(Dimension.GPUS, *parts[0].gpus)
        return Width(Dimension.TASKS, parts[0].count, parts[0].count)
    other = next((part for part in holders if part.gpus != ranges[0].gpus), None)
    if other is not None:
        raise Rejected(
            f"{ranges[0].container.where} asks for {range_text(ranges[0].gpus)} GPUs and {other.container.where} for "
            f"{range_text(other.gpus)}: the tasks of a job are resized together; give them the same range"
        )
    return Width(Dimension.GPUS, *ranges[0].gpus)


def check_replicas(identity: ObjectIdentity, pods: int) -> None:
    if identity.replicas is not None and identity.replicas != pods:
        raise Rejected(
            f"metadata.annotations: replicas is {identity.replicas}, but the manifest has {pods} "
            f"pod{'' if pods == 1 else 's'}; make them the same, or leave the annotation out"
        )


def make_spec(
    identity: ObjectIdentity,
    context: Context,
    parts: tuple[Part, ...],
    pods: tuple[Pod, ...],
    width: Width,
    *,
    retries: int,
    retries_together: int | None = None,
    exit_rules: tuple[ExitRule, ...] = (),
    deadline_s: float | None = None,
    array: Array | None = None,
    is_held: bool = False,
) -> JobSpec:
    """What several pods say of the whole: the shortest limit, the longest grace, the highest priority."""
    deadlines = [seconds for seconds in (deadline_s, *(pod.deadline_s for pod in pods)) if seconds is not None]
    if context.on_cluster:
        _refuse_rules_about_others(parts, pods, width)
    priorities = [pod.priority for pod in pods if pod.priority is not None]
    graces = [pod.grace_s for pod in pods if pod.grace_s is not None]
    return JobSpec(
        name=identity.name,
        roles=tuple(_role(part) for part in parts),
        dimension=width.dimension,
        width_min=width.low,
        width_max=width.high,
        array=array,
        preempts=identity.priority is None and any(pod.preempts for pod in pods),
        priority=max(priorities, default=0) if identity.priority is None else identity.priority,
        time_limit_s=min(deadlines, default=None) if identity.time_limit_s is None else identity.time_limit_s,
        grace_s=max(graces, default=GRACE_S_DEFAULT),
        workdir="" if context.on_cluster else _workdir(parts) or context.workdir,
        env=(),  # every role has its own
        umask=context.umask,
        epochs=identity.epochs,
        checkpoints=identity.checkpoints,
        resize=identity.resize,
        retries=0 if context.on_cluster else min(retries, RETRIES_MAX),  # there the object's own controller tries again
        retries_together=None if context.on_cluster else retries_together,
        exit_rules=() if context.on_cluster else exit_rules,
        rewrites_width=width.dimension is Dimension.GPUS,  # NGPU is a number of GPUs, never of tasks
        is_held=is_held,
        pod_group=_group(pods),
        notes=tuple(dict.fromkeys(note for pod in pods for note in pod.notes))[:NOTES_MAX],
    )


def _refuse_rules_about_others(parts: tuple[Part, ...], pods: tuple[Pod, ...], width: Width) -> None:
    """A rule that the tasks of a role have for each other is kept. One that means the pods of another role too, or,
    of a single pod, those of other jobs, would be dropped."""
    is_alone = len(parts) == 1 and parts[0].count == 1 and width.dimension is Dimension.GPUS
    is_alone = is_alone or (len(parts) == 1 and width.high == 1)
    for pod in pods:
        for where, selector in pod.selectors:
            others = [one for one in pods if one is not pod and selects(selector, f"{where}.labelSelector", one.labels)]
            if selector is not None and (others or (is_alone and pod.group is None)):
                raise Rejected(f"{where} {NOT_KEPT}")


def _group(pods: tuple[Pod, ...]) -> str | None:
    named = [pod for pod in pods if pod.group is not None]
    for pod in named[1:]:
        if pod.group != named[0].group:
            raise Rejected(
                f"{named[0].where} is in the pod group {named[0].group!r} and {pod.where} in {pod.group!r}: all tasks "
                "of a job start together; give them the same label, or none"
            )
    return named[0].group if named else None


def _role(part: Part) -> Role:
    container = part.container
    resources = Resources(container.cpus_milli, container.memory_mib, part.gpus[0], container.gpu_memory_mib)
    return Role(
        part.name,
        container.command,
        resources,
        part.count,
        container.env,
        container.numbered,
        part.rules,
        container.cpu_limit_milli,
    )


def _workdir(parts: tuple[Part, ...]) -> str | None:
    first = parts[0].container
    for part in parts[1:]:
        if part.container.workdir != first.workdir:
            raise Rejected(
                f"{first.where} runs in {first.workdir or 'no workingDir'} and {part.container.where} in "
                f"{part.container.workdir or 'no workingDir'}; a job has one folder: give both the same"
            )
    return first.workdir
