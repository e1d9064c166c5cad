"""What does `apiVersion: swell/v1, kind: Job` ask for?

The command line builds the same document, so `swell run --gpus 2 -- …` and a file go one way.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from swell.errors import Rejected
from swell.manifests import gpus
from swell.manifests.aspod import check_as_pod, check_text
from swell.manifests.command import read_command, read_env, read_folder
from swell.manifests.containers import FIELDS as CONTAINER
from swell.manifests.containers import read_container
from swell.manifests.context import Context
from swell.manifests.dependencies import read_after
from swell.manifests.fields import quantity, refuse_unknown, shorten, take_choice, take_mapping, whole_number
from swell.manifests.idle import FIELDS as IDLE
from swell.manifests.idle import read_idle
from swell.manifests.names import default_name, read_name
from swell.manifests.notices import read_notify
from swell.model.job import GRACE_S_DEFAULT, Array, Dimension, JobSpec, ResizeMode, Role
from swell.model.launcher import BadCommand, Launcher, launch_words
from swell.model.quantity import (
    DURATION_S_MAX,
    BadQuantity,
    parse_array,
    parse_cpus,
    parse_memory,
    parse_range,
    parse_seconds,
    parse_time_limit,
)
from swell.model.resources import Resources

TOP = ("apiVersion", "kind", "metadata", "spec")
METADATA = ("name",)
SIZE = (*gpus.FIELDS, "tasks", "cpus", "memory", "array")
LIFE = ("priority", "time", "grace", "epochs", "hours", "resize", "retries", "after", "notify", "notifyOn")
SPEC = ("command", "launcher", *SIZE, *LIFE, *CONTAINER, "env", "workdir", "tensorboard", "checkpoints", *IDLE)
PRIORITY_MAX = 1_000_000
EPOCHS_MAX = 1_000_000_000  # more is a slip of the keyboard
RETRIES_MAX = 1000  # a job that fails so often will not succeed


def read(document: dict[str, Any], context: Context) -> JobSpec:
    refuse_unknown(document, TOP, "the manifest")
    metadata = take_mapping({} if document.get("metadata") is None else document["metadata"], "metadata")
    refuse_unknown(metadata, METADATA, "metadata")
    spec = take_mapping(document.get("spec"), "spec")
    refuse_unknown(spec, SPEC, "spec")
    command = read_command(spec.get("command"))
    array = _array(spec)
    notes = check_as_pod(spec, array) if context.on_cluster else ()
    tasks = (1, 1) if spec.get("tasks") is None else quantity(parse_range, spec["tasks"], "tasks")
    wholes, gpu_memory_mib = gpus.read_gpus(spec, tasks)
    dimension, width_min, width_max = _width(tasks, wholes, array)
    resources = Resources(_cpus(spec), _memory(spec), wholes[0], gpu_memory_mib)
    here = "" if context.on_cluster else context.workdir  # no pod has the caller's folder
    workdir = _folder(spec, "workdir", here, otherwise="the caller's own") or here
    env = read_env(spec.get("env"))
    if context.on_cluster:
        check_text(command, "command")
        check_text(tuple(text for _, text in env), "env")
    return JobSpec(
        name=_name(metadata.get("name"), context, command),
        roles=(Role("worker", command, resources, tasks[0]),),
        dimension=dimension,
        width_min=width_min,
        width_max=width_max,
        array=array,
        priority=read_priority(spec.get("priority", 0), "priority"),
        time_limit_s=None if spec.get("time") is None else quantity(parse_time_limit, spec["time"], "time"),
        grace_s=GRACE_S_DEFAULT if spec.get("grace") is None else quantity(parse_seconds, spec["grace"], "grace"),
        workdir=workdir,
        env=env,
        umask=context.umask,
        epochs=None if spec.get("epochs") is None else read_epochs(spec["epochs"], "epochs"),
        estimate_s=None if spec.get("hours") is None else quantity(_hours, spec["hours"], "hours"),
        resize=ResizeMode.AT_CHECKPOINT if spec.get("resize") is None else read_resize(spec["resize"], "resize"),
        retries=whole_number(0 if spec.get("retries") is None else spec["retries"], "retries", low=0, high=RETRIES_MAX),
        after=read_after(spec.get("after"), context),
        notify=read_notify(spec.get("notify"), spec.get("notifyOn")),
        tensorboard=_folder(spec, "tensorboard", workdir, otherwise="no TensorBoard"),
        checkpoints=_folder(spec, "checkpoints", workdir, otherwise="one that Swell makes"),
        on_overrun=gpus.read_overrun(spec, is_share=resources.is_share),
        idle=read_idle(spec, resources),
        container=read_container(spec, workdir, is_one_task=array is None and tasks == (1, 1)),
        notes=notes,
        launcher=_launcher(spec.get("launcher"), command),
    )


def _launcher(value: object, command: tuple[str, ...]) -> Launcher | None:
    if value is None:
        return None
    launcher = Launcher(take_choice(value, tuple(Launcher), "launcher"))
    try:
        launch_words(launcher, command)
    except BadCommand as error:
        raise Rejected(f"command: {error}") from error
    return launcher


def read_priority(value: object, where: str) -> int:
    return whole_number(value, where, low=-PRIORITY_MAX, high=PRIORITY_MAX)


def read_epochs(value: object, where: str) -> int:
    return whole_number(value, where, low=1, high=EPOCHS_MAX)


def read_resize(value: object, where: str) -> ResizeMode:
    return ResizeMode(take_choice(value, tuple(ResizeMode), where))


def _width(tasks: tuple[int, int], wholes: tuple[int, int], array: Array | None) -> tuple[Dimension, int, int]:
    if tasks[0] < 1:
        raise Rejected(f"tasks: {tasks[0]} is too few; a job has at least 1 task")
    if array is not None:
        return _array_width(tasks, wholes, array)
    if wholes[0] != wholes[1] and tasks != (1, 1):
        raise Rejected(
            f"gpus {wholes[0]}..{wholes[1]} with tasks {range_text(tasks)}: a job is elastic in one dimension; "
            "give a fixed number of GPUs, or one task"
        )
    if wholes[0] == 0 and wholes[1] > 0:
        raise Rejected(f"gpus 0..{wholes[1]}: the least of a range is 1; write 1..{wholes[1]}")
    if tasks == (1, 1) and wholes[1] > 0:
        return Dimension.GPUS, *wholes
    return Dimension.TASKS, *tasks


def _array_width(tasks: tuple[int, int], wholes: tuple[int, int], array: Array) -> tuple[Dimension, int, int]:
    if tasks != (1, 1):
        raise Rejected(f"array with tasks {range_text(tasks)}: each task of an array is one process; leave out tasks")
    if wholes[0] != wholes[1]:
        raise Rejected(
            f"array with gpus {range_text(wholes)}: the tasks of an array are alike; give one number of GPUs"
        )
    return Dimension.TASKS, 1, array.at_once


def range_text(span: tuple[int, int]) -> str:
    return str(span[0]) if span[0] == span[1] else f"{span[0]}..{span[1]}"


def _array(spec: dict[str, Any]) -> Array | None:
    return None if spec.get("array") is None else Array(*quantity(parse_array, spec["array"], "array"))


def _cpus(spec: dict[str, Any]) -> int:
    return 1000 if spec.get("cpus") is None else quantity(parse_cpus, spec["cpus"], "cpus")


def _memory(spec: dict[str, Any]) -> int:
    return 0 if spec.get("memory") is None else quantity(parse_memory, spec["memory"], "memory")


def _hours(value: object) -> float:
    """'2.5' → 9000 seconds."""
    raw = str(value).strip()
    try:
        seconds = Decimal(raw) * 3600
    except ArithmeticError:
        seconds = Decimal(0)
    if not seconds.is_finite() or not 0 < seconds <= Decimal(DURATION_S_MAX):
        raise BadQuantity(
            f"{shorten(raw)!r} is not a number of hours; write how long it will run by your guess, as in 2.5"
        )
    return float(seconds)


def _folder(spec: dict[str, Any], field: str, base: str, *, otherwise: str) -> str | None:
    return None if spec.get(field) is None else read_folder(spec[field], base, field, otherwise=otherwise)


def _name(value: object, context: Context, command: tuple[str, ...]) -> str:
    return read_name(context.name or default_name(command) if value is None else value)
