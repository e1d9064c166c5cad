"""When a guard ends the tasks of a worker that is gone, and when it leaves them to the next worker."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from swell.machine.worker_folder import WorkerFolder
from swell.worker.guard import LOOK_S, guard

LEASE_S = 10.0
HEARD_AT = 100.0


class World:
    """A worker's folder with one task in it, and a clock that moves while the guard pauses."""

    def __init__(self, root: Path) -> None:
        self.folder = WorkerFolder(root)
        task = self.folder.tasks / "7.1" / "0"
        task.mkdir(parents=True)
        (task / "begun.4711.0").touch()
        self.log: TextIO = (task / "log").open("w")
        fcntl.flock(self.log, fcntl.LOCK_EX)
        self.exit = task / "exit.0"
        self.now = HEARD_AT
        self.pauses: list[float] = []
        self.comes: dict[int, str] = {}  #: after so many pauses
        self.ended_at: list[float] = []
        self.holders: list[bool] = []  #: was the lock held when the tasks were ended?

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        match self.comes.get(len(self.pauses)):
            case "another worker":
                self.lock = self.folder.lock()
            case "sleep":
                self.now += 3600

    def end(self) -> None:
        self.ended_at.append(self.now)
        self.holders.append(self.folder.lock_holder is not None)

    def guard(self) -> None:
        guard(
            self.folder, lambda: HEARD_AT, lease_s=LEASE_S, end_tasks=self.end, now=lambda: self.now, pause=self.pause
        )


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.log.close()


def test_tasks_live_until_the_lease_is_over_and_are_ended_with_the_lock_held(world: World) -> None:
    world.guard()
    assert world.ended_at == [HEARD_AT + LEASE_S + LOOK_S]
    assert (world.holders, world.folder.lock_holder) == ([True], None)


def test_another_worker_in_the_folder_has_the_tasks_from_then_on(world: World) -> None:
    world.comes = {3: "another worker"}
    world.guard()
    assert (world.ended_at, len(world.pauses)) == ([], 3)


def test_a_machine_that_slept_over_the_lease_ends_its_tasks_when_it_wakes(world: World) -> None:
    world.comes = {2: "sleep"}
    world.guard()
    assert (world.ended_at, len(world.pauses)) == ([world.now], 2)


def test_a_worker_that_left_no_living_task_needs_no_guard(world: World) -> None:
    world.exit.touch()
    world.log.close()
    world.guard()
    assert (world.ended_at, world.pauses) == ([], [])


def test_what_a_keeper_that_was_killed_has_left_may_live(world: World) -> None:
    world.log.close()
    world.guard()
    assert len(world.ended_at) == 1


def test_a_lease_that_nobody_has_noted_is_over(world: World) -> None:
    """As for a worker that is started again."""
    world.now = float("inf")
    world.guard()
    assert (len(world.ended_at), world.pauses) == (1, [])
