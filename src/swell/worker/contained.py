"""How is a task handled that is a container?

The thin side of `containers.py`: it sends and decides little. What has to be quick (asking a container to end) is
not waited for; what happens once after a crash is. The keeper and everything else outside of the container is
handled as any process would be.
"""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from swell.machine.library import installed_packages
from swell.model.launch import CAUSE_MEMORY, Launch, container_name
from swell.model.task_environment import OF_ONE_ATTEMPT
from swell.worker import processes, tasks
from swell.worker.containers import (
    Outside,
    Runtime,
    client_variables,
    inside_variables,
    needs_socket,
    remove_words,
    render_keeper_command,
    render_run,
    render_waiter,
    sources,
)
from swell.worker.limits import TaskLimits
from swell.worker.machine import Machine
from swell.worker.plain import PlainTasks
from swell.worker.runtimes import failure_text, refuse_missing, refuse_taken
from swell.worker.tasks import Found

ANSWER_S_MAX = 20.0  # a runtime that does not answer for so long does not hold up everything else
KILL_AGAIN_S = 3.0  # a runtime takes its time to end a container
NOBODY = (b"\0",)  # a mark that no process has: only the keeper's session is meant

log = logging.getLogger(__name__)


def _engine_settings(runtime: Runtime) -> dict[str, str]:
    """Which engine docker's client talks to, for a caller who says nothing of it: a job may come by HTTP, or a door."""
    return {name: text for name, text in os.environ.items() if name.startswith("DOCKER_")} if runtime.is_docker else {}


