"""How is a task handled that is a process of ours?"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from swell.model.launch import Launch
from swell.worker import processes, tasks, tensorboard
from swell.worker.machine import Machine
from swell.worker.tasks import Found

KILL_AGAIN_S = 0.1  # a dying group may still fork; look again this soon
PROBLEMS = {
    "workdir": "the folder {workdir} cannot be entered; it must exist here",
    "begun": "its folder under the state folder could not be written (disk full?)",
}


class PlainTasks:
    """See `handling.py` for what each method promises."""

    kill_again_s = KILL_AGAIN_S

    def __init__(self, machine: Machine, launch: Launch, folder: Path) -> None:
        self._machine = machine
        self._launch = launch
        self._folder = folder
        self._marks = processes.marks(machine.store, str(launch.attempt))

    def prepare(self, own: dict[str, str]) -> str | None:
        if "SWELL_TOKEN" not in own:
            return ""
        token = self._folder / "token"
        with os.fdopen(os.open(token, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(own["SWELL_TOKEN"])
        with contextlib.suppress(OSError):  # the job finds out for itself, and says so in its own words
            Path(own["SWELL_CHECKPOINTS"]).mkdir(parents=True, exist_ok=True)
        return str(token)

    def environment(self, shared: dict[str, str]) -> dict[str, str]:
        return shared

    def start_beside(self, argv: Sequence[str], env: dict[str, str]) -> None:
        tensorboard.spawn(self._folder, argv, self._launch.workdir, env)

    def start(self, index: int, lane: int, command: tuple[str, ...], env: dict[str, str], gpus: tuple[str, ...]) -> int:
        return self.start_in(self._launch.workdir, index, lane, command, env)

    def start_in(self, workdir: str, index: int, lane: int, command: tuple[str, ...], env: dict[str, str]) -> int:
        folder = f"{self._folder}/{index}"
        tasks.claim(folder)  # a claim that stands is our own: inspected, and never begun
        return tasks.spawn(folder, lane, command, workdir, self._launch.umask, env)

    def inspect(self, index: int) -> Found:
        return tasks.inspect(self._folder / str(index))

    def keep_again(self, index: int, lane: int, shared: dict[str, str]) -> int | None:
        return None

    def ask(self, index: int, keeper: int | None, asked: set[int], *, has_ended: bool) -> None:
        processes.terminate(keeper, self._marks_of(index), asked, self.confined(index))

    def kill(self, index: int, keeper: int | None) -> int | None:
        return processes.kill(keeper, self._marks_of(index), self.confined(index))

    def has_left_nothing(self, keeper: int, index: int) -> bool:
        return processes.group_is_empty(keeper, self.confined(index))

    def bury(self, index: int) -> None:
        pass

    def problem(self, index: int, note: str) -> str:
        return PROBLEMS.get(note, "").format(workdir=self._launch.workdir)

    def confined(self, index: int | None = None) -> processes.Confined | None:
        """Where to look for a task's processes, or all of the attempt's; None: they run as we do."""
        return None

    def _marks_of(self, index: int) -> tuple[bytes, ...]:
        return processes.marks(self._machine.store, str(self._launch.attempt), index)

    # -- of the whole attempt --------------------------------------------------------------------------------

    def remove(self, indices: Iterable[int]) -> bool:
        return True

    def members(self, *marks: bytes) -> list[int]:
        return processes.members(None, (*self._marks, *marks), self.confined())

    def ask_all(self) -> None:
        processes.terminate(None, self._marks, set(), self.confined())

    def kill_all(self) -> None:
        processes.kill(None, self._marks, self.confined())

    def clean_up(self) -> None:
        pass
