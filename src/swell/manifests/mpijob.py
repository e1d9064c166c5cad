"""What does `apiVersion: kubeflow.org/v2beta1, kind: MPIJob` ask for?

On Kubernetes the operator's object is created, and is a gang: the Launcher, whose `mpirun` reaches the Workers by ssh,
and the Workers. On machines of our own `mpirun` starts the ranks itself. Where one machine has room for all, the job is
one task, the Launcher's command, which holds what the Launcher and all Workers ask for together. Where none has, it is
a gang of them, in which `mpirun` reaches the Workers through Swell (`swell_sdk/mpi`). As with the operator, Open MPI
finds `slotsPerWorker` slots for each Worker.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from swell.errors import Rejected
from swell.manifests.container import ContainerFields
from swell.manifests.context import Context
from swell.manifests.fields import Fields, is_true, take_choice, take_mapping, take_optional, whole_number
from swell.manifests.gang import NONE, Part, check_replicas, gang_width, make_spec, only_container
from swell.manifests.job import read_limit
from swell.manifests.metadata import ObjectIdentity, read_object
from swell.manifests.podspec import RETRIES_DEFAULT, Pod, read_seconds, read_template
from swell.model.job import JobSpec
from swell.model.launcher import MPI_SLOTS, Launcher
from swell.model.quantity import COUNT_MAX
from swell.model.resources import Resources

RESTARTS = ("Always", "OnFailure", "Never")
MPIJOB = Fields(
    used=("slotsPerWorker", "runLauncherAsWorker", "mpiReplicaSpecs", "runPolicy", "mpiImplementation"),
    idle=("launcherCreationPolicy", "sshAuthMountPath"),
)
REPLICA_TYPES = Fields(used=("Launcher", "Worker"))
REPLICA = Fields(used=("replicas", "restartPolicy", "template"))
RUN_POLICY = Fields(
    used=("activeDeadlineSeconds", "backoffLimit", "suspend"),
    idle=("cleanPodPolicy", "managedBy", "schedulingPolicy", "ttlSecondsAfterFinished"),
)
IMPLEMENTATIONS = ("OpenMPI", "Intel", "MPICH")
WHERE = "spec.mpiReplicaSpecs"
HOSTFILE = "/etc/mpi"
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # an image's usual user
FIXED = "{} asks for a range of GPUs, but the ranks of an MPIJob are fixed; give one number"
WAITS = (
    "spec.launcherCreationPolicy is WaitForWorkersReady, but Swell starts the Launcher and the Workers together, or "
    "none of them; write AtStartup, and let the command wait for the Workers, or runPolicy.backoffLimit try again"
)


@dataclass(frozen=True, slots=True)
class MpiReplicas:
    count: int
    pod: Pod

    @property
    def container(self) -> ContainerFields:
        return self.pod.containers[0]


def read(document: dict[str, Any], context: Context) -> JobSpec:
    identity, spec = read_object(document, context)
    MPIJOB.check(spec, "spec", on_cluster=context.on_cluster)
    policy = take_optional(spec.get("runPolicy"), "spec.runPolicy")
    RUN_POLICY.check(policy, "spec.runPolicy", on_cluster=context.on_cluster)
    launcher, workers = _replicas(spec.get("mpiReplicaSpecs"), identity, context)
    slots = _slots(spec, workers)
    limit = read_limit(policy, "backoffLimit", "spec.runPolicy")
    check_replicas(identity, 1 + (workers.count if workers else 0))
    is_spread = not context.on_cluster and workers is not None and _is_too_large(launcher, workers, spec, context)
    if context.on_cluster:
        parts = _pods(spec, launcher, workers)
    elif is_spread and workers is not None:
        parts = _spread(spec, launcher, workers, slots)
    else:
        parts = _process(spec, launcher, workers, slots)
    pods = (launcher.pod, *([workers.pod] if workers and context.on_cluster else []))
    found = make_spec(
        identity,
        context,
        parts,
        pods,
        gang_width(parts),
        retries=limit if limit is not None else 0 if launcher.pod.restart == "Never" else RETRIES_DEFAULT,
        deadline_s=read_seconds(policy, "activeDeadlineSeconds", "spec.runPolicy", low=1),
        is_held=is_true(policy.get("suspend"), "spec.runPolicy.suspend"),
    )
    if context.on_cluster:
        return found
    return replace(found, notes=(*found.notes, *_notes(workers)), launcher=Launcher.MPI if is_spread else None)


def _pods(spec: dict[str, Any], launcher: MpiReplicas, workers: MpiReplicas | None) -> tuple[Part, ...]:
    """The Launcher is rank 0. How many ranks `mpirun` starts in the Workers is its own affair."""
    if spec.get("launcherCreationPolicy") == "WaitForWorkersReady":
        raise Rejected(WAITS)
    both = (("launcher", launcher), ("worker", workers))
    parts = tuple(Part(name, one.container, one.count, one.pod.rules) for name, one in both if one is not None)
    ranged = next((part for part in parts if part.gpus[0] < part.gpus[1]), None)
    if ranged is not None:
        raise Rejected(FIXED.format(ranged.container.where))
    return parts


def _process(spec: dict[str, Any], launcher: MpiReplicas, workers: MpiReplicas | None, slots: int) -> tuple[Part, ...]:
    _refuse_hostfile(launcher.container)
    return (Part("launcher", _whole(launcher, workers, _variables(spec, slots)), 1),)


def _is_too_large(launcher: MpiReplicas, workers: MpiReplicas, spec: dict[str, Any], context: Context) -> bool:
    """Is there no machine that has room for all of it, and more than one? Only of Open MPI several can be used."""
    if len(context.nodes) < 2 or _implementation(spec) != "OpenMPI":
        return False
    whole = _whole(launcher, workers, {})
    gpus, _ = whole.gpus or NONE
    needs = Resources(whole.cpus_milli, whole.memory_mib, gpus)
    return not any(needs.fits_in(node) for node in context.nodes)


def _spread(spec: dict[str, Any], launcher: MpiReplicas, workers: MpiReplicas, slots: int) -> tuple[Part, ...]:
    """What a Worker runs is decided by `mpirun`; its size and its variables are its own."""
    _refuse_hostfile(launcher.container)
    first, other = launcher.container, workers.container
    each = _slots_each(spec)
    told = {"K_MPI_JOB_ROLE": "worker", MPI_SLOTS: str(each), **ROOT, **dict(other.env)}
    led = {"K_MPI_JOB_ROLE": "launcher", MPI_SLOTS: str(slots - each * workers.count), **ROOT, **dict(first.env)}
    like = replace(other, command=first.command, workdir=first.workdir, env=tuple(sorted(told.items())))
    return (
        Part("launcher", replace(first, env=tuple(sorted(led.items()))), 1, launcher.pod.rules),
        Part("worker", like, workers.count, workers.pod.rules),
    )


def _replicas(value: object, identity: ObjectIdentity, context: Context) -> tuple[MpiReplicas, MpiReplicas | None]:
    given = take_mapping(value, WHERE)
    REPLICA_TYPES.check(given, WHERE, on_cluster=context.on_cluster)
    if given.get("Launcher") is None:
        raise Rejected(f"{WHERE} has no Launcher; it has the command that is run, as in [mpirun, -n, '2', ./program]")
    launcher = _read_replicas(given["Launcher"], f"{WHERE}.Launcher", identity, context)
    if launcher.count != 1:
        raise Rejected(f"{WHERE}.Launcher.replicas is {launcher.count}, but there is one Launcher; write 1")
    worker = given.get("Worker")
    workers = None if worker is None else _read_replicas(worker, f"{WHERE}.Worker", identity, context)
    return launcher, workers if workers is not None and workers.count else None


def _read_replicas(value: object, where: str, identity: ObjectIdentity, context: Context) -> MpiReplicas:
    given = take_mapping(value, where)
    REPLICA.check(given, where, on_cluster=context.on_cluster)
    asked, restart = given.get("replicas"), given.get("restartPolicy")
    count = 1 if asked is None else whole_number(asked, f"{where}.replicas", low=0, high=COUNT_MAX)
    template = _with_a_command(given.get("template")) if where.endswith("Worker") else given.get("template")
    pod = read_template(template, f"{where}.template", identity, context, restarts=RESTARTS)
    only_container(pod)
    if restart is not None:
        pod = replace(pod, restart=take_choice(restart, RESTARTS, f"{where}.restartPolicy"))
    return MpiReplicas(count, pod)


def _with_a_command(template: Any) -> Any:
    """A Worker of the operator runs the image's sshd, and its container names no command."""
    try:
        containers = [{"command": ["sshd"], **one} for one in template["spec"]["containers"]]
    except (KeyError, TypeError):
        return template  # what is wrong with it is said by its reader
    return {**template, "spec": {**template["spec"], "containers": containers}}


