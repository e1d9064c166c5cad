"""What is an attempt told, and what does each of its ranks run?"""

from __future__ import annotations

import json

import pytest

from controller.stage import Stage
from specs import spec
from swell.controller.reporting import make_token, read_token
from swell.model.job import AttemptId, Dimension, Role
from swell.model.launch import Launch, LaunchRole
from swell.model.launcher import Launcher, launch_words
from swell.model.placement import Company, PlacementRules
from swell.model.resources import Resources
from swell.model.task_environment import Ranks
from swell.store import NewJob

NEVER = 9e9
GENAI = {"dimension": Dimension.GPUS, "width_min": 1, "width_max": 4}


def genai(*command: str, **env: str) -> dict[str, object]:
    role = Role("worker", command, Resources(100, 0, 1), 1, tuple(sorted(env.items())))
    return {**GENAI, "roles": (role,)}


def test_the_first_attempt_begins_at_the_beginning(stage: Stage) -> None:
    job = stage.elastic(1, 4, epochs=20)
    stage.cycle(0.0)
    token = make_token("secret", AttemptId(job, 1), 1000.0 + 365 * 86400)
    assert stage.own(job) == {
        "SWELL_URL": "http://127.0.0.1:1",
        "SWELL_TOKEN": token,
        "SWELL_DOOR": f"http://127.0.0.1:1/d/{token}",
        "SWELL_CHECKPOINTS": f"/checkpoints/{job}",
        "SWELL_CHECKPOINT": "",
        "SWELL_WIDTH": "4",
        "SWELL_GRACE_S": "30",
        "EPOCHS_DONE": "0",
        "EPOCHS_TO_BE_DONE": "20",
        "HEARTBEAT_FREQ": "100",
        "KUBEFLOW_TRAINER_SERVER_URL": f"http://127.0.0.1:1/api/v1/attempts/{job}.1/trainer-status",
    }


def test_it_is_told_how_often_to_save_if_the_job_says(stage: Stage) -> None:
    job = stage.elastic(1, 4, saves_every_s=600.0)
    stage.cycle(0.0)
    assert stage.own(job)["SWELL_CHECKPOINT_EVERY_S"] == "600"


@pytest.mark.parametrize(("path", "told"), [("five.pt", "/mine/five.pt"), (None, "")])
def test_the_next_one_goes_on_from_the_checkpoint(stage: Stage, path: str | None, told: str) -> None:
    """Half an epoch more was done than the whole ones, which the job does again."""
    job = stage.elastic(1, 4, checkpoints="/mine")
    stage.begin(job)
    stage.saved(job, 5.5, seconds=60.0, path=path)
    first = stage.own(job)
    stage.done(stage.controller.requeue(job, by="ann", is_now=False))
    stage.finish(job, 75)
    second = stage.own(job)
    assert (second["EPOCHS_DONE"], second["SWELL_CHECKPOINT"]) == ("5", told)
    assert (first["SWELL_CHECKPOINTS"], second["SWELL_CHECKPOINTS"]) == ("/mine", "/mine")
    assert first["SWELL_TOKEN"] != second["SWELL_TOKEN"]


def test_a_launch_is_the_same_after_a_crash(stage: Stage) -> None:
    job = stage.elastic(1, 4, epochs=20)
    stage.begin(job)
    stage.saved(job, 5.0, seconds=60.0, path="five")
    stage.done(stage.controller.requeue(job, by="ann", is_now=False))
    stage.finish(job, 75)
    before = stage.launch(job)
    stage.restart()
    after = stage.launch(job)
    assert (before.own, before.roles, before.lanes) == (after.own, after.roles, after.lanes)


# -- objects of a cluster ------------------------------------------------------------------------------------


def test_a_launch_names_its_width_its_manifest_and_whether_it_was_seen_to_run(stage: Stage) -> None:
    role = Role("worker", ("train",), Resources(100, 0, 1), 1)
    asked = spec(roles=(role,), dimension=Dimension.GPUS, width_min=1, width_max=4)
    [record] = stage.controller.submit([NewJob(asked, "me", {}, manifest={"kind": "PyTorchJob"})]).result()
    stage.cycle()
    stage.restart()
    assigned = stage.assignment(record.id)
    assert (assigned.width, stage.store.manifest(assigned.manifest)) == (4, {"kind": "PyTorchJob"})
    assert assigned.has_begun is False
    stage.began(record.id, 0)
    stage.cycle()
    stage.restart()
    assert stage.assignment(record.id).has_begun is True


