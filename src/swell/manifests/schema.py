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
    exit_rules,
    field_words,
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
from swell.manifests.field_words import Words
from swell.manifests.fields import Fields, did_you_mean
from swell.manifests.native_roles import ROLE
from swell.model.kind import AICHOR, JOB, JOBSET, KINDS, MINICLUSTERS, MPIJOB, POD, PYTORCHJOB, TRAINJOB, ManifestKind
from swell.model.placement_fields import REQUIRED

SCHEMA = "https://json-schema.org/draft/2020-12/schema"
#: of our own notation: type of the value in a schema, and what it means
NATIVE_FIELDS: dict[str, tuple[Any, str]] = {
    "command": ("words", "The program and its arguments. No shell is in between."),
    "launcher": (
        "text",
        "torchrun or accelerate: starts the command once for each GPU of a task; mpi: the command is mpirun.",
    ),
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
    "ownCurve": ("truth", "true: learn its speed at each width from this job alone, and tell other jobs nothing."),
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
    "any": {"type": ["string", "number", "array", "object"]},
}


@dataclass(frozen=True, slots=True)
class DocumentShape:
    """A mapping of a document, with the mappings inside of it."""

    fields: Fields
    words: Words
    inner: dict[str, DocumentShape] = field(default_factory=dict)
    is_list: bool = False  #: a list of such mappings
    is_named: bool = False  #: a mapping of anybody's names to such mappings


def _one(fields: Fields, words: Words, **inner: DocumentShape) -> DocumentShape:
    return DocumentShape(fields, words, inner)


def _listed(fields: Fields, words: Words, **inner: DocumentShape) -> DocumentShape:
    return DocumentShape(fields, words, inner, is_list=True)


AMOUNTS = _one(container.AMOUNTS, field_words.AMOUNTS)
RESOURCES = _one(container.RESOURCES, field_words.RESOURCES, requests=AMOUNTS, limits=AMOUNTS)
KEY_REF = _one(container.KEY_REF, field_words.KEY_REF)
VARIABLES = _listed(
    container.VARIABLE,
    field_words.VARIABLE,
    valueFrom=_one(
        container.VALUE_FROM,
        field_words.VALUE_FROM,
        fieldRef=_one(container.FIELD_REF, field_words.FIELD_REF),
        secretKeyRef=KEY_REF,
        configMapKeyRef=KEY_REF,
    ),
)
EXPRESSIONS = _listed(affinity.EXPRESSION, field_words.EXPRESSION)
LABEL_SELECTOR = _one(affinity.LABEL_SELECTOR, field_words.LABEL_SELECTOR, matchExpressions=EXPRESSIONS)
NODE_TERMS = _listed(affinity.NODE_TERM, field_words.NODE_TERM, matchExpressions=EXPRESSIONS, matchFields=EXPRESSIONS)
NODE_SELECTOR = _one(affinity.NODE_SELECTOR, field_words.NODE_SELECTOR, nodeSelectorTerms=NODE_TERMS)
POD_TERMS = _listed(
    affinity.POD_TERM, field_words.POD_TERM, labelSelector=LABEL_SELECTOR, namespaceSelector=LABEL_SELECTOR
)
ABOUT_NODES, ABOUT_PODS = (
    DocumentShape(affinity.KIND, field_words.KIND_OF_AFFINITY, {REQUIRED: one}) for one in (NODE_SELECTOR, POD_TERMS)
)
POD_SHAPE = _one(
    podspec.POD,
    field_words.POD,
    containers=_listed(container.CONTAINER, field_words.CONTAINER, env=VARIABLES, resources=RESOURCES),
    tolerations=_listed(affinity.TOLERATION, field_words.TOLERATION),
    affinity=_one(
        affinity.AFFINITY,
        field_words.AFFINITY,
        nodeAffinity=ABOUT_NODES,
        podAffinity=ABOUT_PODS,
        podAntiAffinity=ABOUT_PODS,
    ),
)
METADATA = _one(metadata.METADATA, field_words.METADATA)
TEMPLATE = _one(podspec.TEMPLATE, field_words.TEMPLATE, metadata=METADATA, spec=POD_SHAPE)
POD_RULES = _listed(
    exit_rules.POD_RULE,
    field_words.POD_RULE,
    onExitCodes=_one(exit_rules.EXIT_CODES, field_words.EXIT_CODES),
)
JOB_SHAPE = _one(
    job.JOB,
    field_words.JOB,
    template=TEMPLATE,
    podFailurePolicy=_one(exit_rules.POD_FAILURE_POLICY, field_words.POD_FAILURE_POLICY, rules=POD_RULES),
)
TORCH_REPLICA = _one(pytorch.REPLICA, field_words.REPLICA, template=TEMPLATE)
PYTORCHJOB_SHAPE = _one(
    pytorch.PYTORCHJOB,
    field_words.PYTORCHJOB,
    pytorchReplicaSpecs=_one(
        pytorch.REPLICA_TYPES, field_words.TORCH_TYPES, Master=TORCH_REPLICA, Worker=TORCH_REPLICA
    ),
    runPolicy=_one(pytorch.RUN_POLICY, field_words.RUN_POLICY),
    elasticPolicy=_one(pytorch.ELASTIC, field_words.ELASTIC),
)
REPLICATED_JOBS = _listed(
    jobset.REPLICATED_JOB,
    field_words.REPLICATED_JOB,
    template=_one(podspec.TEMPLATE, field_words.JOB_TEMPLATE, metadata=METADATA, spec=JOB_SHAPE),
    dependsOn=_listed(jobset.DEPENDENCY, field_words.DEPENDENCY),
)
JOBSET_SHAPE = _one(
    jobset.JOBSET,
    field_words.JOBSET,
    replicatedJobs=REPLICATED_JOBS,
    successPolicy=_one(jobset.SUCCESS, field_words.SUCCESS),
    failurePolicy=_one(jobset.FAILURE, field_words.FAILURE, rules=_listed(exit_rules.SET_RULE, field_words.SET_RULE)),
    startupPolicy=_one(jobset.STARTUP, field_words.STARTUP),
    coordinator=_one(jobset.COORDINATOR, field_words.COORDINATOR),
    network=_one(jobset.NETWORK, {}),
)
MPI_REPLICA = _one(mpijob.REPLICA, field_words.REPLICA, template=TEMPLATE)
MPIJOB_SHAPE = _one(
    mpijob.MPIJOB,
    field_words.MPIJOB,
    mpiReplicaSpecs=_one(mpijob.REPLICA_TYPES, field_words.MPI_TYPES, Launcher=MPI_REPLICA, Worker=MPI_REPLICA),
    runPolicy=_one(mpijob.RUN_POLICY, field_words.RUN_POLICY),
)
TRAINJOB_SHAPE = _one(
    trainjob.TRAINJOB,
    field_words.TRAINJOB,
    runtimeRef=_one(trainjob.RUNTIME, field_words.RUNTIME),
    trainer=_one(trainjob.TRAINER, field_words.TRAINER, env=VARIABLES, resourcesPerNode=RESOURCES),
)
MINICLUSTER_SHAPE = _one(
    minicluster.MINICLUSTER,
    field_words.MINICLUSTER,
    containers=_listed(minicluster.CONTAINER, field_words.MINICLUSTER_CONTAINER, resources=RESOURCES),
)
ACCELERATORS = _one(aichor.ACCELERATORS, field_words.ACCELERATORS, gpu=_one(aichor.GPUS, field_words.AICHOR_GPU))
AICHOR_RESOURCES = _one(
    aichor.RESOURCES,
    field_words.AICHOR_RESOURCES,
    accelerators=ACCELERATORS,
    extraTolerations=_listed(affinity.TOLERATION, field_words.TOLERATION),
)
AICHOR_TYPES = DocumentShape(aichor.TYPE, field_words.AICHOR_TYPE, {"resources": AICHOR_RESOURCES}, is_named=True)
AICHOR_SHAPE = _one(
    aichor.MANIFEST,
    field_words.AICHOR,
    builder=_one(image_build.BUILDER, field_words.BUILDER, skipBuild=_one(image_build.SKIP, field_words.SKIP_BUILD)),
    clone=_one(aichor.CLONE, {}),
    spec=_one(
        aichor.SPEC,
        field_words.AICHOR_SPEC,
        types=AICHOR_TYPES,
        tensorboard=_one(aichor.TENSORBOARD, field_words.TENSORBOARD),
        storage=_one(
            aichor.STORAGE,
            field_words.STORAGE,
            sharedVolume=_one(aichor.SHARED, field_words.SHARED_VOLUME),
            attachExistingPVCs=_listed(aichor.PVC, field_words.EXISTING_CLAIM),
        ),
        restartPolicy=_one(aichor.RESTART, field_words.RESTART_POLICY),
    ),
)
SPECS: dict[ManifestKind, DocumentShape] = {
    POD: POD_SHAPE,
    JOB: JOB_SHAPE,
    PYTORCHJOB: PYTORCHJOB_SHAPE,
    JOBSET: JOBSET_SHAPE,
    MPIJOB: MPIJOB_SHAPE,
    TRAINJOB: TRAINJOB_SHAPE,
    **dict.fromkeys(MINICLUSTERS, MINICLUSTER_SHAPE),
    **dict.fromkeys(AICHOR, AICHOR_SHAPE.inner["spec"]),
}


