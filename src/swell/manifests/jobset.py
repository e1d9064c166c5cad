"""What does `apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet` ask for?

One gang: every pod of every Job, in the order they are written, all started together and started again together. A set
of one replicated Job with fewer pods at once than it has completions is an array: independent tasks, a few at a time.
What the controller of JobSets would do step by step (one after the other has ended, some of them enough) is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from swell.errors import Rejected
from swell.manifests.affinity import read_labels
from swell.manifests.container import ContainerFields
from swell.manifests.context import Context
from swell.manifests.downward import Jobs, told_to
from swell.manifests.exit_rules import read_pod_failure_policy, read_set_rules
from swell.manifests.fields import (
    Fields,
    inside,
    is_true,
    read_name,
    shorten,
    take_choice,
    take_list,
    take_mapping,
    take_optional,
    take_text,
    whole_number,
)
from swell.manifests.gang import Part, Width, annotated_pods, check_replicas, gang_width, make_spec, only_container
from swell.manifests.job import JOB, MODES, RESTARTS, array_width, read_limit, read_retries
from swell.manifests.metadata import METADATA, ObjectIdentity, read_object
from swell.manifests.podspec import RETRIES_DEFAULT, TEMPLATE, Pod, read_seconds, read_template
from swell.manifests.shards import SHARDS, Shards, render_shards
from swell.model.job import Array, ExitAction, ExitRule, JobSpec
from swell.model.placement import EXCLUSIVE, NO_RULES, Domain, PlacementRules
from swell.model.quantity import ARRAY_TASKS_MAX, COUNT_MAX, IndexSet

REPLICATED_JOBS_MAX = 64  # a set has two or three; each may be a large text
JOBSET = Fields(
    used=("replicatedJobs", "successPolicy", "failurePolicy", "startupPolicy", "suspend", "coordinator", "network"),
    idle=("managedBy", "ttlSecondsAfterFinished", "volumeClaimPolicies"),
)
TOGETHER = (
    "lets it start after another, but all tasks of a job start together; "
    "leave it out, or submit them as jobs of their own and let one wait for the other"
)
NODE_SELECTOR = "alpha.jobset.sigs.k8s.io/node-selector"
REPLICATED_JOB = Fields(
    used=("name", "replicas", "template", "dependsOn"),
    idle=("groupName",),
    refused_on_cluster={"dependsOn": TOGETHER},
)
DEPENDENCY = Fields(used=("name", "status"))
SUCCESS = Fields(used=("operator", "targetReplicatedJobs"))
FAILURE = Fields(used=("maxRestarts", "rules"), idle=("restartStrategy",))
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
    at_once: int  #: of these pods
    job: dict[str, Any]  #: what each Job is
    depends_on: tuple[str, ...]  #: entries that are ready before it starts on Kubernetes
    exclusive: str = ""  #: a label: each Job has the nodes with one value of it to itself; empty: it shares them

    @property
    def is_array(self) -> bool:
        return self.at_once < self.pods


def read(document: dict[str, Any], context: Context) -> JobSpec:
    identity, spec = read_object(document, context)
    on_cluster = context.on_cluster
    JOBSET.check(spec, "spec", on_cluster=on_cluster)
    NETWORK.check(take_optional(spec.get("network"), "spec.network"), "spec.network", on_cluster=on_cluster)
    exclusive = _read_exclusive(document.get("metadata"), "metadata") if on_cluster else ""
    entries = _entries(spec.get("replicatedJobs"), context, exclusive)
    notes = (*_startup(spec.get("startupPolicy"), entries, context), *_dependency_notes(entries))
    if not on_cluster:
        _check_success(spec.get("successPolicy"), [entry.name for entry in entries])
    has_coordinator = spec.get("coordinator") is not None
    if has_coordinator:
        _check_coordinator(take_mapping(spec["coordinator"], "spec.coordinator"), entries, context)
    pods = _pods(entries, identity, context, has_coordinator=has_coordinator)
    containers = _told_shards(entries, annotated_pods(pods, identity))
    array = _array(entries)
    parts = tuple(
        Part(entry.name, container, 1 if array else entry.replicas * entry.pods, _rules(entry, pod))
        for entry, pod, container in zip(entries, pods, containers, strict=True)
    )
    check_replicas(identity, array.at_once if array else sum(part.count for part in parts))
    rules, rule_notes = ((), ()) if on_cluster else _exit_rules(spec.get("failurePolicy"), entries, pods)
    pods = (replace(pods[0], notes=(*pods[0].notes, *notes, *rule_notes)), *pods[1:])
    deadlines = [read_seconds(entry.job, "activeDeadlineSeconds", entry.where, low=1) for entry in entries]
    width = array_width(array, parts, containers[0].where) if array else gang_width(parts)
    _refuse_resized_exclusive(entries, width)
    return make_spec(
        identity,
        context,
        parts,
        pods,
        width,
        array=array,
        retries=0 if on_cluster else _retries(spec.get("failurePolicy"), entries),
        exit_rules=rules,
        deadline_s=min((seconds for seconds in deadlines if seconds is not None), default=None),
        is_held=is_true(spec.get("suspend"), "spec.suspend"),
    )


# -- the Jobs ------------------------------------------------------------------------------------------------


def _entries(value: object, context: Context, exclusive: str) -> tuple[Entry, ...]:
    """In the order of ranks, those without a replica left out."""
    given = take_list(value, WHERE)
    if len(given) > REPLICATED_JOBS_MAX:
        raise Rejected(f"{WHERE} has {len(given)} entries; at most {REPLICATED_JOBS_MAX}: split the set")
    entries = [_entry(entry, f"{WHERE}[{number}]", context, exclusive) for number, entry in enumerate(given)]
    names = [entry.name for entry in entries]
    for name in names:
        if names.count(name) > 1:
            raise Rejected(f"{WHERE} has the name {name!r} twice; every entry has its own")
    there = tuple(entry for entry in entries if entry.replicas)
    if not there:
        raise Rejected(f"{WHERE} has no replica; give at least one Job")
    pods = sum(entry.replicas * entry.pods for entry in there)
    most = ARRAY_TASKS_MAX if any(entry.is_array for entry in there) else COUNT_MAX
    if pods > most:
        raise Rejected(f"{WHERE} stands for {pods} pods; a job has at most {most} tasks")
    return there


def _entry(value: object, where: str, context: Context, exclusive: str) -> Entry:
    on_cluster = context.on_cluster
    at, given = where, take_mapping(value, where)
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
    if on_cluster:
        exclusive = _read_exclusive(metadata, f"{where}.metadata", exclusive)
    where = f"{where}.spec"
    job = take_mapping(template.get("spec"), where)
    JOB.check(job, where, on_cluster=on_cluster)
    if on_cluster:
        pod = take_optional(job.get("template"), f"{where}.template")
        exclusive = _read_exclusive(pod.get("metadata"), f"{where}.template.metadata", exclusive)
    pods, at_once = _pods_of_a_job(job, where)
    if at_once < pods and on_cluster and job.get("completionMode") == "NonIndexed":
        raise Rejected(
            f"{where}.completionMode is NonIndexed and parallelism {at_once} of {pods}: which task a pod is could not "
            "be told; write Indexed, or leave it out"
        )
    depends_on = () if on_cluster else _dependencies(given.get("dependsOn"), f"{at}.dependsOn")
    return Entry(where, name, replicas, pods, at_once, job, depends_on, exclusive)


def _read_exclusive(metadata: object, where: str, known: str = "") -> str:
    """The label of the domains that each Job wants to have to itself. `known`: what the set says, or the Job."""
    where = f"{where}.annotations"
    annotations = take_optional(take_optional(metadata, where).get("annotations"), where)
    if NODE_SELECTOR in annotations:
        raise Rejected(
            f"{where}: {NODE_SELECTOR} cannot be kept: JobSet then chooses the nodes of each Job by labels that it "
            f"adds to its pods, which Swell cannot plan with; leave it out, {EXCLUSIVE} works without it"
        )
    if EXCLUSIVE not in annotations:
        return known
    [key] = read_labels({take_text(annotations[EXCLUSIVE], f"{where}: {EXCLUSIVE}"): ""}, f"{where}: {EXCLUSIVE}")
    if known and key != known:
        raise Rejected(f"{where}: {EXCLUSIVE} is {key}, and above it is {known}; give one")
    return key


def _rules(entry: Entry, pod: Pod) -> PlacementRules | None:
    if not entry.exclusive:
        return pod.rules
    return replace(pod.rules or NO_RULES, domain=Domain(entry.exclusive, entry.pods))


def _refuse_resized_exclusive(entries: tuple[Entry, ...], width: Width) -> None:
    """Followers are made when the first pod of their Job is bound, so its pods are planned together, all or none."""
    if any(entry.exclusive for entry in entries) and (width.low != width.high or any(one.is_array for one in entries)):
        raise Rejected(
            f"{EXCLUSIVE} is for Jobs whose pods all run at once and keep their size; write as many completions as "
            "parallelism, and no range"
        )


def _dependencies(value: object, where: str) -> tuple[str, ...]:
    """Those that are only to be ready: a process is, as soon as it has started."""
    names = []
    for number, one in enumerate(take_list(value, where)):
        given = take_mapping(one, f"{where}[{number}]")
        DEPENDENCY.check(given, f"{where}[{number}]")
        status = take_choice(given.get("status"), ("Ready", "Complete"), f"{where}[{number}].status")
        if status == "Complete":
            raise Rejected(f"{where}[{number}] {TOGETHER}")
        names.append(take_text(given.get("name"), f"{where}[{number}].name"))
    return tuple(names)


def _dependency_notes(entries: tuple[Entry, ...]) -> tuple[str, ...]:
    names = [entry.name for entry in entries]
    for entry in entries:
        for name in entry.depends_on:
            _check_known(name, names, f"dependsOn of {entry.name!r}")
    return tuple(
        f"{entry.name!r} depends on {', '.join(entry.depends_on)}, but all tasks start together here: let its command "
        "wait until it reaches the others"
        for entry in entries
        if entry.depends_on
    )


def _pods_of_a_job(job: dict[str, Any], where: str) -> tuple[int, int]:
    """How many, and how many at once. Indexed when nothing is said, as the controller of JobSets has it."""
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
        return at_once, at_once
    return completions, min(at_once, completions)


def _pods(
    entries: tuple[Entry, ...], identity: ObjectIdentity, context: Context, *, has_coordinator: bool
) -> tuple[Pod, ...]:
    total, before, pods = sum(entry.replicas for entry in entries), 0, []
    for entry in entries:
        jobs = Jobs(entry.name, entry.replicas, entry.pods, before, total, entry.is_array)
        seen = told_to(identity, jobs, has_coordinator=has_coordinator)
        pod = read_template(entry.job.get("template"), f"{entry.where}.template", seen, context, restarts=RESTARTS)
        only_container(pod)
        pods.append(pod)
        before += entry.replicas
    return tuple(pods)


def _array(entries: tuple[Entry, ...]) -> Array | None:
    """None: all pods start together. Otherwise they are independent, and a few of them run at once."""
    few = next((entry for entry in entries if entry.is_array), None)
    if few is None:
        return None
    if len(entries) > 1:
        raise Rejected(
            f"{few.where}.completions is {few.pods} and parallelism {few.at_once}, beside other replicated Jobs: a few "
            f"pods at once are run of a set with one of them; write parallelism: {few.pods}, or a JobSet for each"
        )
    tasks = few.replicas * few.pods
    return Array(IndexSet(((0, tasks - 1, 1),)), few.replicas * few.at_once)


def _told_shards(entries: tuple[Entry, ...], containers: tuple[ContainerFields, ...]) -> tuple[ContainerFields, ...]:
    """Each task is told of all, so that it knows its part of the work."""
    shards = render_shards(
        [
            Shards(entry.name, entry.replicas, entry.pods, container.cpus_milli)
            for entry, container in zip(entries, containers, strict=True)
        ]
    )
    return tuple(replace(one, env=tuple(sorted({SHARDS: shards, **dict(one.env)}.items()))) for one in containers)


# -- the set -------------------------------------------------------------------------------------------------


def _startup(value: object, entries: tuple[Entry, ...], context: Context) -> tuple[str, ...]:
    """What of it has no effect, in words."""
    startup = take_optional(value, "spec.startupPolicy")
    STARTUP.check(startup, "spec.startupPolicy", on_cluster=context.on_cluster)
    if not startup:
        return ()
    where = "spec.startupPolicy.startupPolicyOrder"
    order = take_choice(startup.get("startupPolicyOrder"), ("AnyOrder", "InOrder"), where)
    if order == "AnyOrder" or len(entries) == 1:
        return ()
    if context.on_cluster:
        raise Rejected(
            f"{where} is InOrder, but all tasks of a job start together; write AnyOrder and let the command wait "
            "for the others, or submit them as jobs of their own"
        )
    return (
        f"{where} is InOrder, but all tasks start together here: let the commands wait until they reach the others",
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


def _exit_rules(
    value: object, entries: tuple[Entry, ...], pods: tuple[Pod, ...]
) -> tuple[tuple[ExitRule, ...], tuple[str, ...]]:
    """Which failures are treated otherwise, and what of that has no effect, in words."""
    policy = take_optional(value, "spec.failurePolicy")
    FAILURE.check(policy, "spec.failurePolicy")
    ranks: dict[str, tuple[int, int]] = {}
    own: dict[str, tuple[ExitRule, ...]] = {}
    notes: list[str] = []
    first = 0
    for entry, pod in zip(entries, pods, strict=True):
        last = first + entry.replicas * entry.pods - 1
        ranks[entry.name] = (first, last)
        names, where = [pod.containers[0].name], f"{entry.where}.podFailurePolicy"
        rules, said = read_pod_failure_policy(
            entry.job.get("podFailurePolicy"), where, containers=names, is_array=entry.is_array
        )
        own[entry.name] = tuple(replace(rule, ranks=ranks[entry.name]) for rule in rules)
        notes += said
        first = last + 1
    every = [rule for rules in own.values() for rule in rules]
    if value is None:
        return tuple(every), tuple(notes)
    of_set, said = read_set_rules(policy.get("rules"), "spec.failurePolicy.rules", ranks=ranks, own=own)
    return (*(rule for rule in every if rule.action is ExitAction.IGNORE), *of_set), (*notes, *said)


def _retries(value: object, entries: tuple[Entry, ...]) -> int:
    """How often the whole set starts again; where it does not say, as often as the most patient of its Jobs."""
    policy = take_optional(value, "spec.failurePolicy")
    limits = [read_retries(entry.job, entry.where) for entry in entries]
    if value is not None:
        return read_limit(policy, "maxRestarts", "spec.failurePolicy") or 0
    return max((limit for limit in limits if limit is not None), default=RETRIES_DEFAULT)
