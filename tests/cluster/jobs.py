"""What do the smallest objects of each kind look like that do something on the test cluster?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .api import Object
from .images import name_of

JOBS = "/apis/batch/v1/namespaces/default/jobs"
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
PODS = "/api/v1/namespaces/default/pods"
PYTORCHJOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
MPIJOBS = "/apis/kubeflow.org/v2beta1/namespaces/default/mpijobs"
SERVICES = "/api/v1/namespaces/default/services"
ON_KWOK, ON_REAL = {"type": "kwok"}, {"type": "real"}


def template(
    script: str,
    *,
    image: str = "busybox",
    gpus: int = 0,
    on: Mapping[str, str] = ON_REAL,
    annotations: Mapping[str, str] | None = None,
    container: str = "main",
    **spec: Any,
) -> Object:
    """A pod template whose one container runs a shell script; further words go into the pod's specification."""
    limits = {"memory": "64Mi", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    main = {
        "name": container,
        "image": name_of(image),
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", script],
        # No limit for the CPU: a small one holds up the runtime itself, and each start takes seconds.
        "resources": {"requests": {"cpu": "10m", **limits}, "limits": limits},
    }
    return {
        "metadata": {"annotations": dict(annotations or {})},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 5,
            "nodeSelector": dict(on),
            "containers": [main],
            **spec,
        },
    }


def pod(name: str, script: str, **options: Any) -> Object:
    made = template(script, **options)
    return {"apiVersion": "v1", "kind": "Pod", **made, "metadata": {"name": name, **made["metadata"]}}


def job(name: str, script: str, *, count: int, **options: Any) -> Object:
    """Indexed, all at once; without retries."""
    spec = {"completions": count, "parallelism": count, "completionMode": "Indexed", "backoffLimit": 0}
    spec["template"] = template(script, **options)
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def jobset(name: str, script: str, *, count: int, **options: Any) -> Object:
    """One replicated job, `workers`; its pods are NAME-workers-0-INDEX.NAME."""
    work = job(name, script, count=count, **options)["spec"]
    replicated = {"name": "workers", "replicas": 1, "template": {"spec": work}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": [replicated]},
    }


def pytorchjob(name: str, master: str, worker: str, *, workers: int, **options: Any) -> Object:
    """One master and some workers; the operator insists on a container called pytorch."""

    def replicas(count: int, script: str) -> Object:
        made = template(script, container="pytorch", **options)
        return {"replicas": count, "restartPolicy": "Never", "template": made}

    specs = {"Master": replicas(1, master), "Worker": replicas(workers, worker)}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"runPolicy": {"cleanPodPolicy": "None"}, "pytorchReplicaSpecs": specs},
    }


def mpijob(name: str, launcher: str, worker: str, *, workers: int, **options: Any) -> Object:
    """A launcher and some workers, whose names are NAME-worker-INDEX.NAME; without retries."""

    def replicas(count: int, script: str) -> Object:
        made = template(script, **options)
        del made["spec"]["restartPolicy"]  # the operator's is that of the replicas
        return {"replicas": count, "restartPolicy": "Never", "template": made}

    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name},
        "spec": {
            "slotsPerWorker": 1,
            "runPolicy": {"backoffLimit": 0, "cleanPodPolicy": "None"},
            "mpiReplicaSpecs": {"Launcher": replicas(1, launcher), "Worker": replicas(workers, worker)},
        },
    }


def elastic_pytorchjob(name: str, *, gpus_max: int, **options: Any) -> Object:
    """Two pods with one GPU each; it may have from one GPU to so many, and is resized at once."""
    made = pytorchjob(name, "true", "true", workers=1, gpus=1, **options)
    made["metadata"]["annotations"] = {
        "request": "1",
        "limit": str(gpus_max),
        "replicas": "2",
        "swell.dev/resize": "immediate",
    }
    for replicas in made["spec"]["pytorchReplicaSpecs"].values():
        replicas["restartPolicy"] = "OnFailure"
    return made
