"""How is a job written as a batch script of Slurm's?"""

from __future__ import annotations

import math
import re
import shlex

from swell.manifests.writers.kubernetes import common_losses
from swell.manifests.writers.rendering import Rendering, is_elastic, lost, width_text
from swell.manifests.writers.variables import communication_backend, gpus_of, lost_variables
from swell.model.job import GRACE_S_DEFAULT, Dimension, JobSpec
from swell.model.launcher import Launcher, launch_words
from swell.model.task_environment import Ranks, ranks_of

TARGET = "an sbatch script"
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # what a shell takes for a name; another one would be a command
INDEX = ("SWELL_TASK_INDEX", "JOB_COMPLETION_INDEX")
#: What Swell tells a task, in words of a shell. A script runs on the first node, where rank 0 is. What Swell itself has
#: set stays, for Swell runs such scripts, too.
TOLD_TO_ALL = {
    "SWELL_JOB_ID": '"${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}"',
    "SWELL_JOB_NAME": '"$SLURM_JOB_NAME"',
    "NUM_NODES": '"$SLURM_JOB_NUM_NODES"',
    "NODELIST": '"$(scontrol show hostnames | paste -sd, -)"',
    "MASTER_PORT": '"${MASTER_PORT:-$((20000 + SLURM_JOB_ID % 10000))}"',
    "PYTHONUNBUFFERED": '"${PYTHONUNBUFFERED-1}"',
}
RESTARTED = '"$([ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] && echo TRUE || echo FALSE)"'
TOLD_TO_ONE = {"WORLD_SIZE": "1", "NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
TOLD_TO_ARRAY = dict.fromkeys(INDEX, '"$SLURM_ARRAY_TASK_ID"') | {"SWELL_TASK_COUNT": '"$SLURM_ARRAY_TASK_COUNT"'}
TOLD_TO_TASK = dict.fromkeys(INDEX, "0") | {"SWELL_TASK_COUNT": "1"}
TOLD_TO_GANG = dict.fromkeys(("WORLD_SIZE", "SWELL_TASK_COUNT"), '"$SLURM_NTASKS"') | {"MASTER_ADDR": '"$(hostname)"'}
TOLD_TO_RANK = {
    **dict.fromkeys(("RANK", *INDEX), '"$SLURM_PROCID"'),
    "LOCAL_RANK": '"$SLURM_LOCALID"',
    **dict.fromkeys(("NODE_RANK", "GROUP_RANK"), '"$SLURM_NODEID"'),
}


def write_sbatch(spec: JobSpec) -> Rendering:
    lines = ["#!/bin/sh", *(f"#SBATCH --{option}" for option in _options(spec)), ""]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in _variables(spec) if VARIABLE.fullmatch(name)]
    return Rendering("\n".join([*lines, _export(_told(spec)), _command(spec)]) + "\n", _losses(spec))


def _variables(spec: JobSpec) -> list[tuple[str, str]]:
    return sorted({**dict(spec.env), **dict(spec.roles[0].env)}.items())


def _export(told: dict[str, str]) -> str:
    return " ".join(["export", *(f"{name}={value}" for name, value in told.items())])


def _told(spec: JobSpec) -> dict[str, str]:
    """What the script says to all its tasks."""
    gpus = gpus_of(spec, spec.roles[0])
    told = {
        **TOLD_TO_ALL,
        "JOB_RESTARTED": RESTARTED if spec.array is None else "FALSE",
        "NUM_GPUS": str(gpus),
        **({} if gpus else {"CUDA_VISIBLE_DEVICES": "''"}),
        "PL_TORCH_DISTRIBUTED_BACKEND": communication_backend(gpus),
    }
    if _is_gang(spec):
        return told | TOLD_TO_GANG
    ranks = {} if ranks_of(spec) is Ranks.INSIDE else {"RANK": "0"}
    return told | TOLD_TO_ONE | ranks | (TOLD_TO_TASK if spec.array is None else TOLD_TO_ARRAY)


