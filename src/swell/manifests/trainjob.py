"""What does `apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob` ask for?

A TrainJob names a runtime, which the administrator of a cluster has written, and what to change of it. Here it is what
the runtime `torch-distributed` makes: a gang of `numNodes` tasks that `torchrun` finds its way in. It is written out as
a PyTorchJob of Workers, which is then read; for Kubernetes as a JobSet, which is created.
"""

from __future__ import annotations

from typing import Any

from swell.errors import Rejected
from swell.manifests.context import Context
from swell.manifests.document import Translation
from swell.manifests.downward import COMPLETION_INDEX
from swell.manifests.fields import (
    Fields,
    is_true,
    read_name,
    shorten,
    take_list,
    take_mapping,
    take_optional,
    take_text,
    whole_number,
)
from swell.manifests.metadata import OBJECT
from swell.model.kind import JOBSET, PYTORCHJOB
from swell.model.quantity import COUNT_MAX

TRAINJOB = Fields(
    used=("runtimeRef", "trainer", "suspend"),
    idle=("labels", "annotations", "managedBy", "podSpecOverrides", "podTemplateOverrides"),
    refused={
        "initializer": "downloads a dataset or a model before training, which Swell does not; do it in the command, or "
        "in a job of its own that this one waits for"
    },
)
RUNTIME = Fields(used=("name",), idle=("apiGroup", "kind"))
TRAINER = Fields(used=("command", "args", "env", "numNodes", "numProcPerNode", "resourcesPerNode"), idle=("image",))
TORCH = "torch-distributed"
#: What the runtime tells torchrun. Where the nodes meet is known only when they start, so a shell says it.
TOLD = (
    'export PET_NNODES="$SWELL_TASK_COUNT" PET_NODE_RANK="$SWELL_TASK_INDEX" PET_MASTER_ADDR="$MASTER_ADDR" '
    'PET_MASTER_PORT="$MASTER_PORT"; exec "$@"'
)
#: words in the name of a runtime whose ranks torchrun does not start → what to write
OTHERS = {"mpi": "an MPIJob", "deepspeed": "an MPIJob", "mlx": "an MPIJob", "jax": "a JobSet"}
JOBS = "node"  # what the runtime calls its replicated Job, and the container in it
PORT = "29500"  # torchrun's own
OF_PODS = ("podSpecOverrides", "podTemplateOverrides")
MADE = (
    "it is created as the JobSet that the runtime torch-distributed makes, and no TrainJob is; kubectl and the Trainer "
    "do not know it"
)


def translate(document: dict[str, Any], context: Context) -> Translation:
    OBJECT.check(document, "the manifest")
    spec = take_mapping(document.get("spec"), "spec")
    TRAINJOB.check(spec, "spec")
    trainer = take_mapping(spec.get("trainer"), "spec.trainer")
    TRAINER.check(trainer, "spec.trainer")
    nodes = trainer.get("numNodes")
    count = 1 if nodes is None else whole_number(nodes, "spec.trainer.numNodes", low=1, high=COUNT_MAX)
    given = {name: trainer[name] for name in ("image", "command", "args", "env") if trainer.get(name) is not None}
    container = {**given, "resources": trainer.get("resourcesPerNode")}
    runtime = _runtime_name(spec.get("runtimeRef"))
    if context.on_cluster:
        return Translation(_jobset(document, spec, container, count, runtime), (MADE,))
    made = _pytorchjob(document, spec, container, count)
    own = f"spec.runtimeRef {shorten(runtime)!r} is the cluster's; here its job is as with {TORCH}"
    return Translation(made, () if runtime == TORCH else (own,))


def _pytorchjob(document: dict[str, Any], spec: dict[str, Any], given: dict[str, Any], nodes: int) -> dict[str, Any]:
    if not given.get("command"):
        raise Rejected(
            "spec.trainer.command is not given: that of the runtime is the cluster's, and not known here; write it "
            "out, as in command: [torchrun, train.py]"
        )
    words = ["sh", "-c", TOLD, "sh", *take_list(given["command"], "spec.trainer.command")]
    pod = {"containers": [{"name": "pytorch", **given, "command": words}]}
    workers = {"replicas": nodes, "restartPolicy": "Never", "template": {"spec": pod}}
    return {
        "apiVersion": PYTORCHJOB.api_version,
        "kind": PYTORCHJOB.name,
        "metadata": document.get("metadata"),
        "spec": {
            "nprocPerNode": spec["trainer"].get("numProcPerNode"),
            "pytorchReplicaSpecs": {"Worker": workers},
            "runPolicy": {"backoffLimit": 0, "suspend": spec.get("suspend")},
        },
    }


