"""What does `apiVersion: batch/v1, kind: Job` ask for?

Several completions are an array: independent tasks, one per index. In a pod group they are a gang, of one size or,
as annotated, of a range of sizes. Fluence makes a group of every Job that names it as scheduler.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from swell.errors import Rejected
from swell.manifests.context import Context
from swell.manifests.downward import told_to_indexed
from swell.manifests.exit_rules import read_pod_failure_policy
from swell.manifests.fields import Fields, is_true, take_choice, whole_number
from swell.manifests.gang import Part, Width, check_replicas, gang_width, is_range, make_spec, only_container, pod_parts
from swell.manifests.metadata import SHARE, TASKS, ObjectIdentity, read_object
from swell.manifests.native_roles import range_text
from swell.manifests.podspec import GROUP_SIZE, HOLD, INT32_MAX, RETRIES_DEFAULT, Pod, read_seconds, read_template
from swell.manifests.wholepod import FLUENCE
from swell.model.job import Array, Dimension, ExitRule, JobSpec
from swell.model.placement_fields import POD_GROUP
from swell.model.quantity import ARRAY_TASKS_MAX, COUNT_MAX, IndexSet

RESTARTS = ("OnFailure", "Never")
MODES = ("NonIndexed", "Indexed")
JOB = Fields(
    used=(
        "template",
        "completions",
        "parallelism",
        "completionMode",
        "backoffLimit",
        "backoffLimitPerIndex",
        "activeDeadlineSeconds",
        "podFailurePolicy",
        "suspend",
    ),
    idle=(
        "managedBy",
        "manualSelector",
        "maxFailedIndexes",
        "podReplacementPolicy",
        "selector",
        "ttlSecondsAfterFinished",
    ),
    refused={"successPolicy": "ends a job before all its tasks have; here every task must succeed: leave it out"},
)


def read(document: dict[str, Any], context: Context) -> JobSpec:
    identity, spec = read_object(document, context)
    JOB.check(spec, "spec", on_cluster=context.on_cluster)
    added = {"job-name": identity.name, "batch.kubernetes.io/job-name": identity.name}
    seen = replace(identity, added=added)
    array, is_indexed = _array(spec)
    seen = told_to_indexed(seen) if is_indexed else seen
    pod = read_template(spec.get("template"), "spec.template", seen, context, restarts=RESTARTS)
    parts = pod_parts(pod, identity)
    check_replicas(identity, array.at_once if array else 1)
    group, group_notes = _read_group(spec, array, pod, identity)
    if array is not None and group:
        parts, array = _gang(array, parts[0], pod, group), None
    if identity.tasks is not None:
        width = _annotated_width(identity.tasks, spec, parts[0], pod, group)
        parts = (replace(parts[0], count=width.low),)
    else:
        width = array_width(array, parts, "spec.template.spec") if array else gang_width(parts)
    rules, notes = ((), ()) if context.on_cluster else _failure_policy(spec, pod, is_array=array is not None)
    retries, together = _array_retries(spec) if array else (read_retries(spec, "spec"), None)
    return make_spec(
        identity,
        context,
        parts,
        (replace(pod, notes=(*pod.notes, *group_notes, *notes)),),
        width,
        retries=RETRIES_DEFAULT if retries is None else retries,
        retries_together=together,
        exit_rules=rules,
        deadline_s=read_seconds(spec, "activeDeadlineSeconds", "spec", low=1),
        array=array,
        is_held=is_true(spec.get("suspend"), "spec.suspend"),
    )


def _failure_policy(spec: dict[str, Any], pod: Pod, *, is_array: bool) -> tuple[tuple[ExitRule, ...], tuple[str, ...]]:
    """Which failures are treated otherwise, and what would decide how a Job ends on Kubernetes, and does not here."""
    names = [container.name for container in pod.containers]
    rules, notes = read_pod_failure_policy(
        spec.get("podFailurePolicy"), "spec.podFailurePolicy", containers=names, is_array=is_array
    )
    given = [name for name in ("maxFailedIndexes", "podReplacementPolicy") if spec.get(name)]
    idle = tuple(f"spec.{name} has no effect on this machine: every failure counts as a retry" for name in given)
    return rules, (*notes, *idle)


def read_limit(spec: dict[str, Any], field: str, where: str) -> int | None:
    return None if spec.get(field) is None else whole_number(spec[field], f"{where}.{field}", low=0, high=INT32_MAX)


def read_retries(spec: dict[str, Any], where: str) -> int | None:
    """None: it does not say."""
    given = (read_limit(spec, field, where) for field in ("backoffLimit", "backoffLimitPerIndex"))
    return next((limit for limit in given if limit is not None), None)


def _array_retries(spec: dict[str, Any]) -> tuple[int, int | None]:
    """Of each index, and of all together, as Kubernetes counts them; None: no limit beside that of each."""
    together, each = (read_limit(spec, field, "spec") for field in ("backoffLimit", "backoffLimitPerIndex"))
    if each is not None:
        return each, together
    allowed = RETRIES_DEFAULT if together is None else together
    return allowed, allowed


def _array(spec: dict[str, Any]) -> tuple[Array | None, bool]:
    """And whether its pods are told their index. Without `completions` it is a queue of work in Kubernetes: so many
    pods, each takes what it finds."""
    completions, parallelism = (_count(spec, field) for field in ("completions", "parallelism"))
    mode = spec.get("completionMode")
    is_indexed = mode is not None and take_choice(mode, MODES, "spec.completionMode") == "Indexed"
    if is_indexed and completions is None:
        raise Rejected("spec.completionMode is Indexed, but spec.completions does not say how many; give both")
    at_once = parallelism or 1
    tasks = at_once if completions is None else completions
    if tasks == 1:
        return None, is_indexed
    return Array(IndexSet(((0, tasks - 1, 1),)), min(at_once, tasks)), is_indexed


def _count(spec: dict[str, Any], field: str) -> int | None:
    if spec.get(field) is None:
        return None
    count = whole_number(spec[field], f"spec.{field}", low=0, high=ARRAY_TASKS_MAX)
    if count == 0:
        raise Rejected(f"spec.{field} is 0, so nothing would be run; write 1 or more, or {HOLD}")
    return count


def _read_group(
    spec: dict[str, Any], array: Array | None, pod: Pod, identity: ObjectIdentity
) -> tuple[str, tuple[str, ...]]:
    """What says that its pods start together, and how it can be taken back; empty: nothing does. And notes.

    Fluence's webhook makes every Job that names it a group of its parallelism; a label of the Job or of its template
    gives another size. Those of one pod start alone.
    """
    tasks = 1 if array is None else len(array.indices)
    labelled = pod.labels.get(GROUP_SIZE, identity.labels.get(GROUP_SIZE))
    is_fluence = spec["template"]["spec"].get("schedulerName") == FLUENCE
    at_once = 1 if array is None else array.at_once
    said = f"the label {GROUP_SIZE}"
    size = at_once if labelled is None else max(1, whole_number(labelled, said, low=0, high=INT32_MAX))
    if size > tasks and pod.group is None:  # a group with a name may have pods of others
        raise Rejected(f"{said} is {size}, but the Job has {tasks} pods, so they would never start; write {tasks}")
    if labelled is not None and size == 1 and identity.tasks is None:
        return "", ()
    if pod.group is not None:
        group = f"is in the pod group {pod.group!r}"
    elif labelled is not None:
        group = f"has the label {GROUP_SIZE}"
    elif is_fluence and (size > 1 or identity.tasks is not None):
        group = f"has the schedulerName {FLUENCE}"
    else:
        return "", ()
    few = f"{said} is {size}, but all {tasks} pods start together; for fewer annotate {TASKS}: {size}..{tasks}"
    return group, () if labelled is None or size >= tasks or identity.tasks is not None else (few,)


def _gang(array: Array, part: Part, pod: Pod, group: str) -> tuple[Part, ...]:
    """What a pod group asks for: all of them, or none."""
    only_container(pod)
    tasks = len(array.indices)
    if array.at_once < tasks:
        raise Rejected(
            f"spec.template {group}, which starts together, but of its {tasks} pods "
            f"{array.at_once} may run at once; write parallelism: {tasks}, or leave "
            f"{'the schedulerName' if 'schedulerName' in group else 'the label'} out"
        )
    if tasks > COUNT_MAX:
        raise Rejected(f"spec.template {group} and has {tasks} pods; a job has at most {COUNT_MAX} tasks")
    return (replace(part, count=tasks),)


def _annotated_width(tasks: tuple[int, int], spec: dict[str, Any], part: Part, pod: Pod, group: str) -> Width:
    """`part`: with as many tasks as the Job itself says; where it says nothing, the range alone counts."""
    said = f"metadata.annotations: {TASKS} is {range_text(tasks)}"
    if not group:
        raise Rejected(
            f"{said}, a range of tasks that start together, but spec.template is in no pod group, so its tasks are "
            f"independent; give it the label {POD_GROUP}, or leave the annotation out"
        )
    only_container(pod)
    is_given = any(spec.get(field) is not None for field in ("completions", "parallelism"))
    if is_given and not tasks[0] <= part.count <= tasks[1]:
        raise Rejected(f"{said}, but spec.completions and parallelism say {part.count}; make them agree")
    if is_range(part.gpus):
        raise Rejected(
            f"{said}, and spec.template.spec asks for {range_text(part.gpus)} GPUs: a job is elastic in one dimension; "
            "give a fixed number of GPUs, or of tasks"
        )
    if part.container.gpu_memory_mib and is_range(tasks):
        raise Rejected(
            f"{said}, and they share GPUs ({SHARE}): a job that shares GPUs has a fixed number of tasks; "
            "leave one of the two annotations out"
        )
    return Width(Dimension.TASKS, *tasks)


def array_width(array: Array, parts: tuple[Part, ...], where: str) -> Width:
    tasks = len(array.indices)
    if len(parts) > 1:
        raise Rejected(
            f"{where} has {len(parts)} containers and is run {tasks} times: each task of an array is one "
            "process; keep one container, or one completion"
        )
    if is_range(parts[0].gpus):
        raise Rejected(
            f"{where} asks for {range_text(parts[0].gpus)} GPUs and is run {tasks} times: the tasks of an "
            "array are alike; give one number of GPUs, or one completion"
        )
    return Width(Dimension.TASKS, 1, array.at_once)