def find_described(name: str) -> ManifestKind:
    """By name, in any case: job is ours, and so is swell/v1; batch/v1 is Kubernetes'."""
    wanted = name.lower()
    for kind in KINDS:
        if wanted in (kind.name.lower(), kind.api_version.lower(), f"{kind.api_version}/{kind.name}".lower()):
            return kind
    raise Rejected(f"there is no kind {name[:80]!r}{did_you_mean(name[:80], sorted({kind.name for kind in KINDS}))}")


def describe_kind(kind: ManifestKind) -> dict[str, Any]:
    """Its JSON Schema."""
    found = {"$schema": SCHEMA, "title": str(kind), "type": "object"}
    root = {"apiVersion": {"const": kind.api_version}, "kind": {"const": kind.name}}
    required = ["apiVersion", "kind", "spec"]
    return {**found, "properties": _document(kind) | root, "required": required, "additionalProperties": False}


def _document(kind: ManifestKind) -> dict[str, Any]:
    """What its fields are; apiVersion and kind are those of the kind."""
    if kind in AICHOR:
        return dict(_properties(AICHOR_SHAPE))
    if kind.is_native:
        about, spec = _native_object(native.METADATA), _native_object(native.SPEC)
        spec["properties"]["roles"]["items"] = _native_object(ROLE)
    else:
        about, spec = _schema(METADATA), _schema(SPECS[kind])
    return {
        "metadata": {**about, "description": "What it is called, and what is said about it."},
        "spec": {**spec, "description": "What is run."},
    }


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
    inner = {name: _schema(one) for name, one in shape.inner.items()}
    for name in shape.fields.used:
        kind, text = shape.words[name]
        yield name, {**inner.get(name, TYPES[kind]), "description": text}
    for name in shape.fields.idle:
        yield name, {**inner.get(name, {}), "description": "Has no effect where processes run on this machine."}
    for name, why in shape.fields.refused.items():
        yield name, {"description": f"Refused: {name} {why}."}
