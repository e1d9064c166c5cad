"""What does `apiVersion: flux-framework.org/v1alpha2, kind: MiniCluster` ask for?

The Flux Operator makes one Flux instance of `size` pods, which runs the command `tasks` times. Here `mpirun` starts
these tasks: on a machine as one task that holds what all pods ask for together, on Kubernetes in the Workers of an
MPIJob, one for each pod.
"""

from __future__ import annotations

import math
import shlex
from dataclasses import replace
from typing import Any

from swell.errors import Rejected
from swell.manifests.command import read_env, read_folder
from swell.manifests.container import ContainerFields, read_container
from swell.manifests.context import Context
from swell.manifests.document import Translation
from swell.manifests.fields import (
    Fields,
    inside,
    is_true,
    shorten,
    take_list,
    take_mapping,
    take_optional,
    take_text,
    whole_number,
)
from swell.manifests.gang import NONE, Part, check_replicas, gang_width, make_spec
from swell.manifests.metadata import ObjectIdentity, read_object
from swell.manifests.mpijob import ROOT, open_mpi_variables
from swell.manifests.podspec import read_seconds
from swell.model.job import JobSpec
from swell.model.kind import MPIJOB
from swell.model.quantity import COUNT_MAX

MINICLUSTER = Fields(
    used=("size", "minSize", "maxSize", "tasks", "containers", "deadlineSeconds"),
    idle=(
        "cleanup",
        "flux",
        "jobLabels",
        "logging",
        "network",
        "pod",
        "services",
        "shareProcessNamespace",
        "users",
        "volumes",
    ),
    refused={
        "archive": "saves the queue of a Flux instance, and there is none on this machine; leave it out",
        "interactive": "keeps a Flux instance without a command; give a command, or run `swell run` for a shell",
    },
)
CONTAINER = Fields(
    used=("name", "command", "environment", "launcher", "resources", "runFlux", "workingDir"),
    idle=(
        "image",
        "imagePullSecret",
        "lifeCycle",
        "ports",
        "pullAlways",
        "secrets",
        "securityContext",
        "volumes",
        "existingVolumes",
    ),
    refused={
        "batch": "submits a file of commands to Flux; write one MiniCluster for each, or an array in Swell's notation",
        "commands": "runs shell commands beside the command; put them into a script, and name that in command",
    },
)
WHERE = "spec.containers"
MADE = (
    "it is created as an MPIJob, and no MiniCluster is: mpirun starts its tasks, so its image needs mpirun and an ssh "
    "server, as images for MPIJobs have, and a command that calls Flux itself fails"
)
#: of the container and of spec: what its pods would be given, and a Worker is not
NOT_OF_A_WORKER = ("lifeCycle", "secrets", "existingVolumes")
NOT_OF_PODS = ("services", "shareProcessNamespace", "volumes")
POD = Fields(used=("nodeSelector", "labels", "annotations"), idle=("schedulerName",))
VOLUME = Fields(used=("path", "claimName", "readOnly"))
#: Workers may be there before their ssh servers are; after two minutes mpirun says what is wrong.
WAIT = (
    "while read -r host rest; do tries=0; "
    'until ssh -n "$host" true 2>/dev/null || [ "$tries" -ge 120 ]; do tries=$((tries + 1)); sleep 1; done; '
    'done < /etc/mpi/hostfile; exec "$@"'
)


def read(document: dict[str, Any], context: Context) -> JobSpec:
    identity, spec = read_object(document, context)
    MINICLUSTER.check(_without_idle_words(spec), "spec")
    size = _count(spec, "size")
    _check_sizes(spec, size)
    given, where = _flux_container(spec.get("containers"))
    container = _container(given, where, identity, context, tasks=_count(spec, "tasks"), size=size)
    part = Part("flux", container, 1)
    check_replicas(identity, size)
    found = make_spec(
        identity,
        context,
        (part,),
        (),
        gang_width((part,)),
        retries=0,
        deadline_s=read_seconds(spec, "deadlineSeconds", "spec", low=1),
    )
    said = [name for name in ("image", "volumes", "existingVolumes", "securityContext") if given.get(name)]
    return replace(found, notes=_notes(spec, said, size))


