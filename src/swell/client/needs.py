"""What can a program say of a command that it submits, and how is that written as a document?"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypedDict

from swell.errors import Rejected
from swell.model.launch import TAG, TAG_LABEL

Path = str | os.PathLike[str]


class Needs(TypedDict, total=False):
    """As in `swell run --help`; None, or nothing said: the server's default."""

    gpus: int | str | None
    gpu_memory: str | None
    exclusive: bool
    on_overrun: str | None
    tasks: int | str | None
    cpus: float | str | None
    cpu_limit: float | str | None
    memory: str | None
    tag: str | None
    array: str | None
    priority: int | None
    time: str | float | None
    grace: str | float | None
    epochs: int | None
    hours: float | str | None
    checkpoint_every: str | float | None
    resize: str | None
    own_curve: bool
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
    shm: str | None
    launcher: str | None
    uploaded: str | None
    inputs: Sequence[str | Mapping[str, str]] | None
    outputs: Sequence[str] | None


def render_job(command: Sequence[str], name: str | None, needs: Needs) -> dict[str, Any]:
    if isinstance(command, str):
        raise Rejected(f"command must be a list of words, but is text: write ['sh', '-c', {command!r}] to use a shell")
    unknown = sorted(needs.keys() - Needs.__annotations__.keys())
    if unknown:
        raise TypeError(f"submit() knows no {unknown[0]!r}; it knows {', '.join(sorted(Needs.__annotations__))}")
    return {
        "apiVersion": "swell/v1",
        "kind": "Job",
        "metadata": {} if name is None else {"name": name},
        "spec": {"command": list(command), **_given(_render(needs))},
    }


def _render(needs: Needs) -> dict[str, Any]:
    said = {_camel(name): _plain(value) for name, value in needs.items()}
    said["after"] = [str(job) for job in needs.get("after") or ()]
    idle = {"minGpuUtilization": said.pop("minGpuUtilization", None), "window": said.pop("utilizationWindow", None)}
    where = _where(said.pop("tag", None))
    return {**said, **where, "utilizationPolicy": _given(idle)}


def _where(tag: str | None) -> dict[str, Any]:
    """Of the machines with a tag, also those that keep other jobs away."""
    if tag is None:
        return {}
    if not TAG.fullmatch(tag):
        raise Rejected(f"tag {tag[:100]!r} is not the tag of a machine; write letters, digits and '-'")
    return {"nodeSelector": {TAG_LABEL: tag}, "tolerations": [{"key": TAG_LABEL, "value": tag}]}


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


#: Fields of the document → what they are called here, and on the command line. Those below `utilizationPolicy` first:
#: the longest that fits is taken.
WRITTEN = {
    "{minGpuUtilization: 10, window: 30m}": "min_gpu_utilization 10 and utilization_window 30m",
    "utilizationPolicy.minGpuUtilization": "min_gpu_utilization",
    "utilizationPolicy.window": "utilization_window",
    "needs window": "needs utilization_window",
    "minGpuUtilization": "min_gpu_utilization",
    "utilizationPolicy": "min_gpu_utilization",
    "{job: 12, on: end}": "12:end",
    "after: on": "after: what stands behind the colon",
}
FIELDS = {_camel(name): name for name in ("name", *Needs.__annotations__)}
ARGUMENT = re.compile(rf"\b({'|'.join(sorted({*FIELDS.values()}, key=len, reverse=True))})\b")
#: A field whose name is a word like others is meant where a message begins with it, and after these.
PLAIN = re.compile(
    r"(^|\bwith |\badd |\bgive |\bdrop |\bleave |\bleave out |\bneeds )"
    rf"({'|'.join(name for name in FIELDS.values() if '_' not in name)})(?=[:;, ]|$)"
)


@contextmanager
def refused_as(spell: Callable[[str], str]) -> Iterator[None]:
    """What is refused in here is said in the words of whoever wrote it: `spell` has their word for an argument."""
    try:
        yield
    except Rejected as problem:
        raise type(problem)(reword(str(problem), spell)) from None


def reword(text: str, spell: Callable[[str], str]) -> str:
    """A refusal of the document that `render_job` has made, for somebody who has never seen it. Quotes stay."""
    pieces = re.split(r"('[^']*')", text)
    return "".join(
        piece if piece.startswith("'") else _reword(piece, at == 0, spell) for at, piece in enumerate(pieces)
    )


def _reword(text: str, is_first: bool, spell: Callable[[str], str]) -> str:
    for written, said in WRITTEN.items():
        text = text.replace(written, ARGUMENT.sub(lambda found: spell(found[0]), said))
    for field, name in FIELDS.items():
        if field != name:
            text = re.sub(rf"\b{field}\b", spell(name), text)
    return PLAIN.sub(lambda found: found[0] if not is_first and not found[1] else found[1] + spell(found[2]), text)