# -- on Kubernetes -------------------------------------------------------------------------------------------


def _jobset(
    document: dict[str, Any], spec: dict[str, Any], given: dict[str, Any], nodes: int, runtime: str
) -> dict[str, Any]:
    """Its first pod is where the others meet."""
    _refuse_unknown_there(spec, given, runtime)
    metadata = take_optional(document.get("metadata"), "metadata")
    told = _told(spec["trainer"].get("numProcPerNode"), nodes, _master(metadata))
    env = [*told, *take_list(given.get("env"), "spec.trainer.env")]
    pod = {"restartPolicy": "Never", "containers": [{**given, "name": JOBS, "env": env}]}
    job = {
        "completionMode": "Indexed",
        "completions": nodes,
        "parallelism": nodes,
        "backoffLimit": 0,
        "template": {"spec": pod},
    }
    return {
        "apiVersion": JOBSET.api_version,
        "kind": JOBSET.name,
        "metadata": {**metadata, **_added(spec, metadata)},
        "spec": {
            "suspend": is_true(spec.get("suspend"), "spec.suspend"),
            "failurePolicy": {"maxRestarts": 0},
            "replicatedJobs": [{"name": JOBS, "replicas": 1, "template": {"spec": job}}],
        },
    }


def _refuse_unknown_there(spec: dict[str, Any], given: dict[str, Any], runtime: str) -> None:
    """What the cluster's runtime would say, and Swell does not read."""
    if runtime != TORCH:
        raise Rejected(
            f"spec.runtimeRef.name is {shorten(runtime)!r}, and what it makes is the cluster's to say; write the "
            f"JobSet that it makes (kubectl get jobset -o yaml), or the runtime {TORCH}"
        )
    if not given.get("image"):
        raise Rejected(
            "spec.trainer.image is not given: that of the runtime is the cluster's, and not known here; write it out"
        )
    for field in OF_PODS:
        if spec.get(field):
            raise Rejected(
                f"spec.{field} changes the pods of a runtime, which Swell does not read; write the JobSet that it makes"
            )


def _master(metadata: dict[str, Any]) -> str:
    """The address of its first pod."""
    name = metadata.get("name")
    if name is None:
        raise Rejected("metadata.name is not given, and its pods meet at an address that has it; write name: train")
    return f"{read_name(name)}-{JOBS}-0-0.{name}"


def _told(processes: object, nodes: int, master: str) -> list[dict[str, Any]]:
    """What the runtime tells torchrun."""
    index = {"fieldRef": {"fieldPath": f"metadata.annotations['{COMPLETION_INDEX}']"}}
    texts = {
        "PET_NNODES": str(nodes),
        "PET_NPROC_PER_NODE": _processes(processes),
        "PET_MASTER_ADDR": master,
        "PET_MASTER_PORT": PORT,
    }
    named = [{"name": name, "value": text} for name, text in texts.items()]
    return [*named, {"name": "PET_NODE_RANK", "valueFrom": index}]


def _processes(value: object) -> str:
    if value is None or value in ("auto", "cpu", "gpu"):
        return "auto" if value is None else str(value)
    return str(whole_number(value, "spec.trainer.numProcPerNode", low=1, high=COUNT_MAX))


def _added(spec: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
    """Labels and annotations that its runtime would give what it makes."""
    found = {}
    for name in ("labels", "annotations"):
        own = take_optional(metadata.get(name), f"metadata.{name}")
        more = take_optional(spec.get(name), f"spec.{name}")
        if own or more:
            found[name] = {**own, **more}
    return found


def _runtime_name(value: object) -> str:
    given = take_optional(value, "spec.runtimeRef")
    RUNTIME.check(given, "spec.runtimeRef")
    name = take_text(given.get("name"), "spec.runtimeRef.name")
    other = next((kind for word, kind in OTHERS.items() if word in name), None)
    if other is not None:
        raise Rejected(
            f"spec.runtimeRef.name is {shorten(name)!r}, whose ranks torchrun does not start; write {other}, or the "
            f"runtime {TORCH}"
        )
    return name