def _command(spec: JobSpec) -> str:
    command = spec.roles[0].command
    if spec.launcher is Launcher.MPI:  # of a step of Slurm's it would see one task
        return shlex.join(command)
    words = command if spec.launcher is None else launch_words(spec.launcher, command)
    if not _is_gang(spec):
        return shlex.join(["srun", *words])
    return shlex.join(["srun", "sh", "-c", f'{_export(TOLD_TO_RANK)}; exec "$@"', "sh", *words])


def _is_gang(spec: JobSpec) -> bool:
    return spec.array is None and _tasks(spec) > 1


def _written(spec: JobSpec) -> set[str]:
    """Slurm itself says which GPUs a task has."""
    return {*_told(spec), *(TOLD_TO_RANK if _is_gang(spec) else ()), "CUDA_VISIBLE_DEVICES"}


def _tasks(spec: JobSpec) -> int:
    return spec.width_min if spec.dimension is Dimension.TASKS and spec.array is None else spec.roles[0].count


def _cpus(spec: JobSpec) -> int:
    return max(1, math.ceil(spec.roles[0].resources.cpus_milli / 1000))


def _options(spec: JobSpec) -> list[str]:
    role = spec.roles[0]
    gpus = gpus_of(spec, role)
    has_grace = spec.time_limit_s is not None or spec.grace_s != GRACE_S_DEFAULT
    given = {
        "job-name": spec.name,
        "chdir": spec.workdir,
        "ntasks": str(_tasks(spec)),
        "cpus-per-task": str(_cpus(spec)),
        **_memory(spec),
        "gpus-per-task": str(gpus) if gpus else "",
        "array": f"{spec.array.indices}%{spec.array.at_once}" if spec.array else "",
        "time": "" if spec.time_limit_s is None else _time(spec.time_limit_s),
        "signal": f"B:TERM@{math.ceil(spec.grace_s)}" if has_grace else "",
    }
    options = [f"{name}={shlex.quote(value)}" for name, value in given.items() if value and value.isprintable()]
    return [*options, "hold"] if spec.is_held else options


def _memory(spec: JobSpec) -> dict[str, str]:
    """Slurm counts it by node, or, where tasks are many and may be on several nodes, by CPU."""
    memory_mib = spec.roles[0].resources.memory_mib
    if not memory_mib:
        return {}
    if _tasks(spec) == 1:
        return {"mem": f"{memory_mib}M"}
    return {"mem-per-cpu": f"{math.ceil(memory_mib / _cpus(spec))}M"}


def _time(seconds: float) -> str:
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def _losses(spec: JobSpec) -> tuple[str, ...]:
    own, times = spec.roles[0].resources, (spec.time_limit_s, spec.grace_s)
    others = ", ".join(role.name for role in spec.roles[1:])
    return lost(
        {
            f"a width of {width_text(spec)} (this script asks for {spec.width_min})": is_elastic(spec),
            f"the roles {others}": others,
            "a variable whose name is none in a shell": not all(
                VARIABLE.fullmatch(name) for name, _ in _variables(spec)
            ),
            "a folder whose name cannot be printed": not spec.workdir.isprintable(),
            "part of a CPU": own.cpus_milli % 1000 or not own.cpus_milli,
            "memory that its CPUs do not divide (this script asks for more)": _tasks(spec) > 1
            and own.memory_mib % _cpus(spec),
            "parts of a second": any(one is not None and one != math.ceil(one) for one in times),
            "no grace at all": not spec.grace_s,
            "a share of a GPU by memory": own.is_share,
            "a GPU's least memory": own.gpus and own.gpu_memory_mib,
            "an image": spec.container,
            "secrets": spec.secrets,
            "retries of an array": spec.retries and spec.array,
            "variables that differ from task to task": any(role.numbered for role in spec.roles),
            "cpuLimit": any(role.cpu_limit_milli for role in spec.roles),
            "rules about nodes": any(role.rules is not None for role in spec.roles),
            "the pod group": spec.pod_group,
            "a rank for each CPU or GPU of a task": spec.launcher is Launcher.MPI,
            **common_losses(spec),
            **lost_variables(spec, _written(spec)),
        },
        TARGET,
    )
