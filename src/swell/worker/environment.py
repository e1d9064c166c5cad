"""What does a task see in its environment?

The caller's environment, then the job's own variables, then ours: rank and count always together, also for a job
of one task. docs/environment.md has the table.
"""

from __future__ import annotations

from swell.model.launch import Launch

MASTER_ADDR = "127.0.0.1"  # gangs on one machine; several machines bring a name of their own


def run_variables(launch: Launch, caller: dict[str, str], *, store: str, port: int) -> dict[str, str]:
    """What all tasks of a launch share."""
    count = str(launch.world_size)
    world = "1" if launch.is_array else count
    gpus = len(launch.lanes[0].devices) if launch.lanes else 0
    return {
        **caller,
        **dict(launch.env),
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
        "NUM_GPUS": str(gpus),
        "MASTER_ADDR": MASTER_ADDR,
        "MASTER_PORT": str(port),
        "JOB_UUID": f"{store[:8]}-{launch.attempt.job}",
        "JOB_RESTARTED": "TRUE" if launch.attempt.number > 1 and not launch.is_array else "FALSE",
    }


def task_variables(
    shared: dict[str, str], *, index: int, is_array: bool, local_rank: int, devices: tuple[str, ...]
) -> dict[str, str]:
    """What is this task's own. An array's task is rank 0 of 1; its index says which part is its."""
    return {
        **shared,
        "SWELL_TASK_INDEX": str(index),
        "JOB_COMPLETION_INDEX": str(index),
        "RANK": "0" if is_array else str(index),
        "LOCAL_RANK": "0" if is_array else str(local_rank),
        "CUDA_VISIBLE_DEVICES": ",".join(devices),
    }
