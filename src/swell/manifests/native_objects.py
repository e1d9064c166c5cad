"""Which objects of Kubernetes are a job in our own notation?

An array is one Indexed Job: its tasks are independent, and Kubernetes counts them and tries them again one by one. A
gang is bare pods, NAME-0 and so on, because it starts and ends as a whole, which is ours to do; with more than one a
headless Service gives every rank a name. What differs from attempt to attempt (tokens, where to resume) is not here.

Pods fit Pod Security "restricted": no new privileges, no capabilities, the runtime's seccomp profile, and not root.
Most images of training frameworks are root's, so a user number is given; `run_as=None` leaves it to the image, or to
a cluster that hands out numbers of its own (OpenShift).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from swell.manifests.tensorboard_pod import with_tensorboard
from swell.model.job import Container, JobId, JobSpec, Role
from swell.model.kubernetes_quantity import GPU
from swell.model.launcher import launch_words
from swell.model.placement_fields import render_rules
from swell.model.task_environment import TF_TASKS_MAX, Ranks, rank_variables, ranks_of
from swell.model.width import tasks_at

NAME_MAX = 56  # a label has 63; the longest that is added to it is the index of an array's task, -999999
MASTER_PORT = 23456  # as the operator of PyTorchJobs has it; a pod has all ports for itself
RUN_AS = 1000  # anybody but root
OF = "swell.dev/of"  #: label of the pods: the job's base name
CONTAINER = "main"
SHARED_MEMORY = "/dev/shm"  # noqa: S108 (a mount point)
INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}

Object = dict[str, Any]
Variables = Mapping[str, str | Object]  #: a text, or where Kubernetes finds it


@dataclass(frozen=True, slots=True)
class Target:
    """Where and how wide the objects of one attempt are made."""

    name: str
    namespace: str
    width: int
    run_as: int | None

    def metadata(self, ending: str = "") -> Object:
        return {"name": self.name + ending, "namespace": self.namespace, "labels": {OF: self.name}}


def object_name(name: str, job: JobId) -> str:
    """A job's name as Kubernetes takes it for pods and Services, told from others of that name by its id."""
    ending = f"-{job}"
    safe = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")
    if not safe[:1].isalpha():  # a Service's name begins with a letter
        safe = f"job-{safe}"
    return safe[: NAME_MAX - len(ending)].rstrip("-") + ending


def native_objects(spec: JobSpec, *, name: str, namespace: str, width: int, run_as: int | None) -> tuple[Object, ...]:
    """What one attempt of that width is made of, in the order of creation. `name`: of `object_name`."""
    target = Target(name, namespace, width, run_as)
    if spec.array is not None:
        return (_indexed_job(spec, target),)
    ranks = [role for role, count in _roles_at(spec, width) for _ in range(count)]
    pods = tuple(_gang_pod(spec, role, target, rank=rank, tasks=len(ranks)) for rank, role in enumerate(ranks))
    return (_service(target), *pods) if len(pods) > 1 else pods


def _roles_at(spec: JobSpec, width: int) -> list[tuple[Role, int]]:
    """Each role with what one task of it takes at the width, and how many tasks it has there."""
    groups = zip(spec.roles, tasks_at(spec, width), strict=True)
    return [(replace(role, resources=resources), count) for role, (resources, count) in groups]


# -- arrays --------------------------------------------------------------------------------------------------


def _indexed_job(spec: JobSpec, target: Target) -> Object:
    """Its own indices are 0, 1, 2 …: others were refused when the job was read."""
    assert spec.array is not None
    [role] = spec.roles
    index = {"valueFrom": {"fieldRef": {"fieldPath": INDEX}}}
    ranks = rank_variables(ranks_of(spec), rank=0, world_size=1, local_rank=0, local_world_size=1, node_rank=0)
    own: Variables = {**ranks, "SWELL_TASK_INDEX": index}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": target.metadata(),
        "spec": {
            "completionMode": "Indexed",
            "completions": len(spec.array.indices),
            "parallelism": target.width,
            "backoffLimitPerIndex": spec.retries,
            "template": {"metadata": {"labels": {OF: target.name}}, "spec": _pod_spec(spec, role, target, own)},
        },
    }


# -- gangs ---------------------------------------------------------------------------------------------------


