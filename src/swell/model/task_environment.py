"""Which variables tell a task what it is among the ranks of its job?

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

from enum import StrEnum

from swell.model.job import Dimension, JobSpec

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
    }
)
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
    if spec.kind == "PyTorchJob":  # its operator tells RANK also to the only replica, whatever that holds
        return Ranks.ALONE
    most = spec.width_max if spec.dimension is Dimension.GPUS else spec.roles[0].resources.gpus
    return Ranks.INSIDE if most > 1 else Ranks.ALONE


def is_alone(spec: JobSpec) -> bool:
    """Has it never more than one task that others of it could wait for?"""
    if spec.array is not None:
        return True
    most = spec.width_max if spec.dimension is Dimension.TASKS else spec.roles[0].count
    return most + sum(role.count for role in spec.roles[1:]) == 1


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
