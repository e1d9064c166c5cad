"""What does a task see in its environment?

The caller's environment, then the job's own variables, then ours: rank and count always together, also for a job
of one task. docs/environment.md has the table.
"""

from __future__ import annotations

import json

from swell.model.job import job_uuid
from swell.model.launch import Launch, LaunchRole

#: what a job that submits another must not pass on: it would report in the wrong name
OF_ONE_ATTEMPT = frozenset(
    {
        "SWELL_URL",
        "SWELL_JOBS_SOCKET",
        "SWELL_TOKEN",
        "SWELL_DOOR",
        "SWELL_CHECKPOINTS",
        "SWELL_CHECKPOINT",
        "SWELL_WIDTH",
        "SWELL_GRACE_S",
        "EPOCHS_DONE",
        "KUBEFLOW_TRAINER_SERVER_URL",
        "KUBEFLOW_TRAINER_SERVER_TOKEN",
    }
)
OURS = frozenset({"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES"})
MASTER_ADDR = "127.0.0.1"  # gangs on one machine; several machines bring a name of their own


def run_variables(launch: Launch, caller: dict[str, str], *, store: str, port: int) -> dict[str, str]:
    """What all tasks of a launch share."""
    count = str(launch.world_size)
    world = "1" if launch.is_array else count
    return {
        **{name: text for name, text in caller.items() if name not in OF_ONE_ATTEMPT},
        **dict(launch.env),
        **dict(launch.own),
        "SWELL_STORE": store,
        "SWELL_JOB_ID": str(launch.attempt.job),
        "SWELL_JOB_NAME": launch.name,
        "SWELL_ATTEMPT": str(launch.attempt),
        "SWELL_TASK_COUNT": count,
        "WORLD_SIZE": world,
        "LOCAL_WORLD_SIZE": "1" if launch.is_array else str(len(launch.lanes)),
        "NUM_NODES": str(len(launch.nodes)),
        "NODE_RANK": str(launch.nodes.index(launch.node)),
        "GROUP_RANK": str(launch.nodes.index(launch.node)),
        "NODELIST": ",".join(launch.nodes),
        "MASTER_ADDR": MASTER_ADDR,
        "MASTER_PORT": str(port),
        "JOB_UUID": job_uuid(store, launch.attempt.job),
        "JOB_RESTARTED": "TRUE" if launch.attempt.number > 1 and not launch.is_array else "FALSE",
    }


def task_variables(
    shared: dict[str, str],
    role: LaunchRole,
    *,
    index: int,
    is_array: bool,
    local_rank: int,
    devices: tuple[str, ...],
) -> dict[str, str]:
    """What is this task's own. An array's task is rank 0 of 1; its index says which part is its."""
    numbers = {one.name: str(one.of(index - role.first_rank)) for one in role.numbered}
    given = {"JOB_COMPLETION_INDEX": str(index), **dict(role.env), **numbers}
    return {
        **shared,
        **{name: text for name, text in given.items() if name not in OURS},
        "NUM_GPUS": str(len(devices)),
        "PL_TORCH_DISTRIBUTED_BACKEND": "nccl" if devices and not devices[0].startswith("sim-") else "gloo",
        "TF_CONFIG": _tf_config(shared, 0 if is_array else index),
        "SWELL_TASK_INDEX": str(index),
        "RANK": "0" if is_array else str(index),
        "LOCAL_RANK": "0" if is_array else str(local_rank),
        "CUDA_VISIBLE_DEVICES": ",".join(devices),
    }


def _tf_config(shared: dict[str, str], rank: int) -> str:
    """TensorFlow wants every worker's address: the ports from the gang's own upwards."""
    first = int(shared["MASTER_PORT"])
    workers = [f"{shared['MASTER_ADDR']}:{first + n}" for n in range(int(shared["WORLD_SIZE"]))]
    return json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})
