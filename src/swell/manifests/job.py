"""What does `apiVersion: batch/v1, kind: Job` ask for?

Several completions are an array: independent tasks, one per index. In a pod group they are a gang, of one size or,
as annotated, of a range of sizes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from swell.errors import Rejected
from swell.manifests.context import Context
from swell.manifests.fields import Fields, is_true, take_choice, whole_number
from swell.manifests.gang import Part, Width, check_replicas, gang_width, is_range, make_spec, only_container, pod_parts
from swell.manifests.metadata import SHARE, TASKS, read_object
from swell.manifests.native import range_text
from swell.manifests.podspec import HOLD, INT32_MAX, POD_GROUP, RETRIES_DEFAULT, Pod, read_seconds, read_template
from swell.model.job import Array, Dimension, JobSpec
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
        "suspend",
    ),
    idle=(
        "managedBy",
        "manualSelector",
        "maxFailedIndexes",
        "podFailurePolicy",
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
    pod = read_template(spec.get("template"), "spec.template", seen, context, restarts=RESTARTS)
    parts = pod_parts(pod, identity)
    array = _array(spec)
    check_replicas(identity, array.at_once if array else 1)
    if array is not None and pod.group is not None:
        parts, array = _gang(array, parts[0], pod), None
    if identity.tasks is not None:
        width = _annotated_width(identity.tasks, spec, parts[0], pod)
        parts = (replace(parts[0], count=width.low),)
    else:
        width = _array_width(array, parts) if array else gang_width(parts)
    retries = read_retries(spec, "spec")
    return make_spec(
        identity,
        context,
        parts,
        (pod,),
        width,
        retries=RETRIES_DEFAULT if retries is None else retries,
        deadline_s=read_seconds(spec, "activeDeadlineSeconds", "spec", low=1),
        array=array,
        is_held=is_true(spec.get("suspend"), "spec.suspend"),
    )


def read_limit(spec: dict[str, Any], field: str, where: str) -> int | None:
    return None if spec.get(field) is None else whole_number(spec[field], f"{where}.{field}", low=0, high=INT32_MAX)


def read_retries(spec: dict[str, Any], where: str) -> int | None:
    """None: it does not say."""
    given = (read_limit(spec, field, where) for field in ("backoffLimit", "backoffLimitPerIndex"))
    return next((limit for limit in given if limit is not None), None)


def _array(spec: dict[str, Any]) -> Array | None:
    """Without `completions` it is a queue of work in Kubernetes: so many pods, each takes what it finds."""
    completions, parallelism = (_count(spec, field) for field in ("completions", "parallelism"))
    mode = spec.get("completionMode")
    is_indexed = mode is not None and take_choice(mode, MODES, "spec.completionMode") == "Indexed"
    if is_indexed and completions is None:
        raise Rejected("spec.completionMode is Indexed, but spec.completions does not say how many; give both")
    at_once = parallelism or 1
    tasks = at_once if completions is None else completions
    if tasks == 1:
        return None
    return Array(IndexSet(((0, tasks - 1, 1),)), min(at_once, tasks))


def _count(spec: dict[str, Any], field: str) -> int | None:
    if spec.get(field) is None:
        return None
    count = whole_number(spec[field], f"spec.{field}", low=0, high=ARRAY_TASKS_MAX)
    if count == 0:
        raise Rejected(f"spec.{field} is 0, so nothing would be run; write 1 or more, or {HOLD}")
    return count


def _gang(array: Array, part: Part, pod: Pod) -> tuple[Part, ...]:
    """What the label of a pod group asks for: all of them, or none."""
    only_container(pod)
    tasks = len(array.indices)
    if array.at_once < tasks:
        raise Rejected(
            f"spec.template is in the pod group {pod.group!r}, which starts together, but of its {tasks} pods "
            f"{array.at_once} may run at once; write parallelism: {tasks}, or leave the label out"
        )
    if tasks > COUNT_MAX:
        raise Rejected(f"the pod group {pod.group!r} has {tasks} pods; a job has at most {COUNT_MAX} tasks")
    return (replace(part, count=tasks),)


def _annotated_width(tasks: tuple[int, int], spec: dict[str, Any], part: Part, pod: Pod) -> Width:
    """`part`: with as many tasks as the Job itself says; where it says nothing, the range alone counts."""
    said = f"metadata.annotations: {TASKS} is {range_text(tasks)}"
    if pod.group is None:
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


def _array_width(array: Array, parts: tuple[Part, ...]) -> Width:
    tasks = len(array.indices)
    if len(parts) > 1:
        raise Rejected(
            f"spec.template.spec has {len(parts)} containers and is run {tasks} times: each task of an array is one "
            "process; keep one container, or one completion"
        )
    if is_range(parts[0].gpus):
        raise Rejected(
            f"spec.template.spec asks for {range_text(parts[0].gpus)} GPUs and is run {tasks} times: the tasks of an "
            "array are alike; give one number of GPUs, or one completion"
        )
    return Width(Dimension.TASKS, 1, array.at_once)
