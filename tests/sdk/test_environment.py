"""What a script sees of its place, under Swell and outside; on any Python from 3.9 on."""

from __future__ import annotations

import ast
from pathlib import Path

from swell_sdk import Environment, read_environment

from .scripts import SDK, Script


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
        url="",
        token="",
        attempt_id="",
        checkpoints="",
        checkpoint="",
        width=1,
        grace_s=30.0,
        epochs_done=0,
        epochs_total=None,
    )
    assert not read_environment({}).is_managed
    assert not read_environment({}).can_report


def test_under_swell_rank_and_count_come_together() -> None:
    told = {
        "SWELL_JOB_ID": "12",
        "SWELL_JOB_NAME": "train",
        "SWELL_ATTEMPT": "12.3",
        "SWELL_URL": "http://127.0.0.1:1",
        "SWELL_TOKEN": "t",
        "SWELL_CHECKPOINTS": "/c",
        "SWELL_CHECKPOINT": "/c/5",
        "SWELL_WIDTH": "2",
        "SWELL_GRACE_S": "7.5",
        "EPOCHS_DONE": "5",
        "EPOCHS_TO_BE_DONE": "9",
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
        *("12", "train", 3, 1, 2, 1, 2, 0, 1, 1, 2, 1, ("GPU-a",), "127.0.0.1", 4711, True),
        url="http://127.0.0.1:1",
        token="t",
        attempt_id="12.3",
        checkpoints="/c",
        checkpoint="/c/5",
        width=2,
        grace_s=7.5,
        epochs_done=5,
        epochs_total=9,
    )
    assert read_environment(told).can_report


def test_a_variable_that_cannot_be_read_counts_as_absent() -> None:
    seen = read_environment({"RANK": "zero", "WORLD_SIZE": "", "SWELL_ATTEMPT": "x", "EPOCHS_TO_BE_DONE": "many"})
    assert (seen.rank, seen.world_size, seen.attempt, seen.epochs_total) == (0, 1, 1, None)


def test_the_token_is_not_printed_with_the_rest() -> None:
    assert "hunter2" not in repr(read_environment({"SWELL_TOKEN": "hunter2"}))


def test_it_imports_and_runs_under_the_systems_own_python(tmp_path: Path) -> None:
    text = """
    import swell_sdk
    from kubernetesdlprofile import kubeprofiler
    run = swell_sdk.attach()
    for epoch in run.epochs(total=2):
        for batch in run.steps([1, 2, 3]):
            pass
        print(run.save(lambda path: open(path, "w").write("x")))
    kubeprofiler.KubeProfiler().measure()
    """
    assert Path("/usr/bin/python3").exists(), "this needs /usr/bin/python3: apt-get install -y python3"
    code, out, err = Script(text, {}, tmp_path, python="/usr/bin/python3").end()
    saved = [f"{tmp_path}/checkpoints/attempt-1-epoch-{number}" for number in (1, 2)]
    assert (code, out.split(), err) == (0, saved, "")


def test_its_source_is_python_3_9() -> None:
    read = [ast.parse(path.read_text(), feature_version=(3, 9)) for path in sorted(SDK.rglob("*.py"))]
    assert all(module.body for module in read)
