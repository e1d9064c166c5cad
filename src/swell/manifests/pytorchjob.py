"""What does `apiVersion: kubeflow.org/v1, kind: PyTorchJob` ask for?

One gang: the Master is rank 0, the Workers come after it, and all of them start together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from swell.errors import Rejected
from swell.manifests.context import Context
from swell.manifests.exit_rules import PERMANENT
from swell.manifests.fields import Fields, is_true, take_choice, take_mapping, take_optional, whole_number
from swell.manifests.gang import (
    Part,
    Width,
    annotated_pods,
    check_replicas,
    gang_width,
    is_range,
    make_spec,
    only_container,
)
from swell.manifests.job import read_limit
from swell.manifests.metadata import ObjectIdentity, read_object
from swell.manifests.native_roles import range_text
from swell.manifests.podspec import RETRIES_DEFAULT, Pod, read_seconds, read_template
from swell.model.job import Dimension, ExitAction, ExitRule, JobSpec
from swell.model.quantity import COUNT_MAX

RESTARTS = ("Always", "OnFailure", "Never", "ExitCode")
REPLICA_TYPES = Fields(used=("Master", "Worker"))
REPLICA = Fields(used=("replicas", "restartPolicy", "template"))
PYTORCHJOB = Fields(used=("pytorchReplicaSpecs", "elasticPolicy", "nprocPerNode", "runPolicy"))
RUN_POLICY = Fields(
    used=("activeDeadlineSeconds", "backoffLimit", "suspend"),
    idle=("cleanPodPolicy", "managedBy", "schedulingPolicy", "ttlSecondsAfterFinished"),
)
ELASTIC = Fields(
    used=("minReplicas", "maxReplicas", "nProcPerNode"),
    idle=("maxRestarts", "metrics", "rdzvBackend", "rdzvConf", "rdzvHost", "rdzvId", "rdzvPort", "standalone"),
)
NPROC, PET_NPROC = "NPROC_PER_NODE", "PET_NPROC_PER_NODE"


@dataclass(frozen=True, slots=True)
class Replicas:
    """One replica type."""

    where: str
    name: str
    count: int
    is_count_given: bool
    restart: str  #: what it says, or OnFailure
    pod: Pod


def read(document: dict[str, Any], context: Context) -> JobSpec:
    identity, spec = read_object(document, context)
    PYTORCHJOB.check(spec, "spec", on_cluster=context.on_cluster)
    policy = take_optional(spec.get("runPolicy"), "spec.runPolicy")
    RUN_POLICY.check(policy, "spec.runPolicy", on_cluster=context.on_cluster)
    elastic = take_optional(spec.get("elasticPolicy"), "spec.elasticPolicy")
    ELASTIC.check(elastic, "spec.elasticPolicy", on_cluster=context.on_cluster)
    groups = _replicas(spec.get("pytorchReplicaSpecs"), identity, context)
    parts = _parts(groups, identity, {} if context.on_cluster else _processes(spec, elastic))
    if spec.get("elasticPolicy") is None:
        width = gang_width(parts)
    else:
        width = _elastic_width(elastic, groups, parts)
        parts = (replace(parts[0], count=width.low),)
    check_replicas(identity, sum(part.count for part in parts))
    return make_spec(
        identity,
        context,
        parts,
        tuple(group.pod for group in groups),
        width,
        retries=0 if context.on_cluster else _retries(policy, groups),
        exit_rules=_exit_rules(groups, is_elastic=spec.get("elasticPolicy") is not None),
        deadline_s=read_seconds(policy, "activeDeadlineSeconds", "spec.runPolicy", low=1),
        is_held=is_true(policy.get("suspend"), "spec.runPolicy.suspend"),
    )


def _replicas(value: object, identity: ObjectIdentity, context: Context) -> tuple[Replicas, ...]:
    """In the order of ranks, those without a replica left out."""
    where = "spec.pytorchReplicaSpecs"
    given = take_mapping(value, where)
    REPLICA_TYPES.check(given, where)
    groups = [
        _read_replicas(given[kind], f"{where}.{kind}", kind, identity, context)
        for kind in REPLICA_TYPES.used
        if given.get(kind) is not None
    ]
    there = tuple(group for group in groups if group.count)
    if not there:
        raise Rejected(f"{where} has no replica; give a Master, a Worker or both")
    return there


def _read_replicas(value: object, where: str, kind: str, identity: ObjectIdentity, context: Context) -> Replicas:
    given = take_mapping(value, where)
    REPLICA.check(given, where, on_cluster=context.on_cluster)
    asked = given.get("replicas")
    count = 1 if asked is None else whole_number(asked, f"{where}.replicas", low=0, high=COUNT_MAX)
    if kind == "Master" and count != 1:
        raise Rejected(f"{where}.replicas is {count}, but there is one Master; write 1, and give the rest to Worker")
    added = {
        "training.kubeflow.org/job-name": identity.name,
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/replica-type": kind.lower(),
    }
    seen = replace(identity, added=added)
    pod = read_template(given.get("template"), f"{where}.template", seen, context, restarts=RESTARTS)
    only_container(pod)
    restart = given.get("restartPolicy")
    return Replicas(
        where=where,
        name=kind.lower(),
        count=count,
        is_count_given=asked is not None,
        restart=pod.restart or "OnFailure" if restart is None else _restart(restart, where),
        pod=pod,
    )


def _restart(value: object, where: str) -> str:
    return take_choice(value, RESTARTS, f"{where}.restartPolicy")


def _parts(groups: tuple[Replicas, ...], identity: ObjectIdentity, told: dict[str, str]) -> tuple[Part, ...]:
    parts = []
    containers = annotated_pods(tuple(group.pod for group in groups), identity)
    for group, container in zip(groups, containers, strict=True):
        if told:
            container = replace(container, env=tuple(sorted({**told, **dict(container.env)}.items())))
        parts.append(Part(group.name, container, group.count, group.pod.rules))
    return tuple(parts)


def _processes(spec: dict[str, Any], elastic: dict[str, Any]) -> dict[str, str]:
    """What tells the command how many processes it is to start; nothing where that is left to it."""
    where, value = "spec.nprocPerNode", spec.get("nprocPerNode")
    if value is None:
        where, value = "spec.elasticPolicy.nProcPerNode", elastic.get("nProcPerNode")
    if value is None or value == "auto":
        return {}
    if value in ("gpu", "cpu"):  # torchrun counts them where it runs
        return {PET_NPROC: value}
    number = whole_number(value, where, low=1, high=COUNT_MAX)
    return dict.fromkeys((NPROC, PET_NPROC), str(number)) if number > 1 else {}


def _exit_rules(groups: tuple[Replicas, ...], *, is_elastic: bool) -> tuple[ExitRule, ...]:
    """Of replicas with `restartPolicy: ExitCode`: codes below 128 are for good, those of signals are not."""
    rules, first = [], 0
    for group in groups:
        if group.restart == "ExitCode":
            ranks = None if is_elastic else (first, first + group.count - 1)
            rules.append(ExitRule(ExitAction.FAIL, PERMANENT, ranks=ranks))
        first += group.count
    return tuple(rules)


def _elastic_width(elastic: dict[str, Any], groups: tuple[Replicas, ...], parts: tuple[Part, ...]) -> Width:
    where = "spec.elasticPolicy"
    workers = groups[-1]
    if groups[0].name == "master":
        raise Rejected(
            f"{where} with a Master: the number of Workers cannot change beside a task of another kind; "
            "make all replicas Workers, or leave elasticPolicy out"
        )
    low, high = (
        workers.count
        if elastic.get(field) is None
        else whole_number(elastic[field], f"{where}.{field}", low=1, high=COUNT_MAX)
        for field in ("minReplicas", "maxReplicas")
    )
    if high < low:
        raise Rejected(f"{where}: minReplicas {low} is above maxReplicas {high}; the minimum is the least")
    if workers.is_count_given and not low <= workers.count <= high:
        raise Rejected(
            f"{workers.where}.replicas is {workers.count}, but {where} allows {low}..{high}; make them agree"
        )
    if parts[0].container.gpu_memory_mib and low < high:
        raise Rejected(
            f"{where} with {low}..{high} Workers that share GPUs: a job that shares GPUs has a fixed number of tasks; "
            "make minReplicas and maxReplicas the same, or leave the annotation swell.dev/gpu-memory out"
        )
    if is_range(parts[0].gpus):
        raise Rejected(
            f"{where} with {range_text(parts[0].gpus)} GPUs in each Worker: a job is elastic in one dimension; "
            "give a fixed number of GPUs, or leave elasticPolicy out"
        )
    return Width(Dimension.TASKS, low, high)


def _retries(policy: dict[str, Any], groups: tuple[Replicas, ...]) -> int:
    limit = read_limit(policy, "backoffLimit", "spec.runPolicy")
    if limit is not None:
        return limit
    never = [group for group in groups if group.restart == "Never"]
    others = [group for group in groups if group.restart != "Never"]
    if never and others:
        raise Rejected(
            f"{never[0].where}.restartPolicy is Never and {others[0].where}.restartPolicy is "
            f"{others[0].restart}: all tasks start again together; make them the same, or give "
            "spec.runPolicy.backoffLimit"
        )
    return 0 if never else RETRIES_DEFAULT
