"""What a task finds in its environment, beside what the end-to-end tests read there."""

from __future__ import annotations

import json
from dataclasses import replace

from swell.model.job import AttemptId
from swell.model.launch import Lane, Launch, LaunchRole
from swell.model.numbered import Numbered
from swell.model.task_environment import OF_ONE_RANK, Ranks
from swell.worker.environment import run_variables, task_variables

LAUNCH = Launch(
    attempt=AttemptId(7, 2),
    node="a",
    generation=1,
    revision=1,
    name="train",
    roles=(LaunchRole(("true",)),),
    workdir="/",
    umask=0o022,
    environment="e",
    env=(("MINE", "1"),),
    own=(("SWELL_TOKEN", "own"), ("EPOCHS_DONE", "3")),
    lanes=(Lane(0, ("sim-0",)), Lane(1, ("sim-1",))),
    indices="0-1",
    is_array=False,
    world_size=2,
    nodes=("a",),
    time_limit_s=None,
    grace_s=30.0,
)

ARRAY = replace(LAUNCH, is_array=True, ranks=Ranks.ALONE)


def shared(launch: Launch = LAUNCH, **caller: str) -> dict[str, str]:
    return run_variables(launch, caller, store="store-id", port=4000)


def test_a_job_that_submits_another_does_not_pass_its_own_token_on():
    outer = {"SWELL_TOKEN": "outer", "SWELL_URL": "http://outer", "SWELL_CHECKPOINTS": "/outer", "HOME": "/home/ann"}
    inner = shared(**outer)
    assert (inner["SWELL_TOKEN"], inner["HOME"], inner["MINE"]) == ("own", "/home/ann", "1")
    array = shared(replace(LAUNCH, own=(), is_array=True), **outer)
    assert not {"SWELL_TOKEN", "SWELL_URL", "SWELL_CHECKPOINTS"} & array.keys()


def test_every_rank_is_told_where_the_others_are_and_what_it_holds():
    found = task_variables(shared(), LAUNCH, LaunchRole(()), index=1, local_rank=1, devices=("sim-1",))
    workers = ["127.0.0.1:4000", "127.0.0.1:4001"]
    assert json.loads(found["TF_CONFIG"]) == {
        "cluster": {"worker": workers},
        "task": {"type": "worker", "index": 1},
    }
    assert (found["RANK"], found["NUM_GPUS"], found["CUDA_VISIBLE_DEVICES"]) == ("1", "1", "sim-1")
    assert (found["JOB_RESTARTED"], found["EPOCHS_DONE"]) == ("TRUE", "3")


def test_the_backend_is_nccl_only_on_real_gpus():
    backends = [
        task_variables(shared(), LAUNCH, LaunchRole(()), index=0, local_rank=0, devices=devices)
        for devices in ((), ("sim-0",), ("GPU-8f6a",))
    ]
    assert [found["PL_TORCH_DISTRIBUTED_BACKEND"] for found in backends] == ["gloo", "gloo", "nccl"]


def test_a_roles_own_variables_are_added_but_its_rank_is_ours():
    role = (("NGPU", "2"), ("RANK", "9"), ("MASTER_ADDR", "elsewhere"))
    found = task_variables(shared(), LAUNCH, LaunchRole((), role), index=0, local_rank=0, devices=())
    assert (found["NGPU"], found["RANK"], found["MASTER_ADDR"]) == ("2", "0", "127.0.0.1")


def test_numbers_are_counted_within_the_role_and_the_rank_stays_ours():
    """Three jobs of two pods, after another role of four tasks."""
    numbered = (
        Numbered("JOB_COMPLETION_INDEX", wrap=2),
        Numbered("JOB_INDEX", each=2),
        Numbered("JOB_GLOBAL_INDEX", first=4, each=2),
        Numbered("RANK", wrap=2),
    )
    role = LaunchRole((), (("JOB_INDEX", "as text"),), numbered, first_rank=4)
    names = ("JOB_COMPLETION_INDEX", "JOB_INDEX", "JOB_GLOBAL_INDEX", "RANK")
    found = [task_variables(shared(), LAUNCH, role, index=rank, local_rank=rank, devices=()) for rank in range(4, 10)]
    assert [tuple(int(one[name]) for name in names) for one in found] == [
        (0, 0, 4, 4),
        (1, 0, 4, 5),
        (0, 1, 5, 6),
        (1, 1, 5, 7),
        (0, 2, 6, 8),
        (1, 2, 6, 9),
    ]


def test_without_other_word_the_completion_index_is_the_tasks_own():
    role = LaunchRole((), (("JOB_COMPLETION_INDEX", "9"),))
    found = [
        task_variables(shared(JOB_COMPLETION_INDEX="8"), ARRAY, one, index=3, local_rank=0, devices=())
        for one in (LaunchRole(()), role)
    ]
    assert [one["JOB_COMPLETION_INDEX"] for one in found] == ["3", "9"]


def test_what_a_role_runs_survives_the_wire():
    role = LaunchRole(("train",), (("A", "1"),), (Numbered("I", first=2, each=3, wrap=4),), first_rank=5)
    sent = json.dumps(replace(LAUNCH, roles=(role,)).to_document())
    assert Launch.from_document(json.loads(sent)).roles == (role,)


def test_how_its_ranks_are_made_survives_the_wire_and_a_server_that_does_not_say():
    for ranks in Ranks:
        assert Launch.from_document(json.loads(json.dumps(replace(LAUNCH, ranks=ranks).to_document()))).ranks is ranks
    assert "ranks" not in LAUNCH.to_document(), "a worker of before could not read it"
    of_before = {name: value for name, value in ARRAY.to_document().items() if name != "ranks"}
    assert Launch.from_document(of_before).ranks is Ranks.ALONE


def test_python_writes_its_output_at_once_unless_its_user_set_anything_else():
    """A log is a file: without this a print appears with 8 KiB of others, or at the end of the job."""
    assert shared()["PYTHONUNBUFFERED"] == "1"
    assert shared(PYTHONUNBUFFERED="")["PYTHONUNBUFFERED"] == "", "Python takes that for: not set"
    assert shared(replace(LAUNCH, env=(("PYTHONUNBUFFERED", "0"),)))["PYTHONUNBUFFERED"] == "0"
    role = LaunchRole((), (("PYTHONUNBUFFERED", ""),))
    assert task_variables(shared(), LAUNCH, role, index=0, local_rank=0, devices=())["PYTHONUNBUFFERED"] == ""


def test_a_job_submitted_by_a_rank_of_another_launch_does_not_take_itself_for_that_rank():
    """torchrun's own are among them: with them torch would look for a store that is not there."""
    outer = dict.fromkeys(OF_ONE_RANK, "7")
    assert {"RANK", "LOCAL_RANK", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE"} <= outer.keys()
    inside = replace(LAUNCH, ranks=Ranks.INSIDE)
    found = task_variables(shared(inside, **outer), inside, LaunchRole(()), index=0, local_rank=0, devices=("a", "b"))
    assert not outer.keys() & found.keys()
