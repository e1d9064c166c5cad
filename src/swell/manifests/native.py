"""What does `apiVersion: swell/v1, kind: Job` ask for?

The command line builds the same document, so `swell run --gpus 2 -- …` and a file go one way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from swell.errors import Rejected
from swell.manifests import gpus, job_files
from swell.manifests.affinity import is_about_tags, read_rules
from swell.manifests.aspod import check_as_pod, check_text
from swell.manifests.command import read_env, read_folder, read_secrets
from swell.manifests.containers import FIELDS as CONTAINER
from swell.manifests.containers import read_container
from swell.manifests.context import Context
from swell.manifests.dependencies import read_after
from swell.manifests.fields import (
    default_name,
    is_true,
    quantity,
    read_name,
    refuse_unknown,
    shorten,
    take_choice,
    take_mapping,
    whole_number,
)
from swell.manifests.native_roles import read_tasks
from swell.manifests.notify import read_notify
from swell.model.job import GRACE_S_DEFAULT, Array, JobSpec, ResizeMode
from swell.model.launcher import BadCommand, Launcher, launch_words
from swell.model.placement import PlacementRules
from swell.model.quantity import (
    DURATION_S_MAX,
    BadQuantity,
    parse_checkpoint_every,
    parse_grace,
    parse_time_limit,
)
from swell.model.task_environment import without_effect

TOP = ("apiVersion", "kind", "metadata", "spec")
METADATA = ("name",)
SIZE = (*gpus.FIELDS, "tasks", "cpus", "cpuLimit", "memory", "array")
WHERE = ("nodeSelector", "tolerations")
LIFE = (
    "priority",
    "time",
    "grace",
    "epochs",
    "hours",
    "checkpointEvery",
    "resize",
    "ownCurve",
    "retries",
    "after",
    "notify",
    "notifyOn",
)
SPEC = (
    "command",
    "launcher",
    "roles",
    *SIZE,
    *WHERE,
    *LIFE,
    *CONTAINER,
    "env",
    "secrets",
    "workdir",
    "tensorboard",
    "checkpoints",
    *job_files.FIELDS,
    *gpus.IDLE,
)
PRIORITY_MAX = 1_000_000
EPOCHS_MAX = 1_000_000_000  # more is a slip of the keyboard
RETRIES_MAX = 1000  # a job that fails so often will not succeed


def read(document: dict[str, Any], context: Context) -> JobSpec:
    refuse_unknown(document, TOP, "the manifest")
    metadata = take_mapping({} if document.get("metadata") is None else document["metadata"], "metadata")
    refuse_unknown(metadata, METADATA, "metadata")
    spec = take_mapping(document.get("spec"), "spec")
    refuse_unknown(spec, SPEC, "spec")
    tasks = read_tasks(spec)
    rules, rule_notes = _rules(spec, context)
    command = tasks.roles[0].command
    notes = check_as_pod(spec, tasks.array) if context.on_cluster else ()
    here = "" if context.on_cluster else context.workdir  # no pod has the caller's folder
    files = job_files.read_files(spec, context)
    workdir = _workdir(spec, here, has_files=files is not None)
    env = read_env(spec.get("env"))
    secrets = read_secrets(spec.get("secrets"), context, has_image=spec.get("image") is not None)
    given = {name for role in tasks.roles for name, _ in role.env}.union(name for name, _ in env)
    if twice := next((one.name for one in secrets if one.name in given), None):
        raise Rejected(f"secrets: {shorten(twice)} is in env, too; keep one")
    if context.on_cluster:
        for role in tasks.roles:
            check_text(role.command, "command")
            check_text(tuple(text for _, text in (*env, *role.env)), "env")
    return JobSpec(
        name=_name(metadata.get("name"), context, command),
        roles=tuple(replace(role, rules=rules) for role in tasks.roles),
        dimension=tasks.dimension,
        width_min=tasks.width_min,
        width_max=tasks.width_max,
        array=tasks.array,
        priority=read_priority(spec.get("priority", 0), "priority"),
        time_limit_s=None if spec.get("time") is None else quantity(parse_time_limit, spec["time"], "time"),
        grace_s=GRACE_S_DEFAULT if spec.get("grace") is None else quantity(parse_grace, spec["grace"], "grace"),
        workdir=workdir,
        env=env,
        umask=context.umask,
        epochs=None if spec.get("epochs") is None else read_epochs(spec["epochs"], "epochs"),
        estimate_s=None if spec.get("hours") is None else quantity(_hours, spec["hours"], "hours"),
        saves_every_s=_given(parse_checkpoint_every, spec, "checkpointEvery"),
        resize=ResizeMode.AT_CHECKPOINT if spec.get("resize") is None else read_resize(spec["resize"], "resize"),
        retries=whole_number(0 if spec.get("retries") is None else spec["retries"], "retries", low=0, high=RETRIES_MAX),
        after=read_after(spec.get("after"), context),
        notify=read_notify(spec.get("notify"), spec.get("notifyOn")),
        tensorboard=_folder(spec, "tensorboard", workdir, otherwise="no TensorBoard"),
        checkpoints=_folder(spec, "checkpoints", workdir, otherwise="one that Swell makes"),
        on_overrun=gpus.read_overrun(spec, is_share=tasks.resources.is_share),
        idle=gpus.read_idle(spec, tasks.resources),
        container=read_container(spec, workdir, is_one_task=tasks.is_one, on_cluster=context.on_cluster),
        notes=(*notes, *rule_notes, *job_files.notes(files), *without_effect(sorted(given))),
        launcher=_launcher(spec.get("launcher"), command, tasks.array, on_cluster=context.on_cluster),
        files=files,
        secrets=secrets,
        has_own_curve=is_true(spec.get("ownCurve"), "ownCurve"),
    )


def _rules(spec: dict[str, Any], context: Context) -> tuple[PlacementRules | None, tuple[str, ...]]:
    """As of a pod. Machines of our own have no labels but their tags."""
    rules, _ = read_rules({name: spec.get(name) for name in WHERE}, "spec", {})
    said = [name for name in WHERE if spec.get(name) and not is_about_tags(spec[name])]
    if context.on_cluster or not said:
        return rules, ()
    have = "has" if len(said) == 1 else "have"
    return rules, (f"{' and '.join(said)} {have} no effect here: machines have no labels but those under swell.dev/",)


def _workdir(spec: dict[str, Any], here: str, *, has_files: bool) -> str:
    """With files of its own a job runs below its own folder, which every worker has elsewhere."""
    if not has_files:
        return _folder(spec, "workdir", here, otherwise="the caller's own") or here
    checkpoints = spec.get("checkpoints")
    if isinstance(checkpoints, str) and not checkpoints.startswith("/"):
        raise Rejected(
            f"checkpoints {shorten(checkpoints)!r} is below the job's own folder, which is removed when an attempt "
            "ends; write an absolute path, or leave it out for one that Swell makes"
        )
    return job_files.read_inner_folder(spec.get("workdir"))


def _launcher(value: object, command: tuple[str, ...], array: Array | None, *, on_cluster: bool) -> Launcher | None:
    if value is None:
        return None
    launcher = Launcher(take_choice(value, tuple(Launcher), "launcher"))
    if launcher is Launcher.MPI and array is not None:
        raise Rejected(
            "launcher mpi with array: each task of an array is alone, and mpirun finds the slots of its one task "
            "without it; leave launcher out"
        )
    if launcher is Launcher.MPI and on_cluster:
        raise Rejected("launcher mpi: on Kubernetes the MPI operator starts the ranks; submit an MPIJob")
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


def _given(parse: Callable[[object], float], spec: Mapping[str, Any], field: str) -> float | None:
    return None if spec.get(field) is None else quantity(parse, spec[field], field)


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
