"""How is a task of this run started, asked, ended and looked at?

Four answers, one interface: a process of ours (`plain.py`), a process of the user who submitted it (`users.py`), a
container of ours (`contained.py`) or of theirs (`usercontained.py`). A `Run` decides what happens and
when, and never asks which of them it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from swell.model.launch import Lane, Launch
from swell.worker.contained import ContainedTasks
from swell.worker.machine import Machine
from swell.worker.plain import PlainTasks
from swell.worker.tasks import Found
from swell.worker.usercontained import UserContainedTasks
from swell.worker.users import UserTasks


class Handling(Protocol):
    """Of the tasks of one run."""

    kill_again_s: float  #: what was killed may still fork, or take its time; look again this soon

    def take_lanes(self, lanes: Iterable[Lane]) -> None:
        """Those that tasks begin in from now on, and what each may take."""

    def prepare(self, own: dict[str, str]) -> str | None:
        """What they find when they begin: a folder for checkpoints, and a file with the token, whose name it returns.

        Empty: they have none. None: whoever they are for is not known here, and gets nothing.
        """

    def write_hostfile(self, text: str) -> str:
        """For the tasks of a gang, who may read it: its path."""

    def environment(self, shared: dict[str, str]) -> dict[str, str]:
        """Of what runs on the machine beside them."""

    def start_beside(self, argv: Sequence[str], env: dict[str, str]) -> int:
        """A program of the job's that is none of its tasks, and ends with the attempt. Its pid, or its keeper's."""

    def start(self, index: int, lane: int, command: tuple[str, ...], env: dict[str, str], gpus: tuple[str, ...]) -> int:
        """The keeper's pid. ValueError, OSError: it cannot be started here, and why."""

    def inspect(self, index: int) -> Found:
        """What became of it?"""

    def keep_again(self, index: int, lane: int, shared: dict[str, str]) -> int | None:
        """Another keeper for what has outlived its own; None: nothing has that could tell its code."""

    def ask(self, index: int, keeper: int | None, asked: set[int], *, has_ended: bool) -> None:
        """To end, everybody once; `has_ended`: the task has, and what it left behind is meant."""

    def kill(self, index: int, keeper: int | None) -> int | None:
        """How many were still there; None: it was ended by name first, and everything else is due next time."""

    def has_left_nothing(self, keeper: int, index: int) -> bool:
        """Does nothing live any more of a task whose keeper has ended?"""

    def bury(self, index: int) -> None:
        """It is over."""

    def killed_for_memory(self, index: int) -> int | None:
        """MiB that it had when it was killed for using more than its limit, 0 if nobody knows; None: it was not."""

    def problem(self, index: int, note: str) -> str:
        """Why it did not start, in words; empty: it did."""

    # -- of the whole attempt --------------------------------------------------------------------------------

    def remove(self, indices: Iterable[int]) -> bool:
        """What those that have ended may have left beside processes; False: it is being done, ask again."""

    def members(self, *marks: bytes) -> list[int]:
        """Every process of the attempt that lives, wherever it went; of those that carry marks, with these as well."""

    def ask_all(self) -> None: ...

    def kill_all(self) -> None: ...

    def clean_up(self) -> None:
        """Nothing lives any more."""


def handling_of(machine: Machine, launch: Launch, folder: Path, caller: dict[str, str], *, port: int) -> Handling:
    is_contained = launch.container is not None and machine.runtime is not None
    if launch.user is not None and machine.box is not None:  # otherwise nothing of it is started (`run.py`)
        users = UserTasks(machine, launch, folder, port=port)
        return UserContainedTasks(users, machine, launch, folder, caller) if is_contained else users
    plain = PlainTasks(machine, launch, folder, port=port)
    return ContainedTasks(plain, machine, launch, folder, caller) if is_contained else plain


def refuse_user(launch: Launch, machine: Machine) -> None:
    """A worker that is not root's cannot become the user whose job it is."""
    if launch.user is not None and machine.box is None:
        raise ValueError(
            f"it is a job of the user {launch.user} of a box server, and the worker on {launch.node} runs tasks as "
            "itself; run it on the machine of the box server"
        )
