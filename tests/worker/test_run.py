"""What a run says of tasks that cannot be started here, and how long others wait for one that has many."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from swell.machine.log_limit import LogWatch
from swell.model.job import Container
from swell.model.launch import CAUSE_NODE_LOST, CAUSE_START, KEEP, Lane, Launch, LaunchRole, Rendezvous, TaskSeen
from swell.worker import limits, tensorboard
from swell.worker.cgroups import Base, Groups
from swell.worker.limits import TaskLimits
from swell.worker.machine import Alive, Machine
from swell.worker.plain import PlainTasks
from swell.worker.run import ASK_AGAIN_S, Run

from .test_environment import LAUNCH


def test_without_a_runtime_a_job_with_an_image_fails_and_is_told_what_to_do(tmp_path: Path) -> None:
    """The server refuses it before; but it may know of another machine that has one."""
    seen: list[TaskSeen] = []
    machine = Machine("store", "boot", lambda *_: None, seen.append, tmp_path, None)
    launch = replace(LAUNCH, container=Container("python:3.12"), own=())
    run = Run(machine, launch, tmp_path, {}, port=4000)
    run.step(0.0)
    told = (
        "the job has an image, but this machine has neither podman nor docker; install one, then: swell down, swell up"
    )
    assert [(task.index, task.exit_code, task.cause, task.problem) for task in seen] == [
        (0, 125, CAUSE_START, told),
        (1, 125, CAUSE_START, told),
    ]
    assert run.is_finished


def gang(count: int, **changes: Any) -> Launch:
    lanes = tuple(Lane(number, ()) for number in range(count))
    return replace(LAUNCH, own=(), env=(), lanes=lanes, indices=f"0-{count - 1}", world_size=count, **changes)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[Machine, list[Alive]]]:
    """A machine whose runs hear of no end; whatever they began is ended."""
    alive: list[Alive] = []
    machine = Machine("store", "boot", lambda _, __, task: alive.append(task), lambda _: None, tmp_path, None)
    yield machine, alive
    for task in alive:
        assert task.pid is not None
        os.killpg(task.pid, signal.SIGKILL)
        os.waitpid(task.pid, 0)
        task.close()


@pytest.mark.parametrize("name", ["tensorboard", "0", 1])
def test_what_stands_beside_the_tasks_has_the_limits_of_one_and_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: int | str
) -> None:
    """A program that a user calls `tensorboard` took all the memory and all the CPUs of a machine."""
    made: list[tuple[str, TaskLimits]] = []
    monkeypatch.setattr(limits, "make_groups", lambda _, name, most: made.append((name, most)) or ())
    groups = Groups((Base(tmp_path, 2, "/", frozenset({"memory"})),))
    gpus = {"sim-0": (195, 0), "sim-1": (195, 1)}
    machine = Machine("store", "boot", lambda *_: None, print, tmp_path, None, groups=groups, gpus=gpus)
    lanes = (Lane(0, ("sim-0",), 0, 512, 2000, 3000), Lane(1, ("sim-1",), 0, 512, 2000, 3000))
    PlainTasks(machine, replace(LAUNCH, lanes=lanes), tmp_path, port=4000).made_groups(name)
    most = TaskLimits(machine.processes_max, 512, 2000, 3000, ((195, 0), (195, 1)))
    assert made == [(f"{LAUNCH.attempt}.{name}", most)]


def test_the_log_of_a_tensorboard_is_kept_to_its_limit_with_those_of_the_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing looked at it: what printed without end filled the disk."""
    watched: list[Path] = []
    monkeypatch.setattr(LogWatch, "look", lambda watch: watched.append(watch._log))
    machine = Machine("store", "boot", lambda *_: None, print, tmp_path, None)
    launch = replace(LAUNCH, own=(), lanes=(), indices="", tensorboard="runs")
    run = Run(machine, launch, tmp_path, {}, port=4000)
    folder = tmp_path / str(launch.attempt)
    board = tensorboard.Board("http://127.0.0.1:1", None, folder)
    run._board = board
    run.look_at_logs()
    assert watched == [folder / "tensorboard" / "log"]


def test_a_large_gang_begins_in_slices_between_which_others_have_their_turn(tmp_path, watched) -> None:
    """1,500 tasks began in one turn of the worker's loop, which took 35 s, and everybody's jobs waited."""
    machine, alive = watched
    run = Run(machine, gang(5, roles=(LaunchRole(("sleep", "1000")),)), tmp_path, {}, port=4000)
    begun = []
    while run.next_deadline() == 0.0 or not begun:
        run.step(0.0, budget_s=0.0)
        begun.append(len(alive))
    assert (begun, run.left) == ([1, 2, 3, 4, 5], 0)


