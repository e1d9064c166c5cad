"""How is a task handled that is a process of ours?"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from swell.model.launch import Lane, Launch
from swell.worker import cgroups, limits, processes, tasks, tensorboard
from swell.worker.asuser import enter_argv
from swell.worker.machine import Machine
from swell.worker.tasks import Found

CONTAINER_MIB = 128  # what podman itself takes beside a user's container, in the same control group
KILL_AGAIN_S = 0.1  # a dying group may still fork; look again this soon
PROBLEMS = {
    "workdir": "the working directory {workdir} cannot be entered; it must exist on this machine",
    "fence": "it could not be moved into the control groups that enforce its limits",
    "begun": "its folder under the state folder could not be written (disk full?)",
}


def _marks_of_node(launch: Launch, port: int) -> tuple[bytes, ...]:
    """Two workers of one server may run on one machine, and each ends only the tasks that are its own.

    An array goes from one to the other while it runs, so the rank of a node changes; the port is this run's for ever.
    """
    if launch.is_array:
        return (f"MASTER_PORT={port}".encode(),)
    return (f"NODE_RANK={launch.nodes.index(launch.node)}".encode(),) if len(launch.nodes) > 1 else ()


class PlainTasks:
    """See `handling.py` for what each method promises."""

    kill_again_s = KILL_AGAIN_S

    def __init__(self, machine: Machine, launch: Launch, folder: Path, *, port: int) -> None:
        """`port`: of the run, free on this machine when it began."""
        self._machine = machine
        self._launch = launch
        self._folder = folder
        # A container of ours is kept to its limits by whoever runs it, in groups of its own.
        self._groups = machine.groups if launch.container is None or launch.user is not None else None
        self._marks = (*processes.marks(machine.store, str(launch.attempt)), *_marks_of_node(launch, port))
        self._lanes = {lane.number: lane for lane in launch.lanes}
        self._killed: set[int] = set()  #: processes that were sent SIGKILL

    def take_lanes(self, lanes: Iterable[Lane]) -> None:
        self._lanes = {lane.number: lane for lane in lanes}

    def lane(self, number: int | None) -> Lane | None:
        return None if number is None else self._lanes.get(number)

    def prepare(self, own: dict[str, str]) -> str | None:
        if "SWELL_TOKEN" not in own:
            return ""
        token = self._folder / "token"
        with os.fdopen(os.open(token, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(own["SWELL_TOKEN"])
        with contextlib.suppress(OSError):  # the job finds out for itself, and says so in its own words
            Path(own["SWELL_CHECKPOINTS"]).mkdir(parents=True, exist_ok=True)
        return str(token)

    def write_hostfile(self, text: str) -> str:
        path = self._folder / "hostfile"
        path.write_text(text)
        return str(path)

    def environment(self, shared: dict[str, str]) -> dict[str, str]:
        return shared

    def start_beside(self, argv: Sequence[str], env: dict[str, str]) -> int:
        words = [*enter_argv(self.made_groups(tensorboard.NAME)), *argv]
        return tensorboard.spawn(self._folder, words, self._launch.workdir, env)

    def start(self, index: int, lane: int, command: tuple[str, ...], env: dict[str, str], gpus: tuple[str, ...]) -> int:
        return self.start_in(self._launch.workdir, index, lane, command, env)

    def start_in(self, workdir: str, index: int, lane: int, command: tuple[str, ...], env: dict[str, str]) -> int:
        folder = f"{self._folder}/{index}"
        tasks.claim(folder)  # a claim that stands is our own: inspected, and never begun
        groups = self.made_groups(index, lane)
        return tasks.spawn(folder, lane, command, workdir, self._launch.umask, env, groups=groups)

    def inspect(self, index: int) -> Found:
        return tasks.inspect(self._folder / str(index))

    def keep_again(self, index: int, lane: int, shared: dict[str, str]) -> int | None:
        return None

    def ask(self, index: int, keeper: int | None, asked: set[int], *, has_ended: bool) -> None:
        processes.terminate(keeper, self.marks_of(index), asked, self.confined(index))

    def kill(self, index: int, keeper: int | None) -> int | None:
        return processes.kill(keeper, self.marks_of(index), self.confined(index), self._killed)

    def has_left_nothing(self, keeper: int, index: int) -> bool:
        return processes.group_is_empty(keeper, self.confined(index))

    def bury(self, index: int) -> None:
        if self._groups is not None:
            self._groups.remove(self._group_name(index))

    def problem(self, index: int, note: str) -> str:
        return PROBLEMS.get(note, "").format(workdir=self._launch.workdir)

    def killed_for_memory(self, index: int) -> int | None:
        return None if self._groups is None else limits.killed_for_memory(self._groups, self._group_name(index))

    def confined(self, index: int | None = None) -> processes.Confined | None:
        """Where to look for a task's processes, or all of the attempt's; None: they run as we do, in no group."""
        groups = self._held_in(index)
        return None if groups is None else processes.Confined(os.getuid(), groups)

    def made_groups(self, name: int | str, lane: int | None = None) -> tuple[Path, ...]:
        """Control groups for a task, or for what stands beside them (without a lane), with its limits in place.

        What stands beside them is a program of the user's, too: it may take as much as one task, and no GPU.
        """
        if self._groups is None:
            return ()
        extra = CONTAINER_MIB if self._launch.container is not None else 0
        given = self.lane(lane) or next((replace(one, devices=()) for one in self._launch.lanes), None)
        most = self._machine.limits_of(given, extra_mib=extra)
        return limits.make_groups(self._groups, self._group_name(name), most)

    def _held_in(self, index: int | None) -> tuple[Path, ...] | None:
        if self._groups is None:
            return None
        if index is None:
            return self._groups.all_of(f"{self._launch.attempt}.*")
        return (self._groups.holding(self._group_name(index)),)

    def _group_name(self, name: int | str) -> str:
        return f"{self._launch.attempt}.{name}"

    def marks_of(self, index: int) -> tuple[bytes, ...]:
        return processes.marks(self._machine.store, str(self._launch.attempt), index)

    # -- of the whole attempt --------------------------------------------------------------------------------

    def remove(self, indices: Iterable[int]) -> bool:
        return True

    def members(self, *marks: bytes) -> list[int]:
        if marks and self._groups is not None:  # what stands beside the tasks has a group of its own
            return cgroups.pids(self._groups.holding(self._group_name(tensorboard.NAME)))
        return processes.members(None, (*self._marks, *marks), self.confined())

    def ask_all(self) -> None:
        processes.terminate(None, self._marks, set(), self.confined())

    def kill_all(self) -> None:
        processes.kill(None, self._marks, self.confined(), self._killed)

    def clean_up(self) -> None:
        for group in self._held_in(None) or ():
            assert self._groups is not None
            self._groups.remove(group.name)
