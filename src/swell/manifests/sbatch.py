"""What does a batch script of Slurm's ask for?

A script is written out as a job in our own notation, which is then read: one task on one machine that holds what all
its tasks ask for together, and in which `srun` starts them.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import PurePath
from typing import Any

from swell.errors import Rejected
from swell.manifests import native
from swell.manifests.context import Context
from swell.manifests.document import Manifest
from swell.manifests.fields import NAME, shorten, system_bytes
from swell.manifests.sbatch_options import MARK, Options, read_options
from swell.manifests.sbatch_shell import BatchAllocation, render_command
from swell.model.kind import NATIVE_JOB
from swell.model.quantity import COUNT_MAX, BadQuantity, parse_array, parse_time_limit

SCRIPT_BYTES_MAX = 100 * 1024  # it is one word of a command, of which the kernel takes 128 KiB
ENDLESS = ("0", "UNLIMITED", "INFINITE")
MEMORY = re.compile(r"([0-9]{1,12})([KMGT]?)B?", re.IGNORECASE)
MEMORY_MIB = {"K": Decimal(1) / 1024, "": Decimal(1), "M": Decimal(1), "G": Decimal(1024), "T": Decimal(1024**2)}
GPUS = re.compile(r"(?:([A-Za-z][A-Za-z0-9_.-]*):)?([0-9]{1,6})")
SIGNAL = re.compile(r"(?:[BR]:)?([A-Za-z0-9]{1,20})(?:@([0-9]{1,5}))?", re.IGNORECASE)
TERM = ("TERM", "SIGTERM", "15")
SIGNAL_S_DEFAULT = "60"  # Slurm's own
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: field of our own notation → the options that say it
ORIGINS = {
    "cpus": ("cpus-per-task", "ntasks", "ntasks-per-node", "nodes"),
    "memory": ("mem", "mem-per-cpu", "mem-per-gpu"),
    "gpus": ("gpus", "gpus-per-node", "gpus-per-task", "gres"),
    "time": ("time",),
    "grace": ("signal",),
    "array": ("array",),
    "after": ("dependency",),
    "workdir": ("chdir",),
    "env": ("export",),
    "notify": ("mail-user",),
    "notifyOn": ("mail-type",),
}
NO_SCRIPT = "it is no batch script: the first line must be #!/bin/sh or the like"
ON_CLUSTER = (
    "a batch script runs in the folder that it is submitted from, which a pod does not see; submit it to a server that "
    "runs jobs on its own machines, or write a job file with an image (swell render --to native FILE begins one)"
)


@dataclass(frozen=True, slots=True)
class Script:
    """The text of one file, and what its user calls the file."""

    text: str
    file: str
    arguments: tuple[str, ...] = ()
    options: str = ""  #: of sbatch, which override those in the text


def has_options(text: str) -> bool:
    """Is it a batch script that lacks its first line?"""
    return any(line.startswith(f"{MARK} ") for line in text.splitlines()[:100])


def is_script(text: str) -> bool:
    return text.startswith("#!")


def read(script: Script, context: Context) -> Manifest:
    if context.on_cluster:
        raise Rejected(ON_CLUSTER)
    system_bytes(script.text, "the script")
    if len(script.text.encode()) > SCRIPT_BYTES_MAX:
        raise Rejected(f"the script is longer than {SCRIPT_BYTES_MAX // 1024} KiB; put what it does into programs")
    for word in script.arguments:
        system_bytes(word, "an argument of the script")
    options = read_options(script.text, script.options)
    allocation, notes = _allocation(options, script.file, context)
    document = _document(script, options, allocation)
    spec = native.read(document, context)
    is_held = "hold" in options.given
    spec = replace(spec, is_held=is_held, notes=(*options.notes, *notes, *spec.notes))
    return Manifest(spec, document, lines=_lines(options), via="sbatch")


def _lines(options: Options) -> dict[str, int]:
    """The field of our own notation → the line of the option that it comes from; the last one counts."""
    found = {"spec.command": 1}
    for field, names in ORIGINS.items():
        given = [options.given[name].line for name in names if name in options.given]
        found |= {f"spec.{field}": max(given)} if any(given) else {}
    return found


def _document(script: Script, options: Options, allocation: BatchAllocation) -> dict[str, Any]:
    spec = {
        "command": render_command(script.text, script.file, allocation, script.arguments),
        "cpus": str(allocation.tasks * allocation.cpus),
        "memory": None if allocation.memory_mib is None else f"{allocation.memory_mib}MiB",
        "gpus": allocation.gpus or None,
        "time": _time(options),
        "grace": _grace(options),
        "array": options.text("array"),
        "after": _dependencies(options),
        "workdir": options.text("chdir"),
        "env": _env(options),
        **_mail(options),
    }
    return {
        "apiVersion": NATIVE_JOB.api_version,
        "kind": NATIVE_JOB.name,
        "metadata": {"name": allocation.name},
        "spec": {field: value for field, value in spec.items() if value is not None},
    }


def _allocation(options: Options, file: str, context: Context) -> tuple[BatchAllocation, tuple[str, ...]]:
    nodes, per_node = _nodes(options), _count(options, "ntasks-per-node")
    tasks = _count(options, "ntasks") or nodes * (per_node or 1)
    cpus = _count(options, "cpus-per-task") or 1
    gpus, types = _gpus(options, nodes=nodes, tasks=tasks)
    total = {"tasks": tasks, "CPUs": tasks * cpus, "GPUs": gpus}
    for what, count in total.items():
        if count > COUNT_MAX:
            raise Rejected(f"the script asks for {count} {what}; a job has at most {COUNT_MAX}")
    notes = [f"--nodes={nodes}: all tasks run on one machine, which must have room for them"] if nodes > 1 else []
    notes += [f"the type of GPU, {one}, has no effect: machines have no types" for one in types]
    memory = _memory(options, nodes=nodes, cpus=tasks * cpus, gpus=gpus)
    if options.text("output") is not None:
        notes.append("--output: the file has what the job prints; `swell logs` has only its name")
    if "signal" in options.given and _grace(options) is None:
        notes.append("--signal: only TERM has an effect, which SIGKILL follows after so many seconds")
    name = options.text("job-name") or context.name or PurePath(file).name
    return (
        BatchAllocation(
            name=_named(name),
            tasks=tasks,
            cpus=cpus,
            gpus=gpus,
            memory_mib=memory,
            gpus_per_task=_count(options, "gpus-per-task") or 0,
            tasks_per_node=per_node,
            has_cpus="cpus-per-task" in options.given,
            array=None if options.text("array") is None else _array(options),
            output=options.text("output"),
            error=options.text("error"),
            input=options.text("input"),
            appends=_appends(options),
        ),
        tuple(notes),
    )


def _named(name: str) -> str:
    """Slurm takes any text."""
    if NAME.fullmatch(name) and not name.isdigit():
        return name
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:59]
    return safe if safe and not safe.isdigit() else f"job-{safe}".rstrip("-")


def _count(options: Options, name: str) -> int | None:
    text = options.text(name)
    if text is None:
        return None
    if name == "gpus-per-task":
        return _gpu_count(options, name, text)[0]
    if re.fullmatch(r"[0-9]{1,9}", text) is None or not int(text):
        raise options.refused(name, "is no number above 0")
    return int(text)


def _nodes(options: Options) -> int:
    """Of a range the least: it starts as soon as there is room."""
    text = options.text("nodes") or "1"
    match = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", text)
    if match is None or not int(match[1]) or (match[2] is not None and int(match[2]) < int(match[1])):
        raise options.refused("nodes", "is no number of nodes; write 2 or 2-4")
    return int(match[1])


def _array(options: Options) -> tuple[int, int, int, int]:
    """How many tasks, the lowest and highest index, and the step."""
    try:
        indices, _ = parse_array(options.text("array"))
    except BadQuantity as problem:
        raise options.refused("array", f"cannot be read: {problem}") from None
    first, last = min(run[0] for run in indices.runs), max(run[1] for run in indices.runs)
    return len(indices), first, last, indices.runs[0][2]


def _time(options: Options) -> str | None:
    text = options.text("time")
    if text is None or text.upper() in ENDLESS:
        return None
    try:
        parse_time_limit(text)
    except BadQuantity as problem:
        raise options.refused("time", f"cannot be read: {problem}") from None
    return text


def _grace(options: Options) -> str | None:
    """From SIGTERM to SIGKILL. None: it is not said, or another signal is meant."""
    text = options.text("signal")
    if text is None:
        return None
    match = SIGNAL.fullmatch(text)
    if match is None or match[2] in ("0", "00"):
        raise options.refused("signal", "is no signal and time; write TERM@90")
    return f"{match[2] or SIGNAL_S_DEFAULT}s" if match[1].upper() in TERM else None


# -- sizes ---------------------------------------------------------------------------------------------------


def _memory(options: Options, *, nodes: int, cpus: int, gpus: int) -> int | None:
    times = {"mem": nodes, "mem-per-cpu": cpus, "mem-per-gpu": gpus}
    given = [name for name in times if name in options.given]
    if len(given) > 1:
        raise options.refused(given[1], f"beside --{given[0]}: they exclude each other; keep one")
    if not given:
        return None
    match = MEMORY.fullmatch(options.text(given[0]) or "")
    if match is None:
        raise options.refused(given[0], "is no amount of memory; write 4000M or 8G (a bare number is mebibytes)")
    if given[0] == "mem-per-gpu" and not gpus:
        raise options.refused(given[0], "without a GPU; ask for --gpus, or write --mem")
    each = Decimal(match[1]) * MEMORY_MIB[match[2].upper()]
    return math.ceil(each * times[given[0]]) or None  # 0: all of the node, so nothing is counted


def _gpus(options: Options, *, nodes: int, tasks: int) -> tuple[int, list[str]]:
    """How many, and of which types."""
    found: dict[str, tuple[int, str | None]] = {}
    times = {"gpus": 1, "gpus-per-node": nodes, "gpus-per-task": tasks}
    for name, factor in times.items():
        text = options.text(name)
        if text is not None:
            count, kind = _gpu_count(options, name, text)
            found[name] = (count * factor, kind)
    if options.text("gres") not in (None, "none", "NONE"):
        count, kind = _gres(options)
        found["gres"] = (count * nodes, kind)
    counts = {count for count, _ in found.values()}
    if len(counts) > 1:
        said = ", ".join(f"--{name} for {count}" for name, (count, _) in found.items())
        raise Rejected(f"the script asks for different numbers of GPUs: {said}; keep one of them")
    return max(counts, default=0), sorted({kind for _, kind in found.values() if kind})


def _gpu_count(options: Options, name: str, text: str) -> tuple[int, str | None]:
    match = GPUS.fullmatch(text)
    if match is None:
        raise options.refused(name, "is no number of GPUs; write 2 or a100:2")
    return int(match[2]), match[1]


def _gres(options: Options) -> tuple[int, str | None]:
    """`gpu`, `gpu:2` or `gpu:a100:2`."""
    text = options.text("gres") or ""
    match = re.fullmatch(r"(?:gres[:/])?gpu(?:[:/]([A-Za-z][A-Za-z0-9_.-]*))?(?:[:=]([0-9]{1,6}))?", text)
    if match is None:
        raise options.refused("gres", "is not known here; write gpu:2 (other resources are not counted)")
    return int(match[2] or 1), match[1]


# -- the rest ------------------------------------------------------------------------------------------------


def _dependencies(options: Options) -> list[dict[str, str]] | None:
    text = options.text("dependency")
    if text is None:
        return None
    meanings = {"afterok": "success", "afterany": "end"}
    found = []
    for part in text.split(","):
        kind, _, jobs = part.partition(":")
        if kind not in meanings or "?" in text:
            raise options.refused("dependency", "cannot be kept: afterok:ID and afterany:ID are; write one of them")
        if not jobs:
            raise options.refused("dependency", "names no job; write afterok:12")
        found += [{"job": one, "on": meanings[kind]} for one in jobs.split(":")]
    return found


def _env(options: Options) -> dict[str, str] | None:
    """The caller's environment is a job's anyway; variables may be given beside it."""
    text = options.text("export")
    if text is None:
        return None
    given = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if equals:
            if VARIABLE.fullmatch(name) is None:
                raise options.refused("export", f"names {shorten(name)!r}, which is no variable's name")
            given[name] = value
        elif name in ("NONE", "NIL"):
            raise options.refused(
                "export",
                "cannot be kept: a job has the environment that it is submitted from; "
                "clear it with `env -i` before submitting, or leave the option out",
            )
    return given or None


def _mail(options: Options) -> dict[str, str]:
    kinds = set((options.text("mail-type") or "NONE").upper().split(","))
    if kinds <= {"NONE"}:
        return {}
    if "mail-user" not in options.given:
        raise options.refused("mail-type", "without --mail-user: whom to tell is not known here; name an address")
    when = {"END": "end", "ALL": "end", "FAIL": "error"}
    found = {when[kind] for kind in kinds if kind in when}
    if not found:
        return {}
    return {"notify": f"mailto:{options.text('mail-user')}", "notifyOn": "end" if "end" in found else "error"}


def _appends(options: Options) -> bool:
    text = options.text("open-mode") or "truncate"
    if text not in ("append", "truncate"):
        raise options.refused("open-mode", "must be append or truncate")
    return text == "append"
