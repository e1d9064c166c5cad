"""Who is told of ranks?

The class of mistake: a variable that makes a framework believe in a launcher which is not there. It then trains on its
part of the data only (Lightning 1.5), or waits for ranks that nobody starts (2.2).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from manifests.kubernetes import CONTEXT, GPU, LEAVES_GPUS
from swell.engines.kubernetes.attempt.api_calls import variables
from swell.engines.kubernetes.attempt.wanted import TaskPlace, Wanted
from swell.manifests import native_objects, read_document
from swell.model.job import AttemptId, JobSpec
from swell.model.launch import Lane, Launch, LaunchRole
from swell.model.task_environment import (
    SET_FOR_TASKS,
    Ranks,
    attempt_variables,
    rank_variables,
    ranks_of,
    without_effect,
)
from swell.worker.environment import run_variables, task_variables

NUMBERS = {"rank": 1, "world_size": 3, "local_rank": 1, "local_world_size": 2, "node_rank": 0}
LOCAL = {"LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"}
#: jobs of one task that may hold several GPUs, however they are written
INSIDE: tuple[dict[str, Any], ...] = ({"gpus": 2}, {"gpus": "1..4"}, {"gpus": 2, "array": "0-3"})
ALONE: tuple[dict[str, Any], ...] = (
    {},
    {"gpus": 1},
    {"gpuMemory": "6GiB"},
    {"array": "0-3"},
    {"array": "0", "gpus": 1},
)
SEVERAL: tuple[dict[str, Any], ...] = ({"tasks": 2}, {"tasks": "1..4", "gpus": 1}, {"tasks": 2, "gpus": 2})


def read(**fields: Any) -> JobSpec:
    spec = {"command": ["train"], "image": "python:3.12", **fields}
    document = {"apiVersion": "swell/v1", "kind": "Job", "metadata": {"name": "own"}, "spec": spec}
    return read_document(document, replace(CONTEXT, on_cluster=True))


def on_a_machine(spec: JobSpec, *, gpus: int, tasks: int = 1, rank: int = 0) -> dict[str, str]:
    """What one task sees at that width."""
    lanes = tuple(Lane(number, tuple(f"gpu-{number}-{n}" for n in range(gpus))) for number in range(tasks))
    launch = Launch(
        attempt=AttemptId(7, 1),
        node="a",
        generation=1,
        revision=1,
        name="own",
        roles=(LaunchRole(("train",)),),
        workdir="/",
        umask=0o022,
        environment="e" * 64,
        env=(),
        own=(),
        lanes=lanes,
        indices="0",
        is_array=spec.array is not None,
        world_size=tasks,
        nodes=("a",),
        time_limit_s=None,
        grace_s=30.0,
        ranks=ranks_of(spec),
    )
    shared = run_variables(launch, {}, store="store-id", port=4000)
    return task_variables(shared, launch, launch.roles[0], index=rank, local_rank=rank, devices=lanes[rank].devices)


def in_a_pod(spec: JobSpec, *, gpus: int, width: int) -> dict[str, str]:
    """Of a job in our own notation: what its Secret says, and what its own container says above it."""
    place = TaskPlace("n1", tuple(f"gpu-{number}" for number in range(gpus)), 0)
    wanted = Wanted(
        attempt=AttemptId(7, 1),
        name="own",
        manifest="m",
        width=width,
        revision=1,
        generation=1,
        places={0: place},
        nodes=("n1",),
        shares_mib=(0,),
        is_array=spec.array is not None,
        indices="0",
        own={},
        is_stopping=False,
        grace_s=30.0,
        has_begun=False,
        tasks=1,
        ranks=ranks_of(spec),
    )
    found = native_objects(spec, name="own-7", namespace="lab", width=width, run_as=1000)[0]
    pod = found["spec"]["template"]["spec"] if found["kind"] == "Job" else found["spec"]
    own = {one["name"]: one.get("value", "") for one in pod["containers"][0]["env"]}
    return {**variables(wanted, "01234567-89"), **own}


@pytest.mark.parametrize("fields", INSIDE)
def test_one_task_of_several_gpus_finds_nothing_that_looks_like_a_launcher_at_any_width(fields: dict[str, Any]) -> None:
    spec = read(**fields)
    least = 1 if spec.array else spec.width_min
    for gpus in {least, spec.width_max if not spec.array else 2}:
        width = 1 if spec.array else gpus
        for found in (on_a_machine(spec, gpus=gpus), in_a_pod(spec, gpus=gpus, width=width)):
            assert not found.keys() & {"RANK", *LOCAL}, fields
            assert (found["WORLD_SIZE"], found["NUM_NODES"], found["NUM_GPUS"]) == ("1", "1", str(gpus))


@pytest.mark.parametrize("fields", ALONE)
def test_one_task_of_at_most_one_gpu_is_rank_0_of_1_and_nobody_is_said_to_have_started_it(
    fields: dict[str, Any],
) -> None:
    spec = read(**{name: value for name, value in fields.items() if name != "gpuMemory"})
    gpus = fields.get("gpus", 0)
    for found in (on_a_machine(spec, gpus=gpus), in_a_pod(spec, gpus=gpus, width=1)):
        assert (found["RANK"], found["WORLD_SIZE"]) == ("0", "1")
        assert not found.keys() & LOCAL, "with them Lightning on CPUs would start no rank of its own"


@pytest.mark.parametrize("fields", SEVERAL)
def test_tasks_that_may_be_several_are_told_all_of_it_also_when_there_is_only_one(fields: dict[str, Any]) -> None:
    spec = read(**fields)
    assert ranks_of(spec) is Ranks.TASKS
    one = on_a_machine(spec, gpus=1)
    assert {name: one[name] for name in ("RANK", "WORLD_SIZE", *LOCAL)} == {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": "0",
    }
    second = on_a_machine(spec, gpus=1, tasks=2, rank=1)
    assert (second["RANK"], second["WORLD_SIZE"], second["LOCAL_RANK"]) == ("1", "2", "1")


def test_the_only_replica_of_a_pytorchjob_has_the_rank_that_its_operator_promises() -> None:
    container = {"name": "pytorch", "image": "x", "command": ["train"], "resources": {"limits": {GPU: 2}}}
    replicas = {"Master": {"replicas": 1, "template": {"spec": {"containers": [container]}}}}
    document = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "one"},
        "spec": {"pytorchReplicaSpecs": replicas},
    }
    found = on_a_machine(read_document(document, CONTEXT), gpus=2)
    assert (found["RANK"], found["WORLD_SIZE"], found["MASTER_ADDR"]) == ("0", "1", "127.0.0.1")
    assert not found.keys() & LOCAL


def test_rank_and_count_come_together_wherever_there_is_a_rank() -> None:
    assert {ranks: rank_variables(ranks, **NUMBERS) for ranks in Ranks} == {
        Ranks.TASKS: {
            "RANK": "1",
            "WORLD_SIZE": "3",
            "LOCAL_RANK": "1",
            "LOCAL_WORLD_SIZE": "2",
            "GROUP_RANK": "0",
        },
        Ranks.ALONE: {"RANK": "0", "WORLD_SIZE": "1"},
        Ranks.INSIDE: {"WORLD_SIZE": "1"},
    }


def test_what_swell_sets_of_a_users_variables_is_said():
    """`--env RANK=7` had no effect, and nobody said so."""
    assert without_effect(["A", "RANK", "MY_RANK"]) == ["env RANK has no effect: Swell sets RANK for each task"]


@pytest.mark.parametrize(
    ("fields", "gpus"),
    [
        ({"tasks": 2, "gpus": 2}, 2),
        ({"tasks": "1..4", "gpus": 3}, 3),
        ({"roles": [{"name": "a", "tasks": 2, "gpus": 2, "command": ["train"]}], "command": None}, 2),
        ({"tasks": 2, "gpus": 2, "command": ["python", "torchrun_settings.py"]}, 2),
    ],
)
def test_several_tasks_with_several_gpus_and_no_launcher_are_said_to_leave_gpus_unused(
    fields: dict[str, Any], gpus: int
) -> None:
    """Lightning found LOCAL_RANK, used one GPU of each task and reported success."""
    assert read(**fields).notes == (LEAVES_GPUS.format(gpus),)


@pytest.mark.parametrize(
    "fields",
    [
        {"gpus": 4},
        {"tasks": 2, "gpus": 1},
        {"tasks": 4},
        {"array": "0-3", "gpus": 2},
        {"tasks": 2, "gpus": 2, "launcher": "torchrun"},
        {"tasks": 2, "gpus": 2, "command": ["torchrun", "train.py"]},
        {"tasks": 2, "gpus": 2, "command": ["/opt/venv/bin/accelerate", "launch", "train.py"]},
        {"tasks": 2, "gpus": 2, "command": ["python3", "-m", "torch.distributed.run", "train.py"]},
        {"tasks": 2, "gpus": 2, "command": ["sh", "-c", "cd /data && exec torchrun --nproc_per_node 2 train.py"]},
    ],
)
def test_nothing_is_said_where_each_gpu_has_a_rank_or_something_starts_them(fields: dict[str, Any]) -> None:
    assert read(**fields).notes == ()


def test_all_that_ranks_and_attempts_are_told_is_said_to_be_set():
    ranks = rank_variables(Ranks.TASKS, rank=0, world_size=1, local_rank=0, local_world_size=1, node_rank=0)
    attempt = attempt_variables(AttemptId(1, 1), store="s", name="n", tasks=1, nodes=("a",), is_array=False)
    assert {*ranks, *attempt} <= SET_FOR_TASKS
