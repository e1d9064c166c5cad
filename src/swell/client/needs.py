"""What can a program say of a command that it submits, and how is that written as a document?"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from swell.errors import Rejected

Path = str | os.PathLike[str]


class Needs(TypedDict, total=False):
    """As in `swell run --help`; None, or nothing said: the server's default."""

    gpus: int | str | None
    gpu_memory: str | None
    exclusive: bool
    on_overrun: str | None
    tasks: int | str | None
    cpus: float | str | None
    memory: str | None
    array: str | None
    priority: int | None
    time: str | float | None
    grace: str | float | None
    epochs: int | None
    hours: float | str | None
    resize: str | None
    retries: int | None
    after: Sequence[str | int]
    notify: str | Sequence[str] | None
    notify_on: str | None
    tensorboard: Path | None
    checkpoints: Path | None
    min_gpu_utilization: int | str | None
    utilization_window: str | float | None
    env: Mapping[str, str] | None
    workdir: Path | None
    image: str | None
    mounts: Sequence[str]
    ports: Sequence[str]


def render_job(command: Sequence[str], name: str | None, needs: Needs) -> dict[str, Any]:
    if isinstance(command, str):
        raise Rejected(f"command must be a list of words, but is text: write ['sh', '-c', {command!r}] to use a shell")
    unknown = sorted(needs.keys() - Needs.__annotations__.keys())
    if unknown:
        raise TypeError(f"submit() knows no {unknown[0]!r}; it knows {', '.join(sorted(Needs.__annotations__))}")
    return {
        "apiVersion": "swell/v1",
        "kind": "Job",
        "metadata": {"name": name} if name else {},
        "spec": {"command": list(command), **_given(_render(needs))},
    }


def _render(needs: Needs) -> dict[str, Any]:
    notify = needs.get("notify")
    utilization = {"minGpuUtilization": needs.get("min_gpu_utilization"), "window": needs.get("utilization_window")}
    return {
        "gpus": needs.get("gpus"),
        "gpuMemory": needs.get("gpu_memory"),
        "exclusive": needs.get("exclusive") or None,
        "onOverrun": needs.get("on_overrun"),
        "tasks": needs.get("tasks"),
        "cpus": needs.get("cpus"),
        "memory": needs.get("memory"),
        "array": needs.get("array"),
        "priority": needs.get("priority"),
        "time": needs.get("time"),
        "grace": needs.get("grace"),
        "epochs": needs.get("epochs"),
        "hours": needs.get("hours"),
        "resize": needs.get("resize"),
        "retries": needs.get("retries"),
        "after": [str(job) for job in needs.get("after", ())] or None,
        "notify": notify if notify is None or isinstance(notify, str) else list(notify),
        "notifyOn": needs.get("notify_on"),
        "tensorboard": _text(needs.get("tensorboard")),
        "checkpoints": _text(needs.get("checkpoints")),
        "utilizationPolicy": _given(utilization) or None,
        "env": dict(needs.get("env") or {}) or None,
        "workdir": _text(needs.get("workdir")),
        "image": needs.get("image"),
        "mounts": list(needs.get("mounts", ())) or None,
        "ports": list(needs.get("ports", ())) or None,
    }


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in fields.items() if value is not None}


def _text(path: Path | None) -> str | None:
    return None if path is None else os.fspath(path)
