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
    after: Sequence[str | int] | None
    notify: str | Sequence[str] | None
    notify_on: str | None
    tensorboard: Path | None
    checkpoints: Path | None
    min_gpu_utilization: int | str | None
    utilization_window: str | float | None
    env: Mapping[str, str] | None
    workdir: Path | None
    image: str | None
    mounts: Sequence[str] | None
    ports: Sequence[str] | None
    launcher: str | None


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
    said = {_camel(name): _plain(value) for name, value in needs.items()}
    said["after"] = [str(job) for job in needs.get("after") or ()]
    idle = {"minGpuUtilization": said.pop("minGpuUtilization", None), "window": said.pop("utilizationWindow", None)}
    return {**said, "utilizationPolicy": _given(idle)}


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    """Without what says nothing."""
    return {
        field: value for field, value in fields.items() if not (value is None or value is False or value in ([], {}))
    }
