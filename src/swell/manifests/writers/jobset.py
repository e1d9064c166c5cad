"""How is a job written as a JobSet? One replicated Job for each role."""

from __future__ import annotations

import math
from typing import Any

from swell.manifests.native_objects import INDEX, MASTER_PORT
from swell.manifests.writers.rendering import Rendering, as_yaml, is_elastic, lost, width_text
from swell.manifests.writers.variables import communication_backend, gpus_of, lost_variables
from swell.model.job import GRACE_S_DEFAULT, Container, Dimension, JobSpec, ResizeMode, Role
from swell.model.kind import JOBSET
from swell.model.kubernetes_quantity import GPU
from swell.model.task_environment import Ranks, rank_variables, ranks_of

TARGET = "a JobSet"
IMAGE = "IMAGE"  # what a person replaces


def write_jobset(spec: JobSpec) -> Rendering:
    return Rendering(as_yaml([_document(spec)]), _losses(spec))


def _document(spec: JobSpec) -> dict[str, Any]:
    annotations = _annotations(spec)
    return {
        "apiVersion": JOBSET.api_version,
        "kind": JOBSET.name,
        "metadata": {"name": spec.name, **({"annotations": annotations} if annotations else {})},
        "spec": {
            **({"suspend": True} if spec.is_held else {}),
            **({"failurePolicy": {"maxRestarts": spec.retries}} if spec.array is None else {}),
            "replicatedJobs": [_entry(spec, role) for role in spec.roles],
        },
    }


def _annotations(spec: JobSpec) -> dict[str, str]:
    said = {
        "epochs": spec.epochs,
        "priority": spec.priority or None,
        "resize": None if spec.resize is ResizeMode.AT_CHECKPOINT else str(spec.resize),
        "checkpoints": spec.checkpoints,
        "gpu-memory": _share(spec),
    }
    return {f"swell.dev/{name}": str(value) for name, value in said.items() if value is not None}


def _share(spec: JobSpec) -> str | None:
    shares = {role.resources.gpu_memory_mib for role in spec.roles if role.resources.is_share}
    return f"{max(shares)}MiB" if shares else None


def _entry(spec: JobSpec, role: Role) -> dict[str, Any]:
    tasks, at_once = (len(spec.array.indices), spec.array.at_once) if spec.array else (role.count, role.count)
    job: dict[str, Any] = {"completionMode": "Indexed", "completions": tasks, "parallelism": at_once}
    if spec.time_limit_s is not None:
        job["activeDeadlineSeconds"] = max(1, math.ceil(spec.time_limit_s))
    if spec.array is not None:
        job["backoffLimitPerIndex"] = spec.retries  # the set would start all indices again
    job["template"] = {"spec": _pod(spec, role)}
    return {"name": role.name, "replicas": 1, "template": {"spec": job}}


def _pod(spec: JobSpec, role: Role) -> dict[str, Any]:
    env = {"PYTHONUNBUFFERED": "1", **dict(spec.env), **dict(role.env), **_told(spec, role)}
    container: dict[str, Any] = {
        "name": "main",
        "image": spec.container.image if spec.container else IMAGE,
        "command": [word.replace("$", "$$") for word in role.command],
        "env": [_variable(name, value) for name, value in sorted(env.items(), key=lambda one: one[0])],
        "resources": _resources(spec, role),
    }
    if spec.workdir:
        container["workingDir"] = spec.workdir
    grace = math.ceil(spec.grace_s)
    pod = {} if spec.grace_s == GRACE_S_DEFAULT else {"terminationGracePeriodSeconds": grace}
    return {"restartPolicy": "Never", **pod, "containers": [container]}


def _variable(name: str, value: str | dict[str, Any]) -> dict[str, Any]:
    return {"name": name, **({"value": value.replace("$", "$$")} if isinstance(value, str) else value)}


