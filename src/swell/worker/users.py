"""How is a task handled that is a process of the user who submitted it?

As one of ours, but for how it becomes theirs (`asuser.py`) and where it is looked for: in its control group, which it
cannot leave. What is made for the user is made in folders where only root makes anything, so that nobody can have
put a link in the way.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from swell.machine.users import User, user_of_job
from swell.model.launch import Launch
from swell.worker import asuser, processes, tasks, tensorboard
from swell.worker.machine import Machine
from swell.worker.plain import PlainTasks
from swell.worker.tasks import Found, Status


class UserTasks(PlainTasks):
    """See `handling.py` for what each method promises."""

    def __init__(self, machine: Machine, launch: Launch, folder: Path, *, port: int) -> None:
        super().__init__(machine, launch, folder, port=port)
        assert launch.user is not None
        assert launch.uid is not None
        assert machine.box is not None
        self._box = machine.box
        self._uid = launch.uid
        self._found: User | None = user_of_job(launch.user, launch.uid)  #: None: the account is gone
        self._tensorboard_keeper: int | None = None  #: None: it is not a child of ours

    @property
    def is_known(self) -> bool:
        return self._found is not None

    @property
    def user(self) -> User:
        if self._found is None:
            raise ValueError(
                f"the user {self._launch.user} (uid {self._uid}), who submitted it, no longer exists on this machine"
            )
        return self._found

    def prepare(self, own: dict[str, str]) -> str | None:
        if self._found is None:
            return None  # the tasks' own start says so
        if "SWELL_TOKEN" not in own:
            return ""
        token = self._hand(str(self._launch.attempt), own["SWELL_TOKEN"])
        checkpoints = Path(own["SWELL_CHECKPOINTS"])
        if checkpoints == self._box.checkpoints / str(self._launch.attempt.job):  # any other is theirs to make
            checkpoints.mkdir(mode=0o700, exist_ok=True)
            os.chown(checkpoints, self._found.uid, self._found.gid, follow_symlinks=False)
        return token

    def write_hostfile(self, text: str) -> str:
        return self._hand(f"{self._launch.attempt}.hosts", text)

    def _hand(self, name: str, text: str) -> str:
        """A file that the user may read, and nobody else."""
        path, user = self._box.tokens / name, self.user
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400), "w") as file:
            file.write(text)
            os.fchown(file.fileno(), user.uid, user.gid)
        return str(path)

    def start_beside(self, argv: Sequence[str], env: dict[str, str]) -> int:
        keeper = self.start_in(self._launch.workdir, tensorboard.NAME, None, tuple(argv), env)
        self._tensorboard_keeper = keeper
        return keeper

    def start_in(
        self,
        workdir: str,
        index: int | str,
        lane: int | None,
        command: tuple[str, ...],
        env: dict[str, str],
        *,
        keeper: str = asuser.KEEPER,
    ) -> int:
        user, folder = self.user, f"{self._folder}/{index}"
        tasks.claim(folder)
        groups, umask = self.made_groups(index, lane), self._launch.umask
        return asuser.spawn(folder, lane or 0, command, workdir, umask, env, user, groups, keeper=keeper)

    def send(self, name: int | str, command: tuple[str, ...], env: dict[str, str]) -> subprocess.Popen[bytes]:
        """A command about a task, or about them all, in a control group of that name."""
        return asuser.send(command, env, self.user, self._standing_groups(name))

    def _standing_groups(self, name: int | str) -> tuple[Path, ...]:
        """Those of the task that it is about, as they are; where there are none yet, some without a task's limits."""
        held = (
            () if self._groups is None else tuple(base.folder / self._group_name(name) for base in self._groups.bases)
        )
        return tuple(group for group in held if group.is_dir()) or self.made_groups(name)

    def inspect(self, index: int) -> Found:
        """As its folder says. One whose keeper was killed lives on as long as its control group holds somebody."""
        found = super().inspect(index)
        is_unsure = found.status is Status.ENDED and found.note == "keeper"
        if is_unsure and found.pid is not None and not self.has_left_nothing(found.pid, index):
            return replace(found, status=Status.ALIVE, note="")
        return found

    def confined(self, index: int | None = None) -> processes.Confined | None:
        return processes.Confined(self._uid, self._held_in(index))

    def clean_up(self) -> None:
        super().clean_up()
        if self._tensorboard_keeper is not None:
            processes.reap(self._tensorboard_keeper)
        for name in (str(self._launch.attempt), f"{self._launch.attempt}.hosts"):
            (self._box.tokens / name).unlink(missing_ok=True)
