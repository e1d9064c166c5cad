"""Which fields has each kind of document, and what becomes of them?

`describe_kind` makes a JSON Schema from the tables that the readers check documents with, so the two cannot differ.
A field that has no effect on this machine says so, and so does one that is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from swell.errors import Rejected
from swell.manifests import (
    affinity,
    aichor,
    container,
    image_build,
    job,
    jobset,
    metadata,
    minicluster,
    mpijob,
    native,
    podspec,
    trainjob,
)
from swell.manifests import pytorchjob as pytorch
from swell.manifests.fields import Fields, did_you_mean
from swell.manifests.native_roles import ROLE
from swell.model.kind import AICHOR, JOB, JOBSET, KINDS, MINICLUSTERS, MPIJOB, POD, PYTORCHJOB, TRAINJOB, ManifestKind

SCHEMA = "https://json-schema.org/draft/2020-12/schema"
#: of our own notation: type of the value in a schema, and what it means
NATIVE_FIELDS: dict[str, tuple[Any, str]] = {
    "command": ("words", "The program and its arguments. No shell is in between."),
    "launcher": ("text", "torchrun or accelerate: starts the command once for each GPU of a task."),
    "roles": ("list", "Several kinds of tasks, in the order of ranks, instead of these fields in spec."),
    "gpus": ("amount", "GPUs of each task: 2, or a range 1..4 for one task."),
    "gpuMemory": (
        "amount",
        "A share of one GPU for each task, as in 6GiB; with exclusive, of each whole GPU.",
    ),
    "exclusive": ("truth", "true: whole GPUs although gpuMemory is given."),
    "onOverrun": ("text", "When the job uses more than its share: warn, yield or stop."),
    "tasks": ("amount", "A gang of so many processes: 4, or a range 2..8."),
    "array": ("amount", "Independent tasks: 0-99%8 is a hundred, eight at once."),
    "cpus": ("amount", "CPUs of each task, as in 0.5."),
    "cpuLimit": ("amount", "CPUs that a task may use at most, also where more are free."),
    "nodeSelector": ("map", "Labels that a node must have, as of a pod."),
    "tolerations": ("list", "Taints of nodes that are tolerated, as of a pod."),
    "shm": ("amount", "Size of the container's /dev/shm, as in 8GiB."),
    "volumes": (
        "list",
        "Claims or NFS of a cluster, folders of a machine: {claim: data, folder: /srv/data, path: /data}.",
    ),
    "memory": ("amount", "Memory of each task, as in 8GiB."),
    "priority": ("amount", "A higher number goes first, from -1000000 to 1000000."),
    "time": ("amount", "Time limit: 90s, 2h, 12:00:00."),
    "grace": ("amount", "Time between SIGTERM and SIGKILL; 45 is seconds."),
    "epochs": ("amount", "How many epochs the job will do."),
    "hours": ("amount", "Your guess of its run time, as in 2.5."),
    "checkpointEvery": (
        "amount",
        "How often swell-sdk saves inside an epoch, as in 10m; it bounds what a crash costs.",
    ),
    "resize": ("text", "How its width may change while it runs: at-checkpoint, immediate, either or never."),
    "retries": ("amount", "Retry up to N times after a failure, not counting preemptions."),
    "after": ("any", "Jobs to wait for: 12, a name, 12:end, {job: prepare, on: end}, or a list of these."),
    "notify": ("any", "Who is told when the job has ended: a command, an http(s) address or mailto:."),
    "notifyOn": ("text", "end, or only error."),
    "image": ("text", "Run the command in a container of this image."),
    "mounts": ("list", "What the container sees of the machine, as in /data:/data:ro."),
    "ports": ("list", "Ports opened on the machine, as in 8888:80."),
    "env": ("map", "Variables, beside the caller's environment."),
    "secrets": (
        "list",
        (
            "Variables of the caller's environment that are never printed: HF_TOKEN, or {name: HF_TOKEN, secret: hub, "
            "key: token} with the Secret that has it on Kubernetes."
        ),
    ),
    "workdir": ("text", "Working directory, relative to the caller's."),
    "tensorboard": ("text", "A folder that a TensorBoard beside the job reads."),
    "checkpoints": ("text", "The folder of its checkpoints."),
    "utilizationPolicy": ("map", "Stop the job when its GPUs are idle: {minGpuUtilization: 10, window: 30m}."),
    "utilization_policy": ("map", "The same, as dstack writes it."),
    "uploaded": ("text", "The id of a folder that was sent: its tasks run in a copy of it. --upload fills it in."),
    "inputs": ("list", "Files to fetch first: {url: https://…, to: data/a.csv, sha256: …}, or the address only."),
    "outputs": ("list", "What is sent back when an attempt ends: patterns as in .gitignore, such as results/."),
    "name": ("text", "Its name: 1 to 63 letters, digits, '.', '_' or '-'."),
}
TYPES: dict[str, dict[str, Any]] = {
    "text": {"type": "string"},
    "truth": {"type": "boolean"},
    "amount": {"type": ["string", "number"]},
    "words": {"type": "array", "items": {"type": ["string", "number"]}},
    "list": {"type": "array"},
    "map": {"type": "object"},
    "any": {},
}


@dataclass(frozen=True, slots=True)
class DocumentShape:
    """A mapping of a document, with the mappings inside of it."""

    fields: Fields
    inner: dict[str, DocumentShape] = field(default_factory=dict)
    is_list: bool = False  #: a list of such mappings
    is_named: bool = False  #: a mapping of anybody's names to such mappings


CONTAINER = DocumentShape(
    container.CONTAINER,
    {
        "env": DocumentShape(container.VARIABLE, is_list=True),
        "resources": DocumentShape(
            container.RESOURCES,
            {"requests": DocumentShape(container.AMOUNTS), "limits": DocumentShape(container.AMOUNTS)},
        ),
    },
    is_list=True,
)
POD_SPEC = {"containers": CONTAINER, "tolerations": DocumentShape(affinity.TOLERATION, is_list=True)}
POD_SHAPE = DocumentShape(podspec.POD, POD_SPEC)
TEMPLATE = DocumentShape(podspec.TEMPLATE, {"metadata": DocumentShape(metadata.METADATA), "spec": POD_SHAPE})
JOB_SHAPE = DocumentShape(job.JOB, {"template": TEMPLATE})
MPI_REPLICA = DocumentShape(mpijob.REPLICA, {"template": TEMPLATE})
TORCH_REPLICA = DocumentShape(pytorch.REPLICA, {"template": TEMPLATE})
REPLICATED = DocumentShape(
    jobset.REPLICATED_JOB, {"template": DocumentShape(podspec.TEMPLATE, {"spec": JOB_SHAPE})}, is_list=True
)
SPECS: dict[ManifestKind, DocumentShape] = {
    POD: POD_SHAPE,
    JOB: JOB_SHAPE,
    PYTORCHJOB: DocumentShape(
        pytorch.PYTORCHJOB,
        {
            "pytorchReplicaSpecs": DocumentShape(
                pytorch.REPLICA_TYPES, {"Master": TORCH_REPLICA, "Worker": TORCH_REPLICA}
            ),
            "runPolicy": DocumentShape(pytorch.RUN_POLICY),
            "elasticPolicy": DocumentShape(pytorch.ELASTIC),
        },
    ),
    JOBSET: DocumentShape(
        jobset.JOBSET,
        {
            "replicatedJobs": REPLICATED,
            "successPolicy": DocumentShape(jobset.SUCCESS),
            "failurePolicy": DocumentShape(jobset.FAILURE),
            "startupPolicy": DocumentShape(jobset.STARTUP),
            "coordinator": DocumentShape(jobset.COORDINATOR),
            "network": DocumentShape(jobset.NETWORK),
        },
    ),
    MPIJOB: DocumentShape(
        mpijob.MPIJOB,
        {
            "mpiReplicaSpecs": DocumentShape(mpijob.REPLICA_TYPES, {"Launcher": MPI_REPLICA, "Worker": MPI_REPLICA}),
            "runPolicy": DocumentShape(mpijob.RUN_POLICY),
        },
    ),
    TRAINJOB: DocumentShape(
        trainjob.TRAINJOB,
        {"runtimeRef": DocumentShape(trainjob.RUNTIME), "trainer": DocumentShape(trainjob.TRAINER)},
    ),
    **dict.fromkeys(
        MINICLUSTERS,
        DocumentShape(minicluster.MINICLUSTER, {"containers": DocumentShape(minicluster.CONTAINER, is_list=True)}),
    ),
    **dict.fromkeys(
        AICHOR,
        DocumentShape(
            aichor.SPEC,
            {
                "types": DocumentShape(
                    aichor.TYPE,
                    {
                        "resources": DocumentShape(
                            aichor.RESOURCES, {"accelerators": DocumentShape(aichor.ACCELERATORS)}
                        )
                    },
                    is_named=True,
                ),
                "storage": DocumentShape(aichor.STORAGE, {"sharedVolume": DocumentShape(aichor.SHARED)}),
                "restartPolicy": DocumentShape(aichor.RESTART),
                "tensorboard": DocumentShape(aichor.TENSORBOARD),
            },
        ),
    ),
}


def find_described(name: str) -> ManifestKind:
    """By name, in any case: job is ours, and so is swell/v1; batch/v1 is Kubernetes'."""
    wanted = name.lower()
    for kind in KINDS:
        if wanted in (kind.name.lower(), kind.api_version.lower(), f"{kind.api_version}/{kind.name}".lower()):
            return kind
    raise Rejected(f"there is no kind {name[:80]!r}{did_you_mean(name[:80], sorted({kind.name for kind in KINDS}))}")


