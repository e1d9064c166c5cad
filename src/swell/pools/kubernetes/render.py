"""What do we send to the API server to get a worker?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from swell.pools.backend import WorkerOrder
from swell.pools.kubernetes.options import KubernetesOptions
from swell.pools.worker_command import TOKEN_VARIABLE, words_with_token_variable

Document = dict[str, Any]

APP = "cl-worker"  # the label that CodaLab's workers have; one worker per node counts all of them
POOL_LABEL = "swell.dev/pool"
WORKER_LABEL = "swell.dev/worker"
CONTAINER = "worker"
TOKEN_KEY = "token"  # noqa: S105
GRACE_S = 120  # a task saves a checkpoint in that time; a spot node may give less
SMALL_CPUS_MILLI = 1000  # a whole CPU does not fit beside the system's pods on a node with one
SMALL_REQUEST = "500m"


def secret_name(pool: str) -> str:
    return f"swell-pool-{pool}"


def render_secret(order: WorkerOrder, namespace: str) -> Document:
    """The token of a pool's workers; applied, so that nobody needs the right to read it."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secret_name(order.pool), "namespace": namespace, "labels": {POOL_LABEL: order.pool}},
        "type": "Opaque",
        "stringData": {TOKEN_KEY: order.token},
    }


def render_pod(order: WorkerOrder, options: KubernetesOptions, namespace: str) -> Document:
    labels = {"app": APP, POOL_LABEL: order.pool, WORKER_LABEL: order.id}
    spec: Document = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,  # jobs run in this pod, and are not the pool
        "terminationGracePeriodSeconds": GRACE_S,
        "containers": [_container(order, options)],
        "volumes": _volumes(options),
    }
    if options.node_selector:
        spec["nodeSelector"] = dict(options.node_selector)
    if order.gpus:  # nodes with GPUs are kept free of other pods by this taint, on GKE and elsewhere
        spec["tolerations"] = [{"key": options.gpu_resource, "operator": "Exists", "effect": "NoSchedule"}]
    if options.one_per_node:
        spec["affinity"] = _alone()
    metadata = {"name": order.id, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _container(order: WorkerOrder, options: KubernetesOptions) -> Document:
    # A pod that is deleted has its grace period and no longer: its tasks are told at once.
    told = replace(order, worker=replace(order.worker, passes_termination=True))
    return {
        "name": CONTAINER,
        "image": options.image,
        "command": list(words_with_token_variable(told)),
        "env": [
            {"name": TOKEN_VARIABLE, "valueFrom": _from_secret(order.pool)},
            {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        ],
        "resources": render_resources(order, options.gpu_resource),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": _mounts(order, options),
    }


def _from_secret(pool: str) -> Document:
    return {"secretKeyRef": {"name": secret_name(pool), "key": TOKEN_KEY}}


def render_resources(order: WorkerOrder, gpu_resource: str) -> Document:
    cpu = f"{order.cpus_milli}m"
    memory = f"{order.memory_mib}Mi"
    gpus = {gpu_resource: str(order.gpus)} if order.gpus else {}
    requested = SMALL_REQUEST if order.cpus_milli == SMALL_CPUS_MILLI else cpu
    return {
        "requests": {"cpu": requested, "memory": memory, **gpus},
        "limits": {"cpu": cpu, "memory": memory, **gpus},
    }


def _volumes(options: KubernetesOptions) -> list[Document]:
    volumes: list[Document] = [
        {"name": "work", "emptyDir": {}},
        # What a container has by itself, 64 MB, is too little for the workers of a data loader.
        {"name": "shared-memory", "emptyDir": {"medium": "Memory", **_size_limit(options)}},
    ]
    if options.nfs_volume_name is not None:
        claim = f"{options.nfs_volume_name}-claim"
        volumes.append({"name": "shared", "persistentVolumeClaim": {"claimName": claim}})
    return volumes


def _size_limit(options: KubernetesOptions) -> Document:
    return {} if options.shared_memory_mib is None else {"sizeLimit": f"{options.shared_memory_mib}Mi"}


def _mounts(order: WorkerOrder, options: KubernetesOptions) -> list[Document]:
    mounts = [
        {"name": "work", "mountPath": order.folder_prefix.rstrip("/") or "/tmp"},  # noqa: S108
        {"name": "shared-memory", "mountPath": "/dev/shm"},  # noqa: S108
    ]
    if options.nfs_path is not None:
        mounts.append({"name": "shared", "mountPath": options.nfs_path})
    return mounts


def _alone() -> Document:
    term = {"labelSelector": {"matchLabels": {"app": APP}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
