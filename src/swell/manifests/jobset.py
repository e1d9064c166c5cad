"""What does `apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet` ask for?

One gang: every pod of every Job, in the order they are written, all started together and started again together.
What the controller of JobSets would do step by step (one after the other, some of them enough) is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from swell.errors import Rejected
from swell.manifests.context import Context
from swell.manifests.downward import Jobs, told_to
from swell.manifests.fields import (
    Fields,
    inside,
    is_true,
    shorten,
    take_choice,
    take_list,
    take_mapping,
    take_optional,
    take_text,
    whole_number,
)
from swell.manifests.gang import Part, annotated_pods, check_replicas, gang_width, make_spec, only_container
from swell.manifests.job import JOB, MODES, RESTARTS, read_limit, read_retries
from swell.manifests.metadata import METADATA, Identity, read_object
from swell.manifests.names import read_name
from swell.manifests.podspec import RETRIES_DEFAULT, TEMPLATE, Pod, read_seconds, read_template
from swell.model.job import JobSpec
from swell.model.quantity import COUNT_MAX

REPLICATED_JOBS_MAX = 64  # a set has two or three; each may be a large text
JOBSET = Fields(
    used=("replicatedJobs", "successPolicy", "failurePolicy", "startupPolicy", "suspend", "coordinator", "network"),
    idle=("managedBy", "ttlSecondsAfterFinished", "volumeClaimPolicies"),
)
TOGETHER = {
    "dependsOn": "lets it start after another, but all tasks of a job start together; "
    "leave it out, or submit them as jobs of their own and let one wait for the other"
}
REPLICATED_JOB = Fields(
    used=("name", "replicas", "template"), idle=("groupName",), refused=TOGETHER, refused_on_cluster=TOGETHER
)
SUCCESS = Fields(used=("operator", "targetReplicatedJobs"))
FAILURE = Fields(
    used=("maxRestarts",),
    idle=("restartStrategy",),
    refused={"rules": "tells one failure from another, but every one counts alike here; leave it out"},
)
STARTUP = Fields(used=("startupPolicyOrder",))
COORDINATOR = Fields(used=("replicatedJob", "jobIndex", "podIndex"))
NETWORK = Fields(used=(), idle=("enableDNSHostnames", "subdomain", "publishNotReadyAddresses"))
WHERE = "spec.replicatedJobs"


@dataclass(frozen=True, slots=True)
class Entry:
    """One of `replicatedJobs`, its pods not looked at yet."""

    where: str
    name: str
    replicas: int
    pods: int  #: of each Job
    job: dict[str, Any]  #: what each Job is


def read(document: dict[str, Any], context: Context) -> JobSpec:
    identity, spec = read_object(document, context)
    on_cluster = context.on_cluster
    JOBSET.check(spec, "spec", on_cluster=on_cluster)
    NETWORK.check(take_optional(spec.get("network"), "spec.network"), "spec.network", on_cluster=on_cluster)
    entries = _entries(spec.get("replicatedJobs"), context)
    _check_startup(spec.get("startupPolicy"), entries, context)
    if not on_cluster:
        _check_success(spec.get("successPolicy"), [entry.name for entry in entries])
    has_coordinator = spec.get("coordinator") is not None
    if has_coordinator:
        _check_coordinator(take_mapping(spec["coordinator"], "spec.coordinator"), entries, context)
    pods = _pods(entries, identity, context, has_coordinator=has_coordinator)
    containers = annotated_pods(pods, identity)
    parts = tuple(
        Part(entry.name, container, entry.replicas * entry.pods, pod.rules)
        for entry, pod, container in zip(entries, pods, containers, strict=True)
    )
    check_replicas(identity, sum(part.count for part in parts))
    deadlines = [read_seconds(entry.job, "activeDeadlineSeconds", entry.where, low=1) for entry in entries]
    return make_spec(
        identity,
        context,
        parts,
        pods,
        gang_width(parts),
        retries=0 if on_cluster else _retries(spec.get("failurePolicy"), entries),
        deadline_s=min((seconds for seconds in deadlines if seconds is not None), default=None),
        is_held=is_true(spec.get("suspend"), "spec.suspend"),
    )


# -- the Jobs ------------------------------------------------------------------------------------------------


def _entries(value: object, context: Context) -> tuple[Entry, ...]:
    """In the order of ranks, those without a replica left out."""
    given = take_list(value, WHERE)
    if len(given) > REPLICATED_JOBS_MAX:
        raise Rejected(f"{WHERE} has {len(given)} entries; at most {REPLICATED_JOBS_MAX}: split the set")
    entries = [_entry(entry, f"{WHERE}[{number}]", context) for number, entry in enumerate(given)]
    names = [entry.name for entry in entries]
    for name in names:
        if names.count(name) > 1:
            raise Rejected(f"{WHERE} has the name {name!r} twice; every entry has its own")
    there = tuple(entry for entry in entries if entry.replicas)
    if not there:
        raise Rejected(f"{WHERE} has no replica; give at least one Job")
    pods = sum(entry.replicas * entry.pods for entry in there)
    if pods > COUNT_MAX:
        raise Rejected(f"{WHERE} stands for {pods} pods; a job has at most {COUNT_MAX} tasks")
    return there


def _entry(value: object, where: str, context: Context) -> Entry:
    on_cluster = context.on_cluster
    given = take_mapping(value, where)
    REPLICATED_JOB.check(given, where, on_cluster=on_cluster)
    with inside(f"{where}: "):
        name = read_name(given.get("name"))
    asked = given.get("replicas")
    replicas = 1 if asked is None else whole_number(asked, f"{where}.replicas", low=0, high=COUNT_MAX)
    template = take_mapping(given.get("template"), f"{where}.template")
    where = f"{where}.template"
    TEMPLATE.check(template, where, on_cluster=on_cluster)
    metadata = take_optional(template.get("metadata"), f"{where}.metadata")
    METADATA.check(metadata, f"{where}.metadata", on_cluster=on_cluster)
    where = f"{where}.spec"
    job = take_mapping(template.get("spec"), where)
    JOB.check(job, where, on_cluster=on_cluster)
    return Entry(where, name, replicas, _pods_of_a_job(job, where), job)


def _pods_of_a_job(job: dict[str, Any], where: str) -> int:
    """Indexed when nothing is said, as the controller of JobSets has it."""
    completions, parallelism = (
        None if job.get(field) is None else whole_number(job[field], f"{where}.{field}", low=1, high=COUNT_MAX)
        for field in ("completions", "parallelism")
    )
    mode = job.get("completionMode")
    is_indexed = mode is None or take_choice(mode, MODES, f"{where}.completionMode") == "Indexed"
    at_once = parallelism or 1
    if completions is None:
        if is_indexed and at_once > 1:
            raise Rejected(
                f"{where}.parallelism is {at_once}, but completions does not say how many there are; give both"
            )
        return at_once
    if completions > at_once:
        raise Rejected(
            f"{where}.completions is {completions} and parallelism {at_once}: all pods of a JobSet start together; "
            f"write parallelism: {completions}, or a batch/v1 Job, whose tasks run a few at once"
        )
    return completions


def _pods(
    entries: tuple[Entry, ...], identity: Identity, context: Context, *, has_coordinator: bool
) -> tuple[Pod, ...]:
    total, before, pods = sum(entry.replicas for entry in entries), 0, []
    for entry in entries:
        jobs = Jobs(entry.name, entry.replicas, entry.pods, before, total)
        seen = told_to(identity, jobs, has_coordinator=has_coordinator)
        pod = read_template(entry.job.get("template"), f"{entry.where}.template", seen, context, restarts=RESTARTS)
        only_container(pod)
        pods.append(pod)
        before += entry.replicas
    return tuple(pods)


# -- the set -------------------------------------------------------------------------------------------------


def _check_startup(value: object, entries: tuple[Entry, ...], context: Context) -> None:
    startup = take_optional(value, "spec.startupPolicy")
    STARTUP.check(startup, "spec.startupPolicy", on_cluster=context.on_cluster)
    if not startup:
        return
    where = "spec.startupPolicy.startupPolicyOrder"
    order = take_choice(startup.get("startupPolicyOrder"), ("AnyOrder", "InOrder"), where)
    if order == "InOrder" and len(entries) > 1:
        raise Rejected(
            f"{where} is InOrder, but all tasks of a job start together; write AnyOrder and let the command wait "
            "for the others, or submit them as jobs of their own"
        )


def _check_success(value: object, names: list[str]) -> None:
    where = "spec.successPolicy"
    success = take_optional(value, where)
    SUCCESS.check(success, where)
    if not success:
        return
    operator = take_choice(success.get("operator"), ("All", "Any"), f"{where}.operator")
    targets = [
        take_text(target, f"{where}.targetReplicatedJobs[{number}]")
        for number, target in enumerate(take_list(success.get("targetReplicatedJobs"), f"{where}.targetReplicatedJobs"))
    ]
    for target in targets:
        _check_known(target, names, f"{where}.targetReplicatedJobs")
    if operator == "Any" or (targets and set(targets) != set(names)):
        raise Rejected(
            f"{where} ends the set before all its tasks have; here every task must succeed: leave it out, "
            "and let the others end by themselves"
        )


def _check_coordinator(given: dict[str, Any], entries: tuple[Entry, ...], context: Context) -> None:
    where = "spec.coordinator"
    COORDINATOR.check(given, where, on_cluster=context.on_cluster)
    name = take_text(given.get("replicatedJob"), f"{where}.replicatedJob")
    _check_known(name, [entry.name for entry in entries], f"{where}.replicatedJob")
    entry = next(entry for entry in entries if entry.name == name)
    for field, count in (("jobIndex", entry.replicas), ("podIndex", entry.pods)):
        if given.get(field) is not None:
            whole_number(given[field], f"{where}.{field}", low=0, high=count - 1)


def _check_known(name: str, names: list[str], where: str) -> None:
    if name not in names:
        raise Rejected(f"{where} names {shorten(name)!r}, which is none of {WHERE}: {', '.join(names)}")


def _retries(value: object, entries: tuple[Entry, ...]) -> int:
    """How often the whole set starts again; where it does not say, as often as the most patient of its Jobs."""
    policy = take_optional(value, "spec.failurePolicy")
    FAILURE.check(policy, "spec.failurePolicy")
    limits = [read_retries(entry.job, entry.where) for entry in entries]
    if value is not None:
        return read_limit(policy, "maxRestarts", "spec.failurePolicy") or 0
    return max((limit for limit in limits if limit is not None), default=RETRIES_DEFAULT)
