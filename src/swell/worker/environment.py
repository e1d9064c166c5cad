"""What does a task see in its environment?

The caller's environment, then the job's own variables, then ours. Which of them speak of ranks is in
`model/task_environment.py`; docs/environment.md has the whole table.
"""

from __future__ import annotations

import json

from swell.model.job import job_uuid
from swell.model.launch import Launch, LaunchRole
from swell.model.task_environment import DEFAULTS, OF_ONE_RANK, rank_variables

#: what a job that submits another must not pass on: it would report in the wrong name
OF_ONE_ATTEMPT = frozenset(
    {
        "SWELL_URL",
        "SWELL_URL_FINGERPRINT",
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
        "JOB_UUID",
        "JOB_RESTARTED",
        "CUDA_VISIBLE_DEVICES",
    }
)
OURS = OF_ONE_ATTEMPT | IDENTITY  #: a manifest's values of these have no effect
MASTER_ADDR = "127.0.0.1"  # gangs on one machine; several machines bring a name of their own


def run_variables(launch: Launch, caller: dict[str, str], *, store: str, port: int) -> dict[str, str]:
    """What all tasks of a launch share."""
    inherited = {name: text for name, text in caller.items() if name not in OF_ONE_ATTEMPT | OF_ONE_RANK}
    return {
        **DEFAULTS,
        **inherited,
        **{name: text for name, text in launch.env if name not in OURS},
        **dict(launch.own),
        "SWELL_STORE": store,
        "SWELL_JOB_ID": str(launch.attempt.job),
        "SWELL_JOB_NAME": launch.name,
        "SWELL_ATTEMPT": str(launch.attempt),
        "SWELL_TASK_COUNT": str(launch.world_size),
        "NUM_NODES": str(len(launch.nodes)),
        "NODE_RANK": str(launch.nodes.index(launch.node)),
        "NODELIST": ",".join(launch.nodes),
        "MASTER_ADDR": MASTER_ADDR,
        "MASTER_PORT": str(port),
        "JOB_UUID": job_uuid(store, launch.attempt.job),
        "JOB_RESTARTED": "TRUE" if launch.attempt.number > 1 and not launch.is_array else "FALSE",
    }


def task_variables(
    shared: dict[str, str],
    launch: Launch,
    role: LaunchRole,
    *,
    index: int,
    local_rank: int,
    devices: tuple[str, ...],
) -> dict[str, str]:
    """What is this task's own. An array's task is alone; its index says which part is its."""
    world_size = 1 if launch.is_array else launch.world_size
    ranks = rank_variables(
        launch.ranks,
        rank=index,
        world_size=world_size,
        local_rank=local_rank,
        local_world_size=len(launch.lanes),
        node_rank=launch.nodes.index(launch.node),
    )
    numbers = {one.name: str(one.of(index - role.first_rank)) for one in role.numbered}
    given = {"JOB_COMPLETION_INDEX": str(index), **dict(role.env), **numbers}
    return {
        **shared,
        **{name: text for name, text in given.items() if name not in OURS},
        "NUM_GPUS": str(len(devices)),
        "PL_TORCH_DISTRIBUTED_BACKEND": "nccl" if devices and not devices[0].startswith("sim-") else "gloo",
        "TF_CONFIG": _tf_config(shared, world_size, 0 if launch.is_array else index),
        "SWELL_TASK_INDEX": str(index),
        "CUDA_VISIBLE_DEVICES": ",".join(devices),
        **ranks,
    }


def _tf_config(shared: dict[str, str], world_size: int, rank: int) -> str:
    """TensorFlow wants every worker's address: the ports from the gang's own upwards."""
    first = int(shared["MASTER_PORT"])
    workers = [f"{shared['MASTER_ADDR']}:{first + n}" for n in range(world_size)]
    return json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})