def _told(spec: JobSpec, role: Role) -> dict[str, str | dict[str, Any]]:
    """What Swell tells a task, as far as a pod can be told: its number within its own Job comes from Kubernetes, and
    of the first role that is its number among all.
    """
    ranks, tasks = ranks_of(spec), len(spec.array.indices) if spec.array else sum(one.count for one in spec.roles)
    is_gang, gpus = ranks is Ranks.TASKS, gpus_of(spec, role)
    first = spec.roles[0]
    told: dict[str, str | dict[str, Any]] = {
        **rank_variables(ranks, rank=0, world_size=tasks, local_rank=0, local_world_size=1, node_rank=0),
        "NODE_RANK": "0",
        "NUM_NODES": str(tasks) if is_gang else "1",
        "NUM_GPUS": str(gpus),
        "MASTER_ADDR": f"{spec.name}-{first.name}-0-0.{spec.name}" if is_gang else "127.0.0.1",
        "MASTER_PORT": str(MASTER_PORT),
        "PL_TORCH_DISTRIBUTED_BACKEND": communication_backend(gpus),
        "SWELL_JOB_NAME": spec.name,
        "SWELL_TASK_COUNT": str(tasks),
    }
    numbered = {"SWELL_TASK_INDEX", *(("RANK", "NODE_RANK", "GROUP_RANK") if is_gang else ())}
    if role is not first:
        return {name: value for name, value in told.items() if name not in numbered}
    return told | {name: {"valueFrom": {"fieldRef": {"fieldPath": INDEX}}} for name in numbered}


def _written(spec: JobSpec) -> set[str]:
    """Variables of every pod."""
    names = set.intersection(*({*_told(spec, role)} for role in spec.roles))
    return {*names, "PYTHONUNBUFFERED", *(("JOB_COMPLETION_INDEX",) if len(spec.roles) == 1 else ())}


def _resources(spec: JobSpec, role: Role) -> dict[str, Any]:
    own = role.resources
    requests = {"cpu": f"{own.cpus_milli}m"}
    if own.memory_mib:
        requests["memory"] = f"{own.memory_mib}Mi"
    limited = {"cpu": f"{role.cpu_limit_milli}m"} if role.cpu_limit_milli else {}
    if not own.gpus and not own.is_share:
        return {"requests": requests, **({"limits": limited} if limited else {})}
    in_width = spec.dimension is Dimension.GPUS and own.gpus
    low, high = (spec.width_min, spec.width_max) if in_width else (max(own.gpus, 1),) * 2
    return {"requests": {**requests, GPU: low}, "limits": {**limited, GPU: high}}


def _losses(spec: JobSpec) -> tuple[str, ...]:
    times = (spec.time_limit_s, spec.grace_s)
    return lost(
        {
            f"a width of {width_text(spec)} (this JobSet has {spec.roles[0].count})": is_elastic(spec)
            and spec.dimension is Dimension.TASKS,
            "an array of indices that are not 0, 1, 2 …": spec.array
            and any(given != place for place, given in enumerate(spec.array.indices)),
            "parts of a second": any(one is not None and one != math.ceil(one) for one in times),
            "a GPU's least memory": any(role.resources.gpus and role.resources.gpu_memory_mib for role in spec.roles),
            "different shares of GPUs": len({role.resources.gpu_memory_mib for role in spec.roles}) > 1,
            "a job without an image": spec.container is None,
            "mounts, ports, volumes and shm": spec.container and spec.container != Container(spec.container.image),
            "secrets": spec.secrets,
            "rules about nodes": any(role.rules is not None for role in spec.roles),
            "the pod group": spec.pod_group,
            "rules about exit codes": spec.exit_rules,
            "hours": spec.estimate_s,
            "ownCurve": spec.has_own_curve,
            "checkpointEvery": spec.saves_every_s,
            "after": spec.after,
            "notify": spec.notify,
            "files of its own (uploaded, inputs, outputs)": spec.files,
            "tensorboard": spec.tensorboard,
            "utilizationPolicy": spec.idle,
            "onOverrun": str(spec.on_overrun) != "warn",
            "launcher": spec.launcher,
            "a limit of retries of all indices together": spec.retries_together is not None,
            **lost_variables(spec, _written(spec)),
        },
        TARGET,
    )
