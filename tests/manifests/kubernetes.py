"""Kubernetes documents for tests: a good one of each kind, to be changed in one place."""

from __future__ import annotations

from typing import Any

import pytest

from swell.errors import Rejected
from swell.manifests import Context, read_document
from swell.model.job import JobSpec

CONTEXT = Context(workdir="/home/ann", umask=0o027, user="ann", new_id=lambda: "5c0f7a31-experiment")
GPU = "nvidia.com/gpu"
HERE = "this machine runs processes, not pods, so these fields have no effect"
#: what is said of tasks with several GPUs where nothing starts a rank for each of them
LEAVES_GPUS = (
    "each task is one rank, and with {} GPUs per task Lightning, Trainer and others leave GPUs or a part of the data "
    "unused unless something starts a rank for each GPU; use torchrun (swell run --torchrun, or launcher: torchrun in "
    "a manifest of swell/v1), or one GPU per task"
)


def container(**fields: Any) -> dict[str, Any]:
    return {"name": "main", "image": "python:3.12", "command": ["train"], **fields}


def told(spec: JobSpec) -> tuple[str, ...]:
    """Its notes, but for the one about fields that mean nothing where processes run."""
    return tuple(note for note in spec.notes if not note.startswith(HERE))


def gpus(requests: object = None, limits: object = None) -> dict[str, Any]:
    """A container's resources with nothing but GPUs; None: not given."""
    sides = {"requests": requests, "limits": limits}
    return {"resources": {side: {GPU: amount} for side, amount in sides.items() if amount is not None}}


def pod(*containers: dict[str, Any], metadata: object = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "resnet"} if metadata is None else metadata,
        "spec": {"containers": list(containers) or [container()], **spec},
    }


def template(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": list(containers) or [container()], **spec}}


def job(*containers: dict[str, Any], annotations: object = None, pod: object = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "sweep", "annotations": annotations},
        "spec": {"template": template(*containers) if pod is None else pod, **spec},
    }


def replicas(count: object = None, *containers: dict[str, Any], **fields: Any) -> dict[str, Any]:
    found = {"template": template(*containers), **fields}
    return found if count is None else {"replicas": count, **found}


def pytorchjob(master: object = None, worker: object = None, annotations: object = None, **spec: Any) -> dict[str, Any]:
    kinds = {"Master": master, "Worker": worker}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "llm", "annotations": annotations},
        "spec": {"pytorchReplicaSpecs": {kind: one for kind, one in kinds.items() if one is not None}, **spec},
    }


def replicated(name: object, replicas: object = None, template: object = None, **job: Any) -> dict[str, Any]:
    """One of a JobSet's `replicatedJobs`."""
    pods = {"spec": {"containers": [container()]}} if template is None else template
    found = {"name": name, "template": {"spec": {"template": pods, **job}}}
    return found if replicas is None else {**found, "replicas": replicas}


def jobset(*entries: dict[str, Any], annotations: object = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "mesh", "annotations": annotations},
        "spec": {"replicatedJobs": list(entries), **spec},
    }


def read(document: dict[str, Any], context: Context = CONTEXT) -> JobSpec:
    spec = read_document(document, context)
    assert JobSpec.from_document(spec.to_document()) == spec, "it does not survive being stored"
    return spec


def refusal(document: object, context: Context = CONTEXT) -> str:
    with pytest.raises(Rejected) as caught:
        read_document(document, context)
    return str(caught.value)


def width(spec: JobSpec) -> tuple[str, int, int]:
    return str(spec.dimension), spec.width_min, spec.width_max
