"""How is a task handled that is a container of the user who submitted it?

podman runs rootless, as the user and with their environment, like any command of theirs (`asuser.py`); root never runs
it for them. The user is not trusted, and everything that they run can lie, hang, or never end:

- What became of the container is known by the keeper, which is root's: the script under it tells with its exit code,
  and with one of a few words that the keeper knows. Nothing of the user's is read.
- Whatever is sent to the container (kill, remove) runs in the task's control group as well, and is never waited for.
- The container's processes stay in that group: it is not the user's, so podman cannot make groups of its own.

podman keeps its state under XDG_RUNTIME_DIR. The folder that a login makes goes when its user logs out, so the user has
another one beside the server's socket. It must not outlive a reboot: podman would take the dead for the living.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from swell.machine.library import library_folder, packages_in
from swell.model.launch import Launch
from swell.worker import asuser
from swell.worker.contained import ANSWER_S_MAX, ContainedTasks
from swell.worker.containers import Outside, remove_words, render_user_command, render_user_waiter
from swell.worker.limits import TaskLimits
from swell.worker.machine import Machine
from swell.worker.runtimes import advice, failure_text
from swell.worker.users import UserTasks

REMOVING = "remove"  # the control group of what removes the attempt's containers in the end


class UserContainedTasks(ContainedTasks):
    """See `handling.py` for what each method promises."""

    def __init__(
        self, outer: UserTasks, machine: Machine, launch: Launch, folder: Path, caller: dict[str, str]
    ) -> None:
        super().__init__(outer, machine, launch, folder, caller)
        assert machine.box is not None
        self._processes = outer
        self._box = machine.box
        self._caller.pop("DBUS_SESSION_BUS_ADDRESS", None)  # a session's control groups are not ours
        self._removing: subprocess.Popen[bytes] | None = None  #: None: nothing was to be removed yet
        self._removed_by = 0.0  #: monotonic; then it is no longer waited for

    def environment(self, shared: dict[str, str]) -> dict[str, str]:
        user = self._processes.user
        own = {**user.variables, **super().environment(shared)}
        return {**own, "XDG_RUNTIME_DIR": str(self._box.runtime_folder(user.uid))}

    def _limits(self, lane: int) -> TaskLimits | None:
        return None  # rootless podman can make no groups; what it runs stays in the task's own

    def _refuse(self, outside: Outside) -> None:
        """Not what we could see: root must not tell a user what there is. podman says what they cannot mount."""

    def _library(self) -> tuple[str, ...]:
        """A copy: users may not enter the folders of root in which we may be installed."""
        return packages_in(library_folder(self._box.library))

    def _spawn(self, index: int, lane: int, words: tuple[str, ...], env: dict[str, str]) -> int:
        self._make_runtime_folder()
        command = render_user_command(self._runtime, self.name(index), words)
        return self._processes.start_in("/", index, lane, command, env, keeper=asuser.CONTAINER_KEEPER)

    def _make_runtime_folder(self) -> None:
        """Where only root makes anything, so that nobody can have put a link in the way."""
        user, folder = self._processes.user, self._box.runtime_folder(self._processes.user.uid)
        folder.parent.mkdir(exist_ok=True)
        folder.parent.chmod(0o711)
        folder.mkdir(mode=0o700, exist_ok=True)
        os.chown(folder, user.uid, user.gid, follow_symlinks=False)

    def keep_again(self, index: int, lane: int, shared: dict[str, str]) -> int | None:
        """Without asking first whether there is a container: whoever waits finds that out, and says so."""
        if not self._processes.is_known:
            return None
        env = self.environment({**shared, "SWELL_TASK_INDEX": str(index)})
        command = render_user_waiter(self._runtime, self.name(index))
        pid = self._processes.start_in("/", index, lane, command, env, keeper=asuser.WAITING_KEEPER)
        self._note_keeper(index, lane, pid)
        return pid

    def ask(self, index: int, keeper: int | None, asked: set[int], *, has_ended: bool) -> None:
        super().ask(index, keeper, asked, has_ended=has_ended or not self._processes.is_known)

    def kill(self, index: int, keeper: int | None) -> int | None:
        """By name, so that podman knows; then everybody in the group, podman included."""
        if index in self._killed or not self._processes.is_known:
            return self._outer.kill(index, keeper)
        return super().kill(index, keeper)

    def killed_for_memory(self, index: int) -> int | None:
        return self._processes.killed_for_memory(index)  # its processes are in the task's own group

    def problem(self, index: int, note: str) -> str:
        if note != "container":
            return self._outer.problem(index, note)
        text = failure_text(self._folder / str(index) / "log")
        return text + advice(text, str(self._launch.user))

    def remove(self, indices: Iterable[int]) -> bool:
        if self._removing is None:
            left = self._left_of(indices)
            if not left or not self._processes.is_known:
                return True
            self._removing = self._send(REMOVING, *remove_words(self._runtime), *left)
            self._removed_by = time.monotonic() + ANSWER_S_MAX
        return self._removing.poll() is not None or time.monotonic() >= self._removed_by

    def _send(self, name: int | str, *words: str) -> subprocess.Popen[bytes]:
        marks = {"SWELL_STORE": self._store, "SWELL_ATTEMPT": str(self._launch.attempt)}
        return self._processes.send(name, (*self._runtime.command, *words), self.environment(marks))