def _without_idle_words(spec: dict[str, Any]) -> dict[str, Any]:
    """Switched off it is nothing."""
    return {**spec, "interactive": spec.get("interactive") or None}


def _count(spec: dict[str, Any], field: str) -> int:
    return 1 if spec.get(field) is None else whole_number(spec[field], f"spec.{field}", low=1, high=COUNT_MAX)


def _check_sizes(spec: dict[str, Any], size: int) -> None:
    low, high = (size if spec.get(field) is None else _count(spec, field) for field in ("minSize", "maxSize"))
    if not low <= size <= high:
        raise Rejected(f"spec.size is {size}, but minSize is {low} and maxSize {high}; make them agree")


def _flux_container(value: object) -> tuple[dict[str, Any], str]:
    entries = [take_mapping(one, f"{WHERE}[{number}]") for number, one in enumerate(take_list(value, WHERE))]
    if not entries:
        raise Rejected(f"{WHERE} is empty; a MiniCluster has one container, with the command that Flux runs")
    if len(entries) > 1:
        raise Rejected(
            f"{WHERE} has {len(entries)} containers, and a process of this machine has none beside it; keep the one "
            "that Flux runs in"
        )
    if entries[0].get("runFlux") is False:
        raise Rejected(f"{WHERE}[0].runFlux is false, so nothing would be run; leave it out")
    return entries[0], f"{WHERE}[0]"


def _container(
    given: dict[str, Any], where: str, identity: ObjectIdentity, context: Context, *, tasks: int, size: int
) -> ContainerFields:
    CONTAINER.check(given, where)
    words = _words(given.get("command"), f"{where}.command")
    is_launcher = is_true(given.get("launcher"), f"{where}.launcher")
    plain = {"name": given.get("name"), "command": words, "resources": given.get("resources")}
    one = read_container(plain, where, 0, identity, context)
    low, high = one.gpus or NONE
    if low < high:
        raise Rejected(f"{where} asks for a range of GPUs, but a MiniCluster has a fixed size; give one number")
    with inside(f"{where}.environment: "):
        own = dict(read_env(given.get("environment")))
    folder = given.get("workingDir") or None
    if folder is not None:
        folder = read_folder(folder, context.workdir, f"{where}.workingDir", otherwise="the caller's own")
    return replace(
        one,
        command=tuple(words) if is_launcher else ("mpirun", "-n", str(tasks), *words),
        env=tuple(sorted({**open_mpi_variables(max(tasks, size)), **own}.items())),
        workdir=folder,
        cpus_milli=size * one.cpus_milli,
        memory_mib=size * one.memory_mib,
        cpu_limit_milli=size * one.cpu_limit_milli,
        gpus=(size * low, size * low) if low else None,
    )


def _words(value: object, where: str) -> list[str]:
    text = take_text(value, where)
    try:
        words = shlex.split(text)
    except ValueError as problem:
        raise Rejected(f"{where} cannot be split into words: {problem}; close the quotation mark") from None
    if not words:
        raise Rejected(f"{where} is empty; write what Flux runs, as in command: ./program --steps 10")
    return words


# -- on Kubernetes -------------------------------------------------------------------------------------------


def translate(document: dict[str, Any], context: Context) -> Translation:
    """The same `mpirun`, with a Worker for each pod."""
    identity, spec = read_object(document, replace(context, on_cluster=False))
    MINICLUSTER.check(_without_idle_words(spec), "spec")
    size, tasks = _count(spec, "size"), _count(spec, "tasks")
    _check_sizes(spec, size)
    given, where = _flux_container(spec.get("containers"))
    _container(given, where, identity, replace(context, on_cluster=False), tasks=tasks, size=size)
    _refuse_what_a_worker_has_not(given, where, NOT_OF_A_WORKER)
    _refuse_what_a_worker_has_not(spec, "spec", NOT_OF_PODS)
    notes = ("spec.minSize has no effect: all pods start together",) if _is_smaller(spec, size) else ()
    policy = {"backoffLimit": 0, "activeDeadlineSeconds": spec.get("deadlineSeconds")}
    launcher, worker = _mpi_pods(spec, given, where, tasks)
    return Translation(
        {
            "apiVersion": MPIJOB.api_version,
            "kind": MPIJOB.name,
            "metadata": document.get("metadata"),
            "spec": {
                "slotsPerWorker": math.ceil(tasks / size),
                "runPolicy": {name: value for name, value in policy.items() if value is not None},
                "mpiReplicaSpecs": {
                    "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": launcher},
                    "Worker": {"replicas": size, "restartPolicy": "Never", "template": worker},
                },
            },
        },
        (MADE, *notes),
    )