#: of an AIchor manifest: what its own fields mean, by path in it
AICHOR_FIELDS = {
    "name": "Of the experiment; without it, that of its image.",
    "builder": "How the image is built: swell submit --build.",
    "builder.image": "Name of the image; the same as spec.image.",
    "builder.dockerfile": "Its Dockerfile; Dockerfile when left out.",
    "builder.context": "The folder that is built; . when left out.",
    "builder.buildArgs": "Arguments of the build: names and values.",
    "builder.target": "Which stage is built.",
    "builder.skipBuild": "Whether the image that is there is taken.",
    "builder.skipBuild.enabled": "true: the image that is there is taken.",
    "spec.operator": "jobset, pytorch, jax or xgboost.",
    "spec.image": "The image that its tasks run in, on Kubernetes and with --build.",
    "spec.command": "A line for a shell, or a list of words.",
    "spec.types": "Kinds of tasks by name. Of pytorch and xgboost: Master and Worker; of jax: Worker.",
    "spec.types.count": "Jobs of this type; 1 when left out.",
    "spec.types.completions": "Tasks of each Job; 1 when left out.",
    "spec.types.parallelisms": "Tasks of each Job at once; 1 when left out.",
    "spec.types.resources": "Of each task.",
    "spec.types.resources.cpus": "CPUs, as in 4 or 0.5.",
    "spec.types.resources.ramRatio": "GB of memory for each CPU.",
    "spec.types.resources.memory": "GB of memory, instead of ramRatio.",
    "spec.types.resources.shmSizeGB": "GB of /dev/shm, on Kubernetes and with --build.",
    "spec.types.resources.cpuLimitRatio": "The most CPUs, as a multiple of cpus; 2 when left out.",
    "spec.types.resources.accelerators": "GPUs.",
    "spec.types.resources.accelerators.gpu": "count, and on Kubernetes product: the label of the GPUs.",
    "spec.types.resources.extraSelectors": "Labels of the nodes of a cluster that it may go to.",
    "spec.types.resources.extraTolerations": "Taints of nodes of a cluster that it tolerates, as of a pod.",
    "spec.tensorboard": "Whether TensorBoard runs beside it.",
    "spec.tensorboard.enabled": "true: it reads AICHOR_TENSORBOARD_PATH.",
    "spec.storage": "Volumes, on Kubernetes.",
    "spec.storage.sharedVolume": "A volume that is made for the job, and deleted when it has ended.",
    "spec.storage.sharedVolume.mountPoint": "Where its tasks see it.",
    "spec.storage.sharedVolume.sizeGB": "Its size in GB.",
    "spec.storage.sharedVolume.storageClass": "Its class; the cluster's default when left out.",
    "spec.storage.sharedVolume.accessMode": "ReadWriteMany when left out; or ReadWriteOnce, ReadOnlyMany.",
    "spec.storage.attachExistingPVCs": "Claims that are there: a list of {name, mountPoint}.",
    "spec.env": "Variables of every task: names and values.",
    "spec.timeout": "Time limit, as in 6h or 1d.",
    "spec.activeDeadlineSeconds": "Time limit in seconds; timeout wins.",
    "spec.restartPolicy": "How often it is started again.",
    "spec.restartPolicy.backoffLimit": "So often after a failure; preemptions do not count.",
}