def test_a_gang_on_two_machines_begins_when_it_is_told_where_to_meet_and_keeps_to_it(tmp_path, watched) -> None:
    machine, alive = watched
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    command = ("sh", "-c", f"echo $MASTER_ADDR:$MASTER_PORT > {gate}; exec sleep 1000")
    launch = gang(1, roles=(LaunchRole(command),), nodes=("a", "b"))
    run = Run(machine, launch, tmp_path, {}, port=4000)
    run.step(0.0)
    assert (len(alive), run.left, run.seen().port, run.is_finished) == (0, 1, 4000, False)
    agreed = Rendezvous(4000, ("10.0.0.1", "10.0.0.2"), (0, 1))
    run.change(replace(launch, rendezvous=agreed), 1.0)
    run.step(1.0)
    assert len(alive) == 1
    assert gate.read_text() == "10.0.0.1:4000\n"
    run.change(launch, 2.0)  # of a server that has just started and has heard of no port
    assert run.launch.rendezvous == agreed


def test_a_worker_ends_no_rank_of_another_worker_on_the_same_machine(tmp_path: Path) -> None:
    """Of two workers that ran the ranks of a gang, the one that was done first ended the other's as a leftover."""
    store = f"store-{os.getpid()}"
    machine = Machine(store, "boot", lambda *_: None, lambda _: None, tmp_path, None)
    launches = [gang(1, nodes=("a", "b"), node=node) for node in ("a", "b")]
    env = {"SWELL_STORE": store, "SWELL_ATTEMPT": str(launches[1].attempt), "NODE_RANK": "1"}
    with subprocess.Popen(["/bin/sleep", "1000"], env=env) as rank:
        try:
            assert [PlainTasks(machine, one, tmp_path, port=4000).members() for one in launches] == [[], [rank.pid]]
        finally:
            rank.kill()


def test_a_worker_ends_no_task_of_an_array_that_went_on_at_another_worker_on_the_same_machine(tmp_path: Path) -> None:
    """The worker that had it alone was told to leave; as it left it ended the tasks that the other had begun by then,
    and the array failed with SIGTERM.
    """
    store = f"store-{os.getpid()}"
    machine = Machine(store, "boot", lambda *_: None, lambda _: None, tmp_path, None)
    alone = gang(1, nodes=("a",), node="a", is_array=True)
    both = gang(1, nodes=("a", "b"), node="b", is_array=True)
    env = {"SWELL_STORE": store, "SWELL_ATTEMPT": str(both.attempt), "NODE_RANK": "1", "MASTER_PORT": "4001"}
    with subprocess.Popen(["/bin/sleep", "1000"], env=env) as task:
        try:
            of_first = PlainTasks(machine, alone, tmp_path, port=4000).members()
            of_second = PlainTasks(machine, both, tmp_path, port=4001).members()
            assert (of_first, of_second) == ([], [task.pid])
        finally:
            task.kill()


def test_its_tasks_are_asked_to_end_in_slices_too_and_none_is_left_out(tmp_path, watched) -> None:
    machine, alive = watched
    run = Run(machine, gang(4, roles=(LaunchRole(("sleep", "1000")),), grace_s=50.0), tmp_path, {}, port=4000)
    run.step(0.0)
    assert len(alive) == 4
    run.change(run.launch.stopped(grace_s=50.0, generation=2), 1.0)
    asked = []
    for _ in alive:
        run.step(1.0, budget_s=0.0)
        asked.append(sorted(path.parent.name for path in tmp_path.glob("*/cause.*")))
    assert asked == [["0"], ["0", "1"], ["0", "1", "2"], ["0", "1", "2", "3"]]
    assert run.next_deadline() == 1.0 + ASK_AGAIN_S


def test_a_lane_that_came_later_has_its_own_limits(tmp_path) -> None:
    """An array that had grown began tasks in lanes whose memory and GPUs nobody had heard of."""
    machine = Machine("store", "boot", lambda *_: None, lambda _: None, tmp_path, None)
    tasks = PlainTasks(machine, gang(1), tmp_path, port=4000)
    tasks.take_lanes((Lane(0, ()), Lane(1, ("sim-1",), memory_mib=64)))
    assert tasks.lane(1) == Lane(1, ("sim-1",), memory_mib=64)
    run = Run(machine, gang(1, is_array=True), tmp_path, {}, port=4000)
    run.change(gang(2, is_array=True), 0.0)
    assert run._handling.lane(1) == Lane(1, ())  # type: ignore[attr-defined]


