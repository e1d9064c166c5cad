"""What does `apiVersion: swell/v1, kind: Job` ask for?

The command line builds the same document, so `swell run --gpus 2 -- …` and a file go one way.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

from swell.errors import Rejected
from swell.manifests.context import Context
from swell.manifests.fields import describe, quantity, refuse_unknown, system_bytes, take_mapping, whole_number
from swell.model.job import GRACE_S_DEFAULT, Array, Dimension, JobSpec, Role
from swell.model.quantity import parse_array, parse_cpus, parse_duration, parse_memory, parse_range
from swell.model.resources import Resources

TOP = ("apiVersion", "kind", "metadata", "spec")
METADATA = ("name",)
SPEC = ("command", "gpus", "tasks", "cpus", "memory", "array", "priority", "time", "grace", "env", "workdir")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
PRIORITY_MAX = 1_000_000
COMMAND_BYTES_MAX = 128 * 1024  # the kernel's limit for one argument (MAX_ARG_STRLEN)


def read(document: dict[str, Any], context: Context) -> JobSpec:
    refuse_unknown(document, TOP, "the manifest")
    metadata = take_mapping({} if document.get("metadata") is None else document["metadata"], "metadata")
    refuse_unknown(metadata, METADATA, "metadata")
    spec = take_mapping(document.get("spec"), "spec")
    refuse_unknown(spec, SPEC, "spec")
    command = read_command(spec.get("command"))
    array = _array(spec)
    tasks = _range(spec, "tasks", default=(1, 1))
    gpus = _range(spec, "gpus", default=(0, 0))
    dimension, width_min, width_max = _width(tasks, gpus, array)
    resources = Resources(_cpus(spec), _memory(spec), gpus[0])
    return JobSpec(
        name=_name(metadata.get("name"), context, command),
        roles=(Role("worker", command, resources, tasks[0]),),
        dimension=dimension,
        width_min=width_min,
        width_max=width_max,
        array=array,
        priority=whole_number(spec.get("priority", 0), "priority", low=-PRIORITY_MAX, high=PRIORITY_MAX),
        time_limit_s=None if spec.get("time") is None else quantity(parse_duration, spec["time"], "time"),
        grace_s=GRACE_S_DEFAULT if spec.get("grace") is None else quantity(parse_duration, spec["grace"], "grace"),
        workdir=_workdir(spec.get("workdir"), context),
        env=read_env(spec.get("env")),
        umask=context.umask,
    )


def _width(tasks: tuple[int, int], gpus: tuple[int, int], array: Array | None) -> tuple[Dimension, int, int]:
    if tasks[0] < 1:
        raise Rejected(f"tasks: {tasks[0]} is too few; a job has at least 1 task")
    if array is not None:
        return _array_width(tasks, gpus, array)
    if gpus[0] != gpus[1] and tasks != (1, 1):
        raise Rejected(
            f"gpus {gpus[0]}..{gpus[1]} with tasks {_text(tasks)}: a job is elastic in one dimension; "
            "give a fixed number of GPUs, or one task"
        )
    if gpus[0] == 0 and gpus[1] > 0:
        raise Rejected(f"gpus 0..{gpus[1]}: the least of a range is 1; write 1..{gpus[1]}")
    if tasks == (1, 1) and gpus[1] > 0:
        return Dimension.GPUS, *gpus
    return Dimension.TASKS, *tasks


def _array_width(tasks: tuple[int, int], gpus: tuple[int, int], array: Array) -> tuple[Dimension, int, int]:
    if tasks != (1, 1):
        raise Rejected(f"array with tasks {_text(tasks)}: each task of an array is one process; leave out tasks")
    if gpus[0] != gpus[1]:
        raise Rejected(f"array with gpus {_text(gpus)}: the tasks of an array are alike; give one number of GPUs")
    return Dimension.TASKS, 1, array.at_once


def _text(span: tuple[int, int]) -> str:
    return str(span[0]) if span[0] == span[1] else f"{span[0]}..{span[1]}"


def _range(spec: dict[str, Any], field: str, *, default: tuple[int, int]) -> tuple[int, int]:
    return default if spec.get(field) is None else quantity(parse_range, spec[field], field)


def _array(spec: dict[str, Any]) -> Array | None:
    return None if spec.get("array") is None else Array(*quantity(parse_array, spec["array"], "array"))


def _cpus(spec: dict[str, Any]) -> int:
    return 1000 if spec.get("cpus") is None else quantity(parse_cpus, spec["cpus"], "cpus")


def _memory(spec: dict[str, Any]) -> int:
    return 0 if spec.get("memory") is None else quantity(parse_memory, spec["memory"], "memory")


def _workdir(value: object, context: Context) -> str:
    if value is None:
        return context.workdir
    if not isinstance(value, str) or not value:
        raise Rejected(f"workdir must be a folder's path, but is {describe(value)}; leave it out for the caller's own")
    system_bytes(value, "workdir")
    return str(PurePosixPath(context.workdir) / value)


def read_command(value: object) -> tuple[str, ...]:
    """An argv. Never a shell string of ours: quoting it would be guessing."""
    if isinstance(value, str):
        raise Rejected(f"command must be a list of words, but is text: write [sh, -c, {value!r}] to use a shell")
    if not isinstance(value, list) or not value:
        raise Rejected(f"command must be a list of words, as in [python, train.py], but is {describe(value)}")
    for word in value:
        if isinstance(word, bool) or not isinstance(word, str | int | float):
            raise Rejected(f"command: every word must be text, but one is {describe(word)}; quote it")
        if len(system_bytes(str(word), "command: a word")) > COMMAND_BYTES_MAX:
            raise Rejected(f"command: a word is longer than {COMMAND_BYTES_MAX} bytes; put it into a file")
    if not str(value[0]):
        raise Rejected("command: the first word, the program, is empty")
    return tuple(str(word) for word in value)


def _name(value: object, context: Context, command: tuple[str, ...]) -> str:
    return read_name(context.name or default_name(command) if value is None else value)


def read_name(value: object) -> str:
    if not isinstance(value, str) or NAME.fullmatch(value) is None:
        raise Rejected(
            f"name {value!r} cannot be used: a name is 1 to 63 letters, digits, '.', '_' or '-', "
            "and begins with a letter or digit"
        )
    if value.isdigit():
        raise Rejected(f"name {value!r} is a number and would be taken for a job's id; add a letter")
    return value


def default_name(command: tuple[str, ...]) -> str:
    """`python train.py` → train; `/bin/true` → true; a script after an interpreter names the job."""
    words = [PurePosixPath(word).name for word in command if not word.startswith("-")]
    script = next((word for word in words[1:] if word.endswith((".py", ".sh"))), None)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", PurePosixPath(script).stem if script else words[0] if words else "")
    name = name.strip(".-_")[:63]
    return name if name and not name.isdigit() else "job"


def read_env(value: object) -> tuple[tuple[str, str], ...]:
    mapping = take_mapping({} if value is None else value, "env")
    for key, text in mapping.items():
        if not key or "=" in key or "\0" in key:
            raise Rejected(f"env: {key!r} cannot be a variable's name; write NAME: value")
        if not isinstance(text, str | int | float):
            raise Rejected(f"env: the value of {key} must be text, but is {describe(text)}; quote it")
        system_bytes(key, "env: a name")
        system_bytes(str(text), f"env: the value of {key}")
    return tuple(sorted((key, _env_text(text)) for key, text in mapping.items()))


def _env_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