def _slots(spec: dict[str, Any], workers: MpiReplicas | None) -> int:
    with_launcher = is_true(spec.get("runLauncherAsWorker"), "spec.runLauncherAsWorker") or workers is None
    return _slots_each(spec) * ((workers.count if workers else 0) + with_launcher)


def _slots_each(spec: dict[str, Any]) -> int:
    each = spec.get("slotsPerWorker")
    return 1 if each is None else whole_number(each, "spec.slotsPerWorker", low=1, high=COUNT_MAX)


def _implementation(spec: dict[str, Any]) -> str:
    given = spec.get("mpiImplementation")
    return "OpenMPI" if given is None else take_choice(given, IMPLEMENTATIONS, "spec.mpiImplementation")


def _variables(spec: dict[str, Any], slots: int) -> dict[str, str]:
    """As the operator gives them. MPICH and Intel MPI start as many ranks on one machine as they are told to."""
    role = {"K_MPI_JOB_ROLE": "launcher"}
    return {**role, **open_mpi_variables(slots)} if _implementation(spec) == "OpenMPI" else role


def open_mpi_variables(slots: int) -> dict[str, str]:
    """Open MPI would count cores, and refuse to start for root."""
    return {"OMPI_MCA_orte_set_default_slots": str(slots), **ROOT}


