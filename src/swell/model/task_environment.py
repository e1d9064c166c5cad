"""Which variables does a task see, on every engine? Those of its attempt, and those of its rank.

Frameworks take some of these variables for the work of a launcher that has started one process per GPU: Lightning
starts no ranks of its own where it finds LOCAL_RANK (or, on Kubernetes, RANK), and then trains on its part of the data
only, or waits for ranks that nobody starts. So a task is told of ranks only where it is one:

| ranks | RANK | LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK | WORLD_SIZE, NODE_RANK, NUM_NODES |
|---|---|---|---|
| of a job that may have several tasks | yes | yes | yes |
| of one task, which may hold one GPU at most | 0 | no | yes |
| of one task that may hold several GPUs | no: it starts a rank for each of them, or its launcher does | no | yes |
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from swell.model.job import AttemptId, JobSpec, job_uuid
from swell.model.kind import RANK_ALONE
from swell.model.launcher import MPI_SLOTS, mentions_launcher
from swell.model.width import tasks_at

#: what says that a process is one rank of somebody's launch, which a job started from inside of it is not
OF_ONE_RANK = frozenset(
    {
        "RANK",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "GROUP_WORLD_SIZE",
        "ROLE_RANK",
        "ROLE_WORLD_SIZE",
        "ROLE_NAME",
        "TORCHELASTIC_RUN_ID",
        "TORCHELASTIC_RESTART_COUNT",
        "TORCHELASTIC_MAX_RESTARTS",
        "TORCHELASTIC_USE_AGENT_STORE",
        MPI_SLOTS,
    }
)
#: what a job that submits another must not pass on: it would report in the wrong name
OF_ONE_ATTEMPT = frozenset(
    {
        "SWELL_URL",
        "SWELL_URL_FINGERPRINT",
        "SWELL_URL_CA",
        "SWELL_JOBS_SOCKET",
        "SWELL_TOKEN",
        "SWELL_DOOR",
        "SWELL_CHECKPOINTS",
        "SWELL_CHECKPOINT",
        "SWELL_WIDTH",
        "SWELL_GRACE_S",
        "SWELL_HOSTFILE",
        "SWELL_CHECKPOINT_EVERY_S",
        "SWELL_STEPS_DONE",
        "SWELL_STEPS_TOTAL",
        "SWELL_SAMPLES_DONE",
        "EPOCHS_DONE",
        "KUBEFLOW_TRAINER_SERVER_URL",
        "KUBEFLOW_TRAINER_SERVER_TOKEN",
    }
)
#: what says who a task is; root finds its own processes again by some of these, so no job may write them. Those of
#: `OF_ONE_RANK` are a job's own where it is told none
IDENTITY = frozenset(
    {
        "SWELL_STORE",
        "SWELL_JOB_ID",
        "SWELL_JOB_NAME",
        "SWELL_ATTEMPT",
        "SWELL_TASK_COUNT",
        "SWELL_TASK_INDEX",
        "SWELL_TENSORBOARD",
        "WORLD_SIZE",
        "NUM_NODES",
        "NODE_RANK",
        "NODELIST",
        "MASTER_ADDR",
        "MASTER_PORT",
        "SWELL_HOSTS",
        "SWELL_SDK",
        "JOB_UUID",
        "JOB_RESTARTED",
        "CUDA_VISIBLE_DEVICES",
    }
)
OURS = OF_ONE_ATTEMPT | IDENTITY  #: a manifest's values of these have no effect
#: of which it is said that a value has no effect; those of `OF_ONE_RANK` have one where a task is told of no ranks
SET_FOR_TASKS = OURS | {"RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "JOB_COMPLETION_INDEX"}
TF_TASKS_MAX = 100  # every task has the addresses of all in TF_CONFIG; of thousands they are megabytes
#: what every task is given unless its user has set it, to anything
DEFAULTS = {"PYTHONUNBUFFERED": "1"}  # a log is a file, of which Python would write blocks of 8 KiB


class Ranks(StrEnum):
    """What the ranks of a job are."""

    TASKS = "tasks"  # each of its tasks is one
    ALONE = "alone"  # its one task is the one rank
    INSIDE = "inside"  # its one task starts them, one for each of its GPUs


def ranks_of(spec: JobSpec) -> Ranks:
    """The same at every width, so that a job finds what it found before it was resized."""
    if not is_alone(spec):
        return Ranks.TASKS
    if spec.kind in RANK_ALONE:
        return Ranks.ALONE
    widest, _ = tasks_at(spec, spec.width_max)[0]
    return Ranks.INSIDE if widest.gpus > 1 else Ranks.ALONE


def is_alone(spec: JobSpec) -> bool:
    """Has it never more than one task that others of it could wait for?"""
    if spec.array is not None:
        return True
    return sum(count for _, count in tasks_at(spec, spec.width_max)) == 1


def several_gpus_notes(spec: JobSpec) -> list[str]:
    """What to say where frameworks would start a rank for each GPU of a task, and find that somebody else did."""
    if spec.launcher is not None or ranks_of(spec) is not Ranks.TASKS:
        return []
    groups = zip(spec.roles, tasks_at(spec, spec.width_max), strict=True)
    gpus = [each.gpus for role, (each, _) in groups if role.command and not mentions_launcher(role.command)]
    most = max(gpus, default=0)
    if most <= 1:
        return []
    note = (
        f"each task is one rank, and with {most} GPUs per task Lightning, Trainer and others leave GPUs or a part of "
        "the data unused unless something starts a rank for each GPU; use torchrun (swell run --torchrun, or launcher: "
        "torchrun in a manifest of swell/v1), or one GPU per task"
    )
    return [note]


def without_effect(names: Iterable[str]) -> list[str]:
    """What to say of variables that a user sets and Swell sets, too."""
    return [f"env {name} has no effect: Swell sets {name} for each task" for name in names if name in SET_FOR_TASKS]


def attempt_variables(
    attempt: AttemptId, *, store: str, name: str, tasks: int, nodes: tuple[str, ...], is_array: bool
) -> dict[str, str]:
    """What all tasks of an attempt see. `name`: of the job; `nodes`: all that the attempt is on."""
    return {
        "SWELL_JOB_ID": str(attempt.job),
        "SWELL_JOB_NAME": name,
        "SWELL_ATTEMPT": str(attempt),
        "SWELL_TASK_COUNT": str(tasks),
        "NUM_NODES": str(len(nodes)),
        "NODELIST": ",".join(nodes),
        "JOB_UUID": job_uuid(store, attempt.job),
        "JOB_RESTARTED": "TRUE" if attempt.number > 1 and not is_array else "FALSE",
    }


def rank_variables(
    ranks: Ranks, *, rank: int, world_size: int, local_rank: int, local_world_size: int, node_rank: int
) -> dict[str, str]:
    """Of one task. `world_size`: tasks; `node_rank`: which of the job's machines it is on."""
    if ranks is Ranks.INSIDE:
        return {"WORLD_SIZE": "1"}
    if ranks is Ranks.ALONE:
        return {"RANK": "0", "WORLD_SIZE": "1"}
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(local_world_size),
        "GROUP_RANK": str(node_rank),
    }