class ContainedTasks:
    """See `handling.py` for what each method promises."""

    kill_again_s = KILL_AGAIN_S

    def __init__(
        self, outer: PlainTasks, machine: Machine, launch: Launch, folder: Path, caller: dict[str, str]
    ) -> None:
        assert launch.container is not None
        assert machine.runtime is not None
        self._machine = machine
        self._outer = outer  #: what is not in the container
        self._runtime = machine.runtime
        self._launch, self._container = launch, launch.container
        self._folder = folder
        self._sockets = machine.sockets
        own = {name: text for name, text in caller.items() if name not in OF_ONE_ATTEMPT}
        self._caller = {**_engine_settings(machine.runtime), **own}
        self._store = machine.store
        self._asked: dict[int, subprocess.Popen[bytes]] = {}
        self._killed: set[int] = set()
        self.prepare, self.take_lanes = outer.prepare, outer.take_lanes
        self.start_beside = outer.start_beside
        self.write_hostfile = outer.write_hostfile
        self.has_left_nothing = outer.has_left_nothing
        self.bury = outer.bury
        self.members = outer.members
        self.kill_all, self.clean_up = outer.kill_all, outer.clean_up

    def name(self, index: int) -> str:
        return container_name(self._store, self._launch.attempt, index)

    def environment(self, shared: dict[str, str]) -> dict[str, str]:
        """The caller's, and what a container is handed from it."""
        return client_variables(self._caller, shared)

    def start(self, index: int, lane: int, command: tuple[str, ...], env: dict[str, str], gpus: tuple[str, ...]) -> int:
        outside = self._outside(env)
        self._refuse(outside)
        refuse_taken(self._container)
        variables = inside_variables(env, self._container, gpus)
        words = render_run(
            self._runtime,
            self._container,
            outside,
            command,
            name=self.name(index),
            label=f"{self._store}/{self._launch.attempt}",
            umask=self._launch.umask,
            devices=gpus,
            variables=variables,
            limits=self._limits(lane),
        )
        return self._spawn(index, lane, words, self.environment(variables))

    def _limits(self, lane: int) -> TaskLimits | None:
        """What its runtime keeps it to; None: we do."""
        return self._machine.limits_of(self._outer.lane(lane))

    def _refuse(self, outside: Outside) -> None:
        refuse_missing(sources(self._container, outside), self._launch.workdir)

    def _spawn(self, index: int, lane: int, words: tuple[str, ...], env: dict[str, str]) -> int:
        command = render_keeper_command(self._runtime, str(self._folder / str(index)), self.name(index), words)
        return self._outer.start_in("/", index, lane, command, env)

    def _outside(self, env: dict[str, str]) -> Outside:
        token = env.get("KUBEFLOW_TRAINER_SERVER_TOKEN", "")
        sockets = str(self._sockets) if self._sockets and needs_socket(env, self._container) else ""
        hosts = env.get("SWELL_HOSTFILE", "")
        return Outside(self._launch.workdir, env.get("SWELL_CHECKPOINTS", ""), token, sockets, self._library(), hosts)

    def _library(self) -> tuple[str, ...]:
        return installed_packages()

    def inspect(self, index: int) -> Found:
        return self._outer.inspect(index)

    def keep_again(self, index: int, lane: int, shared: dict[str, str]) -> int | None:
        """It waits for the container, and records."""
        if not self._exists(index):
            return None
        self._end_clients(index)
        folder = self._folder / str(index)
        env = self.environment({**shared, "SWELL_TASK_INDEX": str(index)})
        script = render_waiter(self._runtime)
        pid = tasks.spawn(str(folder), lane, (self.name(index),), "/", self._launch.umask, env, script=script)
        self._note_keeper(index, lane, pid)
        return pid

    def _end_clients(self, index: int) -> None:
        """docker's may outlive its keeper and go on copying, as the next one's will. OSError: it is not gone yet."""
        before = self.inspect(index).pid if self._runtime.is_docker else None
        if before is not None and processes.end_session(before, self._outer.marks_of(index)):
            raise BlockingIOError(f"the client of {self.name(index)} is being stopped")

    def _exists(self, index: int) -> bool:
        """OSError: docker's engine does not answer, so nobody can say; a container that may live keeps its GPUs."""
        if not self._runtime.is_docker:
            return self._call("container", "inspect", self.name(index))
        found = self._answer("ps", "--all", "--filter", f"name=^{self.name(index)}$", "--format", "{{.Names}}")
        if found is None:
            raise BlockingIOError(f"{self._runtime} does not answer")
        return bool(found)

    def _note_keeper(self, index: int, lane: int, pid: int) -> None:
        folder = self._folder / str(index)
        for begun in folder.glob("begun.*"):
            begun.rename(folder / f"begun.{pid}.{lane}")  # its time, from which limits count, stays

    def ask(self, index: int, keeper: int | None, asked: set[int], *, has_ended: bool) -> None:
        """SIGTERM by name, once. While there is no container yet (its image is fetched), the client is asked."""
        if has_ended:
            self._outer.ask(index, keeper, asked, has_ended=True)
            return
        before = self._asked.get(index)
        if before is not None and before.poll() in (None, 0):
            return
        self._asked[index] = self._send(index, "kill", "--signal", "TERM", self.name(index))
        if before is not None and keeper is not None:
            processes.terminate(keeper, NOBODY, asked)

    def kill(self, index: int, keeper: int | None) -> int | None:
        if index in self._killed:
            self._send(index, *remove_words(self._runtime), self.name(index))
            return self._outer.kill(index, keeper)
        self._killed.add(index)
        self._send(index, "kill", "--signal", "KILL", self.name(index))
        return None

    def killed_for_memory(self, index: int) -> int | None:
        """The keeper's script asks the runtime, before the container goes."""
        return 0 if (self._folder / str(index) / f"cause.{CAUSE_MEMORY}").exists() else None

    def problem(self, index: int, note: str) -> str:
        if note == "container":
            return failure_text(self._folder / str(index) / "log")
        return self._outer.problem(index, note)

    def remove(self, indices: Iterable[int]) -> bool:
        left = self._left_of(indices)
        if left:
            self._call(*remove_words(self._runtime), *left)
        return True

    def ask_all(self) -> None:
        """A client that outlived its keeper is killed: podman's would write into the job's log that its container is
        gone.
        """
        processes.kill_program(Path(self._runtime.command[0]).name, self._outer.members())
        self._outer.ask_all()

    def _left_of(self, indices: Iterable[int]) -> list[str]:
        """Those that their keepers did not live to remove."""
        return [self.name(index) for index in indices if not (self._folder / str(index) / "gone").exists()]

    def _call(self, *words: str) -> bool:
        """True: it did so."""
        return self._answer(*words) is not None

    def _answer(self, *words: str) -> bytes | None:
        """What it prints; None: it refused, or did not answer."""
        called = [*self._runtime.command, *words]
        quietly = {**self._quietly(), "stdout": subprocess.PIPE}
        try:
            done = subprocess.run(called, timeout=ANSWER_S_MAX, check=False, **quietly)
        except (OSError, subprocess.TimeoutExpired) as error:
            log.warning("%s %s: %s", self._runtime, words[0], error)
            return None
        return bytes(done.stdout) if done.returncode == 0 else None

    def _send(self, name: int | str, *words: str) -> subprocess.Popen[bytes]:
        """`name`: whom it is about."""
        return subprocess.Popen([*self._runtime.command, *words], start_new_session=True, **self._quietly())

    def _quietly(self) -> dict[str, Any]:
        nothing = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return {**nothing, "env": self._caller}