def test_a_job_without_a_manifest_has_none_in_its_launch(stage: Stage) -> None:
    job = stage.gang(2)
    stage.cycle()
    assert (stage.assignment(job).width, stage.assignment(job).manifest) == (2, "")


@pytest.mark.parametrize(("gpus", "share_mib"), [(0, 512), (1, 0)])
def test_only_a_share_of_a_gpu_is_one_in_its_launch(stage: Stage, gpus: int, share_mib: int) -> None:
    """Of a whole GPU that must have so much memory, a cluster's pod was given a share, because both are told of it."""
    job = stage.submit(roles=(Role("worker", ("true",), Resources(1000, 0, gpus, 512), 1),))
    stage.cycle()
    assert stage.assignment(job).shares_mib == (share_mib,)


def test_workers_of_before_can_read_a_launch_as_they_are_told_nothing_new(stage: Stage) -> None:
    job = stage.gang(2)
    stage.cycle()
    launch = stage.launch(job)
    document = launch.to_document()
    assert document.keys() & {"width", "manifest", "has_begun", "shares_mib"} == set()
    read = Launch.from_document(json.loads(json.dumps(document)))
    assert read == launch


def test_the_tasks_of_an_array_report_nothing(stage: Stage) -> None:
    job = stage.array("0-1", 2)
    stage.cycle()
    assert stage.own(job) == {}


# -- genai's manifests ---------------------------------------------------------------------------------------


def test_the_number_of_gpus_follows_the_width_where_a_manifest_asks_for_that(stage: Stage) -> None:
    spec = genai("accelerate", "launch", "--num_processes=1", "train --num_processes=1 -x", NGPU="1", OTHER="1")
    job = stage.submit(**spec, rewrites_width=True)
    stage.cycle()
    command = ("accelerate", "launch", "--num_processes=4", "train --num_processes=4 -x")
    assert stage.launch(job).roles == (LaunchRole(command, (("NGPU", "4"), ("OTHER", "1"))),)


def test_a_fixed_job_starts_as_many_processes_as_its_user_wrote_on_machines_as_in_pods(stage: Stage) -> None:
    """Incident: a Pod of 2 GPUs with --num_processes=1 started 2 processes on a machine and 1 on Kubernetes."""
    spec = genai("accelerate", "launch", "--num_processes=1", NGPU="1")
    job = stage.submit(**spec | {"width_min": 2, "width_max": 2}, rewrites_width=True)
    stage.cycle()
    assert stage.launch(job).roles == (LaunchRole(("accelerate", "launch", "--num_processes=1"), (("NGPU", "2"),)),)


def test_and_nowhere_else(stage: Stage) -> None:
    job = stage.submit(**genai("accelerate", "--num_processes=1", NGPU="1"))
    stage.cycle()
    assert stage.launch(job).roles == (LaunchRole(("accelerate", "--num_processes=1"), (("NGPU", "1"),)),)


# -- launchers ---------------------------------------------------------------------------------------------------


def test_a_launcher_starts_the_command_in_every_attempt_of_any_width(stage: Stage) -> None:
    job = stage.submit(**genai("train.py", "-x"), launcher=Launcher.TORCHRUN)
    stage.cycle()
    launch = stage.launch(job)
    assert launch.roles == (LaunchRole(launch_words(Launcher.TORCHRUN, ("train.py", "-x"))),)
    assert launch.ranks is Ranks.INSIDE


