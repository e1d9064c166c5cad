"""Which variables has a task under Swell that it has not where another system starts it?

docs/environment.md has the table. A writer says which of them it writes; the others are named as lost.
"""

from __future__ import annotations

from collections.abc import Collection

from swell.model.job import Dimension, JobSpec, Role
from swell.model.launcher import MPI_SLOTS, Launcher
from swell.model.task_environment import Ranks, is_alone, ranks_of

OF_RANK = ("RANK",)
OF_RANKS = ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
OF_GANG = ("SWELL_HOSTFILE",)
OF_MPI = (MPI_SLOTS,)
OF_EPOCHS = ("EPOCHS_DONE", "EPOCHS_TO_BE_DONE", "HEARTBEAT_FREQ")
OF_GPU_MEMORY = ("RESERVED_MEM",)
OF_EVERY_TASK = (
    "WORLD_SIZE",
    "NODE_RANK",
    "NUM_NODES",
    "NODELIST",
    "JOB_COMPLETION_INDEX",
    "SWELL_TASK_INDEX",
    "SWELL_TASK_COUNT",
    "MASTER_ADDR",
    "MASTER_PORT",
    "SWELL_HOSTS",
    "NUM_GPUS",
    "CUDA_VISIBLE_DEVICES",
    "PYTHONUNBUFFERED",
    "TF_CONFIG",
    "PL_TORCH_DISTRIBUTED_BACKEND",
    "JOB_RESTARTED",
    "SWELL_JOB_ID",
    "SWELL_JOB_NAME",
)
#: who it is to the server and where that is: nobody else can say it
OF_SWELL = (
    "JOB_UUID",
    "SWELL_ATTEMPT",
    "SWELL_STORE",
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
    "SWELL_CHECKPOINT_EVERY_S",
    "SWELL_SDK",
    "KUBEFLOW_TRAINER_SERVER_URL",
    "KUBEFLOW_TRAINER_SERVER_TOKEN",
)


def told_variables(spec: JobSpec) -> tuple[str, ...]:
    """What the tasks of this job are told under Swell, in the order of the documentation."""
    ranks = ranks_of(spec)
    return (
        *(OF_RANK if ranks is not Ranks.INSIDE else ()),
        *(OF_RANKS if ranks is Ranks.TASKS else ()),
        *OF_EVERY_TASK,
        *(() if is_alone(spec) else OF_GANG),
        *(OF_MPI if spec.launcher is Launcher.MPI else ()),
        *(OF_EPOCHS if spec.epochs else ()),
        *(OF_GPU_MEMORY if any(role.resources.gpu_memory_mib for role in spec.roles) else ()),
        *OF_SWELL,
    )


def lost_variables(spec: JobSpec, written: Collection[str]) -> dict[str, object]:
    """As `lost` takes it."""
    missing = [name for name in told_variables(spec) if name not in written]
    return {f"the variables {', '.join(missing)}": missing}


def gpus_of(spec: JobSpec, role: Role) -> int:
    """Of one task, as narrow as the job may be."""
    is_wide = spec.dimension is Dimension.GPUS and role.resources.gpus
    return spec.width_min if is_wide else role.resources.gpus


def communication_backend(gpus: int) -> str:
    return "nccl" if gpus else "gloo"
