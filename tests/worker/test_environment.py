"""What a task finds in its environment, beside what the end-to-end tests read there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from swell.model.cluster import BackendJob
from swell.model.job import AttemptId, Numbered
from swell.model.launch import Lane, Launch, LaunchRole, Rendezvous
from swell.model.task_environment import OF_ONE_RANK, TF_TASKS_MAX, Ranks
from swell.worker.environment import (
    CA_CHARACTERS_MAX,
    ServerSeen,
    hostfile,
    image_variables,
    read_ca,
    run_variables,
    task_variables,
    with_image,
)

LAUNCH = Launch(
    attempt=AttemptId(7, 2),
    node="a",
    generation=1,
    revision=1,
    name="train",
    roles=(LaunchRole(("true",)),),
    workdir="/",
    umask=0o022,
    environment="e" * 64,
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


def test_ranks_on_two_machines_are_told_one_place_to_meet_and_where_each_of_them_is():
    meeting = Rendezvous(4100, ("10.0.0.1", "10.0.0.2"), (0, 0, 1))
    launch = replace(LAUNCH, node="b", nodes=("a", "b"), world_size=3, lanes=(Lane(2, ()),), rendezvous=meeting)
    found = task_variables(shared(launch), launch, LaunchRole(()), index=2, local_rank=0, devices=())
    names = ("MASTER_ADDR", "MASTER_PORT", "SWELL_HOSTS", "NODELIST", "NODE_RANK", "NUM_NODES", "RANK", "LOCAL_RANK")
    assert [found[name] for name in names] == ["10.0.0.1", "4100", "10.0.0.1:2,10.0.0.2:1", "a,b", "1", "2", "2", "0"]
    workers = ["10.0.0.1:4100", "10.0.0.1:4101", "10.0.0.2:4102"]
    assert json.loads(found["TF_CONFIG"])["cluster"] == {"worker": workers}


@pytest.mark.parametrize(
    ("addresses", "by_rank", "text"),
    [
        (("10.0.0.1", "10.0.0.2"), (0, 0, 1), "10.0.0.1 slots=2\n10.0.0.2 slots=1\n"),
        (("10.0.0.2", "10.0.0.1"), (0, 1, 1), "10.0.0.2 slots=1\n10.0.0.1 slots=2\n"),
        (("fd00::1", "b.lan"), (0, 1, 0), "fd00::1 slots=2\nb.lan slots=1\n"),
        (("10.0.0.1", "10.0.0.1"), (0, 1, 1), "10.0.0.1 slots=3\n"),  # two workers of one machine
    ],
)
def test_the_hostfile_has_the_slots_of_each_machine_in_the_order_of_ranks(addresses, by_rank, text):
    meeting = Rendezvous(4100, addresses, by_rank)
    assert hostfile(replace(LAUNCH, nodes=("a", "b"), world_size=3, rendezvous=meeting)) == text


def test_the_hostfile_of_a_gang_on_one_machine_has_that_machine():
    assert hostfile(LAUNCH) == "127.0.0.1 slots=2\n"


def test_the_number_of_an_ipv6_host_stands_in_brackets_before_a_colon():
    meeting = Rendezvous(4100, ("fd00::1", "fd00::2"), (0, 1))
    launch = replace(LAUNCH, node="b", nodes=("a", "b"), world_size=2, lanes=(Lane(1, ()),), rendezvous=meeting)
    found = task_variables(shared(launch), launch, LaunchRole(()), index=1, local_rank=0, devices=())
    assert (found["MASTER_ADDR"], found["SWELL_HOSTS"]) == ("fd00::1", "[fd00::1]:1,[fd00::2]:1")
    workers = ["[fd00::1]:4100", "[fd00::2]:4101"]
    assert json.loads(found["TF_CONFIG"])["cluster"] == {"worker": workers}


@pytest.mark.parametrize(("fingerprint", "trust"), [(None, {}), ("ab", {"SWELL_URL_FINGERPRINT": "ab"})])
def test_tasks_elsewhere_are_told_how_their_worker_trusts_the_server(fingerprint, trust, tmp_path):
    ca = tmp_path / "ca.pem"
    ca.write_text("-----BEGIN CERTIFICATE-----\n")
    own = {"SWELL_URL": "http://127.0.0.1:1", "SWELL_DOOR": "http://127.0.0.1:1/d/x", "SWELL_JOBS_SOCKET": "/s"}
    seen = ServerSeen("https://box:8443", fingerprint, read_ca(ca)).variables(own)
    assert seen == {
        "SWELL_URL": "https://box:8443",
        "SWELL_DOOR": "https://box:8443/d/x",
        "SWELL_URL_CA": ca.read_text(),
        **trust,
    }


def test_a_large_bundle_of_certificates_is_told_by_its_path(tmp_path):
    ca = tmp_path / "ca.pem"
    ca.write_text("x" * (CA_CHARACTERS_MAX + 1))
    assert (read_ca(ca), read_ca(None)) == (str(ca), "")


def test_a_gang_of_thousands_is_not_told_all_addresses_in_each_of_its_tasks():
    """Of 1,500 tasks each was told 1,500: the work for a gang grew with the square of its size."""
    launch = replace(LAUNCH, world_size=TF_TASKS_MAX + 1)
    found = task_variables(shared(TF_CONFIG="outer"), launch, LaunchRole(()), index=1, local_rank=1, devices=())
    assert "TF_CONFIG" not in found
    largest = replace(LAUNCH, world_size=TF_TASKS_MAX)
    assert "TF_CONFIG" in task_variables(shared(), largest, LaunchRole(()), index=1, local_rank=1, devices=())


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


IMAGE = {
    "PATH": "/opt/conda/bin:/usr/local/bin:/usr/bin",
    "LD_LIBRARY_PATH": "/usr/local/nvidia/lib64",
    "HOME": "/",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/v2/credentials/1",
    "SWELL_WORKER_TOKEN": "swt.1.secret",
    "HOSTNAME": "ip-10-0-0-1",
    "RANK": "7",
    "LANG": "C.UTF-8",
}


def test_a_job_on_a_worker_in_a_container_finds_the_programs_libraries_and_credentials_of_the_image() -> None:
    """The first job of docs/pools/aws.md ended with "python: not found": PATH was that of somebody's laptop."""
    image = image_variables(IMAGE, BackendJob("aws-batch", "1"))
    caller = {
        "PATH": "/mnt/shared/venv/bin:/usr/bin:/bin",
        "HOME": "/home/nobody-here",
        "TMPDIR": "/run/ann",
        "LANG": "de",
    }
    assert with_image(caller, image) == {
        "PATH": "/mnt/shared/venv/bin:/bin:/opt/conda/bin:/usr/local/bin:/usr/bin",
        "LD_LIBRARY_PATH": "/usr/local/nvidia/lib64",
        "HOME": "/",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/v2/credentials/1",
        "LANG": "de",
    }


def test_a_folder_of_the_caller_that_is_there_in_the_container_stays(tmp_path: Path) -> None:
    caller = {"HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    image = image_variables(IMAGE, BackendJob("kubernetes", "1"))
    assert with_image(caller, image).items() >= caller.items()


@pytest.mark.parametrize("backend", [None, BackendJob("slurm", "17")])
def test_a_worker_that_is_in_no_container_adds_nothing_to_the_callers_environment(backend: BackendJob | None) -> None:
    caller = {"PATH": "/usr/bin", "TMPDIR": "/run/ann"}
    assert with_image(caller, image_variables({**IMAGE, "SLURM_NTASKS": "8"}, backend)) == caller
