"""How is a job written in our own notation?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from swell.manifests.writers.rendering import Rendering, as_yaml, lost
from swell.model.job import (
    GRACE_S_DEFAULT,
    After,
    Container,
    Dimension,
    IdlePolicy,
    JobSpec,
    Notify,
    Overrun,
    ResizeMode,
    Role,
    Secret,
    Volume,
)
from swell.model.job_files import JobFiles
from swell.model.kind import NATIVE_JOB, RANK_ALONE
from swell.model.placement import NO_RULES, PlacementRules
from swell.model.placement_fields import render_rules

CPUS_MILLI_DEFAULT = 1000


def write_native(spec: JobSpec, siblings: Sequence[str] = ()) -> Rendering:
    return Rendering(as_yaml([native_document(spec, siblings)]), _losses(spec, siblings))


def native_document(spec: JobSpec, siblings: Sequence[str] = ()) -> dict[str, Any]:
    """What has its default is left out. `siblings`: names of the jobs of the same file, for which it may wait."""
    fields = {
        **_tasks(spec),
        "launcher": None if spec.launcher is None else str(spec.launcher),
        "onOverrun": None if spec.on_overrun is Overrun.WARN else str(spec.on_overrun),
        **_where(spec.roles[0].rules if _has_plain_rules(spec) else None),
        **_life(spec, siblings),
        **_container(spec.container),
        "env": {**dict(spec.env), **(dict(spec.roles[0].env) if spec.array else {})},
        "secrets": [_secret(one) for one in spec.secrets],
        "workdir": spec.workdir,
        **_files(spec.files),
        "tensorboard": spec.tensorboard,
        "checkpoints": spec.checkpoints,
    }
    return {
        "apiVersion": NATIVE_JOB.api_version,
        "kind": NATIVE_JOB.name,
        "metadata": {"name": spec.name},
        "spec": _given(fields),
    }


def _files(files: JobFiles | None) -> dict[str, Any]:
    if files is None:
        return {}
    inputs = [_given({"url": one.url, "to": one.to, "sha256": one.sha256}) for one in files.inputs]
    return {"uploaded": files.folder, "inputs": inputs, "outputs": list(files.outputs)}


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in (None, "", [], {}, False)}


def _losses(spec: JobSpec, siblings: Sequence[str]) -> tuple[str, ...]:
    asked = {
        "variables that differ from task to task": any(role.numbered for role in spec.roles),
        "rules about nodes of one role, or beyond nodeSelector and tolerations": not _has_plain_rules(spec),
        "NGPU and --num_processes= that follow the width": spec.rewrites_width,
        "a limit of retries of all indices together": spec.retries_together is not None,
        "rules about exit codes": spec.exit_rules,
        "a job that is held from the start": spec.is_held,
        "the pod group": spec.pod_group,
        "no grace at all": not spec.grace_s,
        "waiting for a job of the same file": any(-after.job > len(siblings) for after in spec.after),
        f"RANK in the only task of a {spec.kind}": spec.kind in RANK_ALONE and spec.tasks_total == 1,
    }
    return lost(asked, "Swell's own notation")


def _tasks(spec: JobSpec) -> dict[str, Any]:
    [first, *others] = spec.roles
    if spec.array or (not others and first.name == "worker" and not first.env):
        return _task(spec, first, is_first=True)
    entries = [
        {"name": role.name, **_given({**_task(spec, role, is_first=role is first), "env": dict(role.env)})}
        for role in spec.roles
    ]
    return {"roles": entries}


def _task(spec: JobSpec, role: Role, *, is_first: bool) -> dict[str, Any]:
    width = _range(spec.width_min, spec.width_max)
    in_gpus = spec.dimension is Dimension.GPUS and role.resources.gpus > 0
    in_tasks = spec.dimension is Dimension.TASKS and is_first and spec.array is None
    tasks = width if in_tasks else role.count
    return {
        "command": list(role.command),
        "tasks": None if tasks == 1 or spec.array else tasks,
        "gpus": width if in_gpus else role.resources.gpus or None,
        "gpuMemory": f"{role.resources.gpu_memory_mib}MiB" if role.resources.gpu_memory_mib else None,
        "exclusive": bool(role.resources.gpus and role.resources.gpu_memory_mib),
        "array": f"{spec.array.indices}%{spec.array.at_once}" if spec.array else None,
        "cpus": _cpus(role.resources.cpus_milli),
        "cpuLimit": f"{role.cpu_limit_milli}m" if role.cpu_limit_milli else None,
        "memory": f"{role.resources.memory_mib}MiB" if role.resources.memory_mib else None,
    }


def _cpus(milli: int) -> str | None:
    return None if milli == CPUS_MILLI_DEFAULT else f"{milli // 1000}.{milli % 1000:03}".rstrip("0").rstrip(".")


def _has_plain_rules(spec: JobSpec) -> bool:
    """Those that hold for all tasks, and that a job of our own can have."""
    rules = {role.rules for role in spec.roles}
    return all(one is None or replace(one, selector=(), tolerations=()) == NO_RULES for one in rules) and len(rules) < 2


def _where(rules: PlacementRules | None) -> dict[str, Any]:
    return {} if rules is None else render_rules(rules, {})


def _life(spec: JobSpec, siblings: Sequence[str]) -> dict[str, Any]:
    return {
        "priority": spec.priority or None,
        "time": _seconds(spec.time_limit_s),
        "grace": None if spec.grace_s == GRACE_S_DEFAULT else _seconds(spec.grace_s),
        "epochs": spec.epochs,
        "hours": None if spec.estimate_s is None else repr(spec.estimate_s / 3600),
        "checkpointEvery": _seconds(spec.saves_every_s),
        "resize": None if spec.resize is ResizeMode.AT_CHECKPOINT else str(spec.resize),
        "ownCurve": spec.has_own_curve,
        "retries": spec.retries or None,
        "after": [_after(one, siblings) for one in spec.after],
        **_notify(spec.notify),
        "utilizationPolicy": _idle(spec.idle),
    }


def _seconds(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds:f}".rstrip("0").rstrip(".") + "s"


def _after(one: After, siblings: Sequence[str]) -> str:
    job = siblings[-one.job - 1] if 0 < -one.job <= len(siblings) else str(one.job)
    return f"{job}:end" if one.on_any_end else job


def _notify(notify: Notify | None) -> dict[str, Any]:
    if notify is None:
        return {}
    return {"notify": list(notify.to), "notifyOn": "error" if notify.only_on_error else None}


def _idle(idle: IdlePolicy | None) -> dict[str, Any] | None:
    if idle is None:
        return None
    return {"minGpuUtilization": idle.min_gpu_utilization, "window": _seconds(idle.window_s)}


def _container(container: Container | None) -> dict[str, Any]:
    if container is None:
        return {}
    return {
        "image": container.image,
        "mounts": [f"{one.source}:{one.target}{':ro' * one.is_read_only}" for one in container.mounts],
        "ports": [f"{host}:{inside}" for host, inside in container.ports],
        "shm": f"{container.shm_mib}MiB" if container.shm_mib else None,
        "volumes": [_volume(one) for one in container.volumes],
    }


def _volume(one: Volume) -> dict[str, Any]:
    source = {"claim": one.claim} if one.claim else {"nfs": f"{one.server}:{one.export}"}
    return {**source, **_given({"folder": one.folder, "path": one.target, "readOnly": one.is_read_only})}


def _secret(one: Secret) -> str | dict[str, Any]:
    return {"name": one.name, "secret": one.secret, "key": one.key} if one.secret else one.name


def _range(low: int, high: int) -> int | str:
    return low if low == high else f"{low}..{high}"