def test_a_run_of_an_array_that_is_dealt_does_what_it_holds_and_waits_for_more(tmp_path, watched) -> None:
    machine, alive = watched
    launch = gang(1, roles=(LaunchRole(("sleep", "1000")),), is_array=True, is_dealt=True, may_get_more=True)
    run = Run(machine, replace(launch, indices=KEEP), tmp_path, {}, port=4000)
    run.take_up(boot_id="boot", now=0.0)
    run.step(0.0)
    assert (run.left, run.is_finished, run.seen().held) == (0, False, "")
    run.change(replace(launch, indices="3-5"), 1.0)
    run.step(1.0)
    assert ([task.index for task in alive], run.left, run.seen().held) == ([3], 2, "3-5")
    run.change(replace(launch, indices="4"), 2.0)  # 3 has begun, and is asked for too late; 5 was not
    assert (run.left, run.seen().held) == (1, "4")
    run.change(replace(launch, indices=KEEP, may_get_more=False), 3.0)
    assert (run.left, run.seen().held) == (1, "4")


def test_a_worker_that_cannot_become_a_user_does_not_run_their_job_as_itself(tmp_path: Path) -> None:
    seen: list[TaskSeen] = []
    machine = Machine("store", "boot", lambda *_: None, seen.append, tmp_path, None)
    run = Run(machine, gang(1, user="ann", uid=1000), tmp_path, {}, port=4000)
    run.step(0.0)
    [task] = seen
    assert (task.exit_code, task.cause) == (125, CAUSE_START)
    assert task.problem.startswith("it is a job of the user ann of a box server, and the worker on a runs tasks as")


def test_a_run_whose_lease_is_over_is_killed_before_its_long_grace_and_not_again_in_every_turn(
    tmp_path, watched
) -> None:
    """Its job could ask for a grace of a day, and began elsewhere a minute after the lease: two copies ran."""
    machine, alive = watched
    run = Run(machine, gang(1, roles=(LaunchRole(("sleep", "1000")),), grace_s=86400.0), tmp_path, {}, port=4000)
    run.step(0.0)
    run.give_back(CAUSE_NODE_LOST, 1.0, within_s=30.0)
    assert [task.kill_at for task in alive] == [31.0]
    run.give_back(CAUSE_NODE_LOST, 11.0, within_s=20.0)
    assert [task.kill_at for task in alive] == [31.0]
    run.give_back(CAUSE_NODE_LOST, 31.0, within_s=0.0)
    run.step(31.0)
    again_at = [task.kill_at for task in alive]
    run.give_back(CAUSE_NODE_LOST, 31.0, within_s=0.0)
    assert [task.kill_at for task in alive] == again_at
    assert again_at[0] > 31.0


def test_a_run_that_is_stopping_already_has_no_more_time_when_the_lease_is_over(tmp_path, watched) -> None:
    machine, alive = watched
    run = Run(machine, gang(1, roles=(LaunchRole(("sleep", "1000")),)), tmp_path, {}, port=4000)
    run.step(0.0)
    run.change(run.launch.stopped(grace_s=86400.0, generation=2), 1.0)
    run.give_back(CAUSE_NODE_LOST, 2.0, within_s=30.0)
    assert [task.kill_at for task in alive] == [32.0]


def test_a_task_that_was_to_stop_when_its_worker_died_is_stopped_by_the_next(tmp_path, watched) -> None:
    """The worker died between the request to stop and the first step that tells the task: the next never did."""
    machine, _ = watched
    launch = gang(1, roles=(LaunchRole(("sleep", "1000")),))
    Run(machine, launch, tmp_path, {}, port=4000).step(0.0)
    stopping = launch.stopped(grace_s=50.0, generation=2)
    run = Run(replace(machine, watch=lambda *_: None), stopping, tmp_path, {}, port=4000)
    run.take_up(boot_id="boot", now=1.0)
    run.change(stopping, 1.0)
    assert [task.kill_at for task in run.alive.values()] == [51.0]
    for task in run.alive.values():
        task.close()
