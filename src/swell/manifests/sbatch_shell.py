"""How does a batch script of Slurm's run where there is no Slurm?

Lines of shell go before it: the variables that Slurm gives, the programs `srun` and `scontrol`, and where output goes.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import PurePath

from swell.errors import Rejected
from swell.manifests.fields import shorten
from swell.manifests.srun_program import install_lines

SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
PATTERN = re.compile(r"%([0-9]{0,2})([%AaJjNnstux])")
#: a pattern of file names → the shell's words for it
PATTERNS = {
    "A": "$SLURM_JOB_ID",
    "J": "$SLURM_JOB_ID",
    "j": "$SLURM_JOB_ID",
    "a": "${SLURM_ARRAY_TASK_ID:-0}",
    "N": "$SLURMD_NODENAME",
    "n": "0",
    "s": "batch",
    "t": "0",
    "u": "$SLURM_JOB_USER",
    "x": "$SLURM_JOB_NAME",
}
NUMBERS = "AJajnt"


@dataclass(frozen=True, slots=True)
class BatchAllocation:
    """What a script has for all its tasks together."""

    name: str
    tasks: int
    cpus: int  #: of each task
    gpus: int
    memory_mib: int | None  #: None: not counted
    gpus_per_task: int  #: 0: every task sees all of them
    tasks_per_node: int | None  #: None: the script does not say
    has_cpus: bool  #: it says how many CPUs a task has
    array: tuple[int, int, int, int] | None  #: tasks, lowest and highest index, step; None: no array
    output: str | None
    error: str | None
    input: str | None
    appends: bool


def render_command(script: str, file: str, allocation: BatchAllocation, arguments: tuple[str, ...]) -> list[str]:
    first, _, body = script.partition("\n")
    words = _interpreter(first)
    program = PurePath(words[0]).name
    before = "\n".join([*_variables(allocation), install_lines(), *_streams(allocation)])
    name = PurePath(file).name or "script"
    if program in SHELLS:
        return [*words, "-c", f"{before}\n{body}", name, *arguments]
    if re.fullmatch(r"python[0-9.]*", program):
        return ["sh", "-c", f'{before}\nexec "$@"', name, *words, "-c", body, *arguments]
    raise Rejected(
        f"line 1: {shorten(first)!r} names no shell and no Python; begin the script with #!/bin/bash, and start other "
        "programs from there"
    )


def _interpreter(line: str) -> list[str]:
    words = line[2:].split()
    if words and PurePath(words[0]).name == "env":
        words = [word for word in words[1:] if word != "-S"]
    if not words:
        raise Rejected("line 1: #! names no program; write #!/bin/bash")
    return words


def _variables(one: BatchAllocation) -> list[str]:
    """The values are numbers and names of ours, or the shell's to find."""
    told = {
        "SLURM_JOB_ID": "$SWELL_JOB_ID",
        "SLURM_JOBID": "$SWELL_JOB_ID",
        "SLURM_JOB_NAME": one.name,
        "SLURM_JOB_USER": "$(id -un)",
        "SLURM_SUBMIT_DIR": "$PWD",
        "SLURM_SUBMIT_HOST": "$(hostname)",
        "SLURM_CLUSTER_NAME": "swell",
        "SLURMD_NODENAME": "$(hostname)",
        "SLURM_NODELIST": "$(hostname)",
        "SLURM_JOB_NODELIST": "$(hostname)",
        "SLURM_NNODES": "1",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_NODEID": "0",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_TASK_PID": "$$",
        "SLURM_NTASKS": str(one.tasks),
        "SLURM_NPROCS": str(one.tasks),
        "SLURM_TASKS_PER_NODE": str(one.tasks),
        "SLURM_CPUS_ON_NODE": str(one.tasks * one.cpus),
        "SLURM_JOB_CPUS_PER_NODE": str(one.tasks * one.cpus),
        "SLURM_RESTART_COUNT": "$((${SWELL_ATTEMPT##*.} - 1))",
    }
    if one.tasks_per_node is not None:
        told["SLURM_NTASKS_PER_NODE"] = str(one.tasks_per_node)
    if one.has_cpus:
        told["SLURM_CPUS_PER_TASK"] = str(one.cpus)
    if one.memory_mib is not None:
        told["SLURM_MEM_PER_NODE"] = str(one.memory_mib)
    if one.gpus:
        told |= {"SLURM_GPUS": str(one.gpus), "SLURM_GPUS_ON_NODE": str(one.gpus)}
        told |= {"SLURM_JOB_GPUS": "${CUDA_VISIBLE_DEVICES-}", "SWELL_GPUS_PER_TASK": str(one.gpus_per_task)}
    if one.array is not None:
        count, low, high, step = one.array
        told |= {"SLURM_ARRAY_JOB_ID": "$SWELL_JOB_ID", "SLURM_ARRAY_TASK_ID": "$SWELL_TASK_INDEX"}
        told |= {"SLURM_ARRAY_TASK_COUNT": str(count), "SLURM_ARRAY_TASK_STEP": str(step)}
        told |= {"SLURM_ARRAY_TASK_MIN": str(low), "SLURM_ARRAY_TASK_MAX": str(high)}
    return [f'export {name}="{value}"' for name, value in told.items()]


def _streams(one: BatchAllocation) -> list[str]:
    """Without --output everything is in the job's log."""
    lines = []
    to = ">>" if one.appends or one.array is not None else ">"
    if one.output is not None:
        name = _file(one.output)
        both = "2>&1" if one.error is None else ""
        lines += [f'echo "output is in "{name}', f"exec {to}{name} {both}".rstrip()]
    if one.error is not None:
        lines.append(f"exec 2{to}{_file(one.error)}")
    if one.input is not None:
        lines.append(f"exec <{_file(one.input)}")
    return lines


def _file(pattern: str) -> str:
    """As one word of a shell: what is not a pattern is quoted."""
    found, end = "", 0
    for match in PATTERN.finditer(pattern):
        found += shlex.quote(pattern[end : match.start()]) if match.start() > end else ""
        found += _meaning(match[1], match[2])
        end = match.end()
    return found + (shlex.quote(pattern[end:]) if end < len(pattern) else "")


def _meaning(width: str, letter: str) -> str:
    if letter == "%":
        return "%"
    if width and letter in NUMBERS:
        return f'"$(printf %0{int(width)}d "{PATTERNS[letter]}")"'
    return f'"{PATTERNS[letter]}"'