def _refuse_what_a_worker_has_not(given: dict[str, Any], where: str, names: tuple[str, ...]) -> None:
    for name in names:
        if given.get(name):
            raise Rejected(f"{where}.{name} is of the pods of a Flux instance, and Swell makes an MPIJob; write one")


def _mpi_pods(
    spec: dict[str, Any], given: dict[str, Any], where: str, tasks: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Templates of the Launcher and of the Workers. An ssh server hands on no variables, so mpirun does."""
    words = _words(given["command"], f"{where}.command")
    own = dict(read_env(given.get("environment")))
    if not is_true(given.get("launcher"), f"{where}.launcher"):
        words = ["mpirun", *(word for name in own for word in ("-x", name)), "-n", str(tasks), *words]
    told = {**ROOT, **own}
    volumes, mounts = _volumes(given.get("volumes"), f"{where}.volumes")
    container: dict[str, Any] = {
        "image": take_text(given.get("image"), f"{where}.image"),
        "env": [{"name": name, "value": text.replace("$", "$$")} for name, text in told.items()],
        "volumeMounts": mounts,
        **({"workingDir": given["workingDir"]} if given.get("workingDir") else {}),
        **({"imagePullPolicy": "Always"} if is_true(given.get("pullAlways"), f"{where}.pullAlways") else {}),
        **({"securityContext": given["securityContext"]} if given.get("securityContext") else {}),
    }
    command = ["sh", "-c", WAIT, "sh", *(word.replace("$", "$$") for word in words)]
    pulls = given.get("imagePullSecret")
    pod = {"volumes": volumes, **({"imagePullSecrets": [{"name": pulls}]} if pulls else {})}
    about, rules = _about_pods(spec.get("pod"))
    launcher = {**container, "name": "launcher", "command": command}
    worker = {**container, "name": "worker", "resources": given.get("resources") or {}}
    return (
        {"metadata": about, "spec": {**pod, **rules, "containers": [launcher]}},
        {"metadata": about, "spec": {**pod, **rules, "containers": [worker]}},
    )


def _about_pods(value: object) -> tuple[dict[str, Any], dict[str, Any]]:
    given = take_optional(value, "spec.pod")
    POD.check(given, "spec.pod")
    about = {name: given[name] for name in ("labels", "annotations") if given.get(name)}
    return about, {"nodeSelector": given["nodeSelector"]} if given.get("nodeSelector") else {}


def _volumes(value: object, where: str) -> tuple[list[Any], list[Any]]:
    """Claims by the name of each volume."""
    volumes, mounts = [], []
    for number, (name, entry) in enumerate(take_optional(value, where).items()):
        at = f"{where}.{shorten(name)}"
        given = take_mapping(entry, at)
        VOLUME.check(given, at)
        claim = {"claimName": take_text(given.get("claimName"), f"{at}.claimName")}
        read_only = {"readOnly": True} if is_true(given.get("readOnly"), f"{at}.readOnly") else {}
        volumes.append({"name": f"volume-{number}", "persistentVolumeClaim": {**claim, **read_only}})
        path = take_text(given.get("path"), f"{at}.path")
        mounts.append({"name": f"volume-{number}", "mountPath": path, **read_only})
    return volumes, mounts


def _is_smaller(spec: dict[str, Any], size: int) -> bool:
    return spec.get("minSize") is not None and str(spec["minSize"]) != str(size)


def _notes(spec: dict[str, Any], said: list[str], size: int) -> tuple[str, ...]:
    notes = []
    if said:
        notes.append(f"this machine runs processes, not pods, so these fields have no effect: {', '.join(said)}")
    if _is_smaller(spec, size):
        notes.append("spec.minSize has no effect: on one machine all pods' room is given at once")
    return tuple(notes)