def _service(target: Target) -> Object:
    """Names are there before a pod is ready: ranks look for each other while they start."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": target.metadata(),
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {OF: target.name}},
    }


def _gang_pod(spec: JobSpec, role: Role, target: Target, *, rank: int, tasks: int) -> Object:
    own = _gang_variables(target.name, ranks_of(spec), rank=rank, tasks=tasks, gpus=role.resources.gpus)
    pod = _pod_spec(spec, role, target, own)
    if spec.tensorboard is not None and rank == 0:
        pod = with_tensorboard(pod, spec.tensorboard)
    if tasks > 1:
        pod |= {"hostname": f"{target.name}-{rank}", "subdomain": target.name}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": target.metadata(f"-{rank}"), "spec": pod}


def _gang_variables(name: str, ranks: Ranks, *, rank: int, tasks: int, gpus: int) -> Variables:
    """Every pod is a machine of its own to what runs in it."""
    addresses = [f"{name}-{number}.{name}" for number in range(tasks)] if tasks > 1 else ["127.0.0.1"]
    variables = {
        **rank_variables(ranks, rank=rank, world_size=tasks, local_rank=0, local_world_size=1, node_rank=rank),
        "NODE_RANK": str(rank),
        "NUM_NODES": str(tasks),
        "NUM_GPUS": str(gpus),
        "MASTER_ADDR": addresses[0],
        "MASTER_PORT": str(MASTER_PORT),
        "SWELL_TASK_INDEX": str(rank),
        "SWELL_TASK_COUNT": str(tasks),
    }
    if tasks <= TF_TASKS_MAX:
        workers = [f"{address}:{MASTER_PORT}" for address in addresses]
        task = {"type": "worker", "index": rank}
        variables["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})
    return variables


# -- pods ----------------------------------------------------------------------------------------------------


def _environment(spec: JobSpec, role: Role, own: Variables) -> list[Object]:
    """Ours win, as on a machine. Dollars are doubled: Kubernetes would take $(NAME) for a reference."""
    kept = {
        one.name: {"valueFrom": {"secretKeyRef": {"name": one.secret, "key": one.key}}}
        for one in spec.secrets
        if one.secret
    }
    variables: dict[str, str | Object] = {**kept, **dict(spec.env), **dict(role.env), **own}
    return [
        {"name": key, **({"value": _escaped(value)} if isinstance(value, str) else value)}
        for key, value in sorted(variables.items(), key=lambda one: one[0])
    ]


def _escaped(text: str) -> str:
    return text.replace("$", "$$")


def _pod_spec(spec: JobSpec, role: Role, target: Target, own: Variables) -> Object:
    assert spec.container is not None, "refused when the job was read"
    command = role.command if spec.launcher is None else launch_words(spec.launcher, role.command)
    container: Object = {
        "name": CONTAINER,
        "image": spec.container.image,
        "command": [_escaped(word) for word in command],
        "env": _environment(spec, role, own),
        "resources": _resources(role),
        "securityContext": SECURITY,
        **_ports(spec.container),
    }
    volumes, mounts = _volumes(spec.container)
    if mounts:
        container["volumeMounts"] = mounts
    if spec.workdir:
        container["workingDir"] = spec.workdir
    security: Object = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    if target.run_as is not None:
        security["runAsUser"] = target.run_as
    pod: Object = {
        "restartPolicy": "Never",  # whether and when it is tried again is not the node's to decide
        "terminationGracePeriodSeconds": math.ceil(spec.grace_s),
        "automountServiceAccountToken": False,  # a job needs nothing of the cluster's API
        "enableServiceLinks": False,  # a variable for every Service of the namespace, otherwise
        "securityContext": security,
        "containers": [container],
        **render_rules(role.rules, {OF: target.name}),
        **({"volumes": volumes} if volumes else {}),
    }
    if spec.time_limit_s is not None:
        pod["activeDeadlineSeconds"] = max(1, math.ceil(spec.time_limit_s))
    return pod


def _ports(container: Container) -> Object:
    """Of the pod; the machine's are not opened."""
    return {"ports": [{"containerPort": inside} for _, inside in container.ports]} if container.ports else {}


def _volumes(container: Container) -> tuple[list[Object], list[Object]]:
    """Shared memory counts as the container's own, so one without a size of its own keeps what its runtime gives."""
    volumes: list[Object] = []
    mounts: list[Object] = []
    if container.shm_mib:
        memory = {"medium": "Memory", "sizeLimit": f"{container.shm_mib}Mi"}
        volumes.append({"name": "shm", "emptyDir": memory})
        mounts.append({"name": "shm", "mountPath": SHARED_MEMORY})
    for number, one in enumerate(container.volumes):
        name = f"volume-{number}"
        read_only: Object = {"readOnly": True} if one.is_read_only else {}
        claim = {"persistentVolumeClaim": {"claimName": one.claim, **read_only}}
        nfs = {"nfs": {"server": one.server, "path": one.export, **read_only}}
        volumes.append({"name": name, **(claim if one.claim else nfs)})
        mounts.append({"name": name, "mountPath": one.target, **read_only})
    return volumes, mounts


def _resources(role: Role) -> Object:
    """What is counted is requested; GPUs must have a limit too. A share of a GPU is not the device plugin's to give."""
    resources = role.resources
    amounts = {
        "cpu": f"{resources.cpus_milli}m" if resources.cpus_milli else None,
        "memory": f"{resources.memory_mib}Mi" if resources.memory_mib else None,
        GPU: str(resources.gpus) if resources.gpus else None,
    }
    requests = {name: amount for name, amount in amounts.items() if amount is not None}
    limits = {name: amount for name, amount in requests.items() if name == GPU}
    if role.cpu_limit_milli:
        limits["cpu"] = f"{role.cpu_limit_milli}m"
    return {side: given for side, given in (("requests", requests), ("limits", limits)) if given}