def describe_kind(kind: ManifestKind) -> dict[str, Any]:
    """Its JSON Schema."""
    root = {"apiVersion": {"const": kind.api_version}, "kind": {"const": kind.name}}
    found = {"$schema": SCHEMA, "title": str(kind), "type": "object"}
    if kind.is_native:
        spec = _native_object(native.SPEC)
        spec["properties"]["roles"]["items"] = _native_object(ROLE)
        properties = {**root, "metadata": _native_object(native.METADATA), "spec": spec}
    elif kind in AICHOR:
        shape = DocumentShape(
            aichor.MANIFEST,
            {
                "builder": DocumentShape(image_build.BUILDER, {"skipBuild": DocumentShape(image_build.SKIP)}),
                "clone": DocumentShape(aichor.CLONE),
            },
        )
        properties = {**_schema(shape)["properties"], **root, "spec": _schema(SPECS[kind])}
        _describe(properties, "")
    else:
        properties = {**root, "metadata": _schema(DocumentShape(metadata.METADATA)), "spec": _schema(SPECS[kind])}
    required = ["apiVersion", "kind", "spec"]
    return {**found, "properties": properties, "required": required, "additionalProperties": False}


def _describe(properties: dict[str, Any], above: str) -> None:
    """Fields of an AIchor manifest that have an effect."""
    for name, schema in properties.items():
        path = above + name
        if path in AICHOR_FIELDS:
            schema["description"] = AICHOR_FIELDS[path]
        inner = schema.get("additionalProperties")
        inner = inner if isinstance(inner, dict) else schema
        _describe(inner.get("properties", {}), f"{path}.")


def _native_object(names: tuple[str, ...]) -> dict[str, Any]:
    properties = {name: {**TYPES[NATIVE_FIELDS[name][0]], "description": NATIVE_FIELDS[name][1]} for name in names}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _schema(shape: DocumentShape) -> dict[str, Any]:
    one: dict[str, Any] = {
        "type": "object",
        "properties": dict(_properties(shape)),
        "additionalProperties": False,
    }
    if shape.is_named:
        return {"type": "object", "additionalProperties": one}
    return {"type": "array", "items": one} if shape.is_list else one


def _properties(shape: DocumentShape) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in shape.fields.used:
        yield name, _schema(shape.inner[name]) if name in shape.inner else {}
    for name in shape.fields.idle:
        yield name, {"description": "Has no effect where processes run on this machine."}
    for name, why in shape.fields.refused.items():
        yield name, {"description": f"Refused: {name} {why}."}
