"""What a script sees of its place, under Swell and outside; on any Python from 3.9 on."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import swell_sdk
from swell_sdk import Environment, read_environment

SOURCE = Path(swell_sdk.__file__).parent.parent


def test_outside_swell_a_script_is_rank_0_of_1() -> None:
    assert read_environment({}) == Environment(
        job_id=None,
        job_name="",
        attempt=1,
        rank=0,
        world_size=1,
        local_rank=0,
        local_world_size=1,
        node_rank=0,
        num_nodes=1,
        index=0,
        count=1,
        num_gpus=0,
        devices=(),
        master_addr="127.0.0.1",
        master_port=29500,
        restarted=False,
    )
    assert not read_environment({}).is_managed


def test_under_swell_rank_and_count_come_together() -> None:
    told = {
        "SWELL_JOB_ID": "12",
        "SWELL_JOB_NAME": "train",
        "SWELL_ATTEMPT": "12.3",
        "RANK": "1",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "NODE_RANK": "0",
        "NUM_NODES": "1",
        "JOB_COMPLETION_INDEX": "1",
        "SWELL_TASK_COUNT": "2",
        "NUM_GPUS": "1",
        "CUDA_VISIBLE_DEVICES": "GPU-a",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "4711",
        "JOB_RESTARTED": "TRUE",
    }
    assert read_environment(told) == Environment(
        "12", "train", 3, 1, 2, 1, 2, 0, 1, 1, 2, 1, ("GPU-a",), "127.0.0.1", 4711, True
    )


def test_a_variable_that_cannot_be_read_counts_as_absent() -> None:
    assert read_environment({"RANK": "zero", "WORLD_SIZE": "", "SWELL_ATTEMPT": "x"}).rank == 0


def test_it_imports_under_the_systems_own_python_without_any_package() -> None:
    python = shutil.which("python3", path="/usr/bin")
    assert python is not None, "this needs /usr/bin/python3: apt-get install -y python3"
    script = "import swell_sdk; print(swell_sdk.read_environment().world_size)"
    env = {"PYTHONPATH": str(SOURCE), "PATH": "/usr/bin"}
    done = subprocess.run([python, "-S", "-c", script], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