def _whole(launcher: MpiReplicas, workers: MpiReplicas | None, variables: dict[str, str]) -> ContainerFields:
    """The Launcher, with room for the ranks that it starts."""
    count = workers.count if workers else 0
    every = [launcher.container, *([workers.container] if workers else [])]
    counts = [1, count]
    gpus = [one.gpus or NONE for one in every]
    if any(low < high for low, high in gpus):
        raise Rejected(FIXED.format(WHERE))
    total = sum(number * low for number, (low, _) in zip(counts, gpus, strict=False))
    return replace(
        launcher.container,
        cpus_milli=sum(number * one.cpus_milli for number, one in zip(counts, every, strict=False)),
        memory_mib=sum(number * one.memory_mib for number, one in zip(counts, every, strict=False)),
        gpus=(total, total) if total else None,
        cpu_limit_milli=_cpu_limit(counts, every),
        env=tuple(sorted({**variables, **dict(launcher.container.env)}.items())),
    )


def _cpu_limit(counts: list[int], every: list[ContainerFields]) -> int:
    """Of all together, where each has one."""
    there = [(number, one.cpu_limit_milli) for number, one in zip(counts, every, strict=False) if number]
    return sum(number * limit for number, limit in there) if all(limit for _, limit in there) else 0


def _refuse_hostfile(container: ContainerFields) -> None:
    named = next((word for word in container.command if HOSTFILE in word), None)
    if named is not None:
        raise Rejected(
            f"{container.where}.command names {HOSTFILE}, which the operator mounts and this machine does not have; "
            "leave the option out: mpirun finds its slots by itself"
        )


def _notes(workers: MpiReplicas | None) -> tuple[str, ...]:
    if workers is None or workers.container.command == ("sshd",):
        return ()
    return (f"{WHERE}.Worker: its command has no effect: mpirun starts the ranks itself",)