@pytest.mark.parametrize(
    ("resources", "env", "slots"),
    [
        (Resources(3500), (), (("SWELL_MPI_SLOTS", "3"),)),
        (Resources(500), (), (("SWELL_MPI_SLOTS", "1"),)),
        (Resources(4000), (("SWELL_MPI_SLOTS", "2"),), ()),  # the user's own
        (Resources(4000, 0, 2), (), ()),  # a rank for each GPU, of which the task is told
    ],
)
def test_a_task_of_mpi_has_a_slot_for_each_cpu_or_gpu(stage: Stage, resources, env, slots) -> None:
    role = Role("main", ("mpirun", "./solve"), resources, 1)
    job = stage.submit(roles=(role,), width_min=1, width_max=1, env=env, launcher=Launcher.MPI)
    stage.cycle()
    assert stage.launch(job).roles == (LaunchRole(launch_words(Launcher.MPI, role.command), slots),)


# -- roles ---------------------------------------------------------------------------------------------------


def test_every_rank_runs_the_command_of_its_role(stage: Stage) -> None:
    """Two workers at the least, three by what is free; the chief comes after them."""
    worker = Role("worker", ("work",), Resources(1000, 0, 0), 2)
    chief = Role("chief", ("lead",), Resources(1000, 0, 0), 1, (("A", "1"),))
    job = stage.submit(roles=(worker, chief), width_min=2, width_max=8)
    stage.cycle()
    launch = stage.launch(job)
    assert [(lane.number, lane.role) for lane in launch.lanes] == [(0, 0), (1, 0), (2, 0), (3, 1)]
    assert launch.roles == (LaunchRole(("work",)), LaunchRole(("lead",), (("A", "1"),), first_rank=3))
    assert launch.world_size == 4


def test_where_width_is_gpus_every_role_has_as_many_ranks_as_it_says(stage: Stage) -> None:
    master = Role("master", ("lead",), Resources(500, 0, 1), 1)
    worker = Role("worker", ("work",), Resources(500, 0, 1), 1)
    job = stage.submit(roles=(master, worker), dimension=Dimension.GPUS, width_min=1, width_max=2)
    stage.cycle()
    lanes = [(lane.role, lane.devices) for lane in stage.launch(job).lanes]
    assert lanes == [(0, ("g0", "g1")), (1, ("g2", "g3"))]


# -- tokens --------------------------------------------------------------------------------------------------


def test_a_token_tells_whose_it_is() -> None:
    token = make_token("secret", AttemptId(12, 3), NEVER)
    assert read_token("secret", token, 0.0) == AttemptId(12, 3)


def test_a_token_that_is_not_ours_tells_nothing() -> None:
    token = make_token("secret", AttemptId(12, 3), NEVER)
    body, _, signature = token.rpartition(".")
    forged = [
        "",
        "swj",
        "....",
        body,
        f"{body}.",
        f"{body}.{signature[:-1]}",
        f"{body}.{signature}0",
        f"swj.13.3.{int(NEVER)}.{signature}",
        f"swj.12.3.{int(NEVER) + 1}.{signature}",
        token.upper(),
        "\u00e9.\u00e9",
        make_token("another", AttemptId(12, 3), NEVER),
    ]
    assert [read_token("secret", one, 0.0) for one in forged] == [None] * len(forged)


def test_a_token_ends_with_its_time() -> None:
    token = make_token("secret", AttemptId(12, 3), 1000.0)
    assert [read_token("secret", token, now) for now in (1000.0, 1001.0)] == [AttemptId(12, 3), None]


def test_rules_for_a_clusters_nodes_keep_nothing_from_this_machine(stage: Stage) -> None:
    """A worker's machine has no labels: there is nothing that a manifest's selector could mean here."""
    rules = PlacementRules(selector=(("gpu", "a100"),), company=Company.APART)
    job = stage.submit(
        roles=(Role("worker", ("work",), Resources(1000, 0, 0), 2, rules=rules),), width_min=2, width_max=2
    )
    stage.cycle()
    assert (stage.states(job), stage.launch(job).world_size) == (["starting"], 2)


def test_after_a_crash_an_array_still_has_to_do_what_an_earlier_attempt_began_and_did_not_end(stage: Stage) -> None:
    array = stage.array("0-2", 2)
    stage.cycle()
    stage.began(array, 0, 1)
    stage.ended(array, 0)
    stage.run(array)
    stage.cycle()
    stage.run(array, done=True)
    stage.cycle()
    assert (stage.present(array).number, stage.launch(array).indices) == (2, "1,2")
    stage.restart()

    assert stage.launch(array).indices == "1,2"
