"""Which container runtime is here, and how are a run's containers started, asked, ended and found again?

The thin side of `containers.py`: it sends and decides little. What has to be quick (asking a container to end) is
not waited for; what happens once after a crash is.
"""

from __future__ import annotations

import importlib.util
import logging
import shlex
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

from swell.model.container import container_name
from swell.model.job import Container
from swell.model.launch import Launch
from swell.worker import processes, tasks
from swell.worker.containers import (
    Outside,
    Runtime,
    client_variables,
    inside_variables,
    remove_words,
    render_keeper_command,
    render_run,
    render_waiter,
    sources,
)
from swell.worker.environment import OF_ONE_ATTEMPT

KNOWN = ("podman", "docker")
INIT_PROGRAMS = ("/usr/libexec/podman/catatonit", "/usr/lib/podman/catatonit", "/usr/bin/catatonit")
PACKAGES = ("swell_sdk", "kubernetesdlprofile")
ANSWER_S_MAX = 20.0  # a runtime that does not answer for so long does not hold up everything else
NOBODY = (b"\0",)  # a mark that no process has: only the keeper's session is meant

log = logging.getLogger(__name__)


def find_runtime(config: dict[str, Any]) -> Runtime | None:
    """What `swell up` was told, else the first of podman and docker; None: there is none."""
    told = shlex.split(config.get("container_command") or "")
    options = tuple(shlex.split(config.get("container_options") or ""))
    for program, *words in [told] if told else [[name] for name in KNOWN]:
        found = shutil.which(program)
        if found is not None:
            runtime = Runtime((found, *words), options)
            return Runtime(
                runtime.command, options, runtime.is_docker or any(Path(program).exists() for program in INIT_PROGRAMS)
            )
    if told:
        log.warning(
            "the container runtime %r that `swell up` was told is not on PATH; jobs with an image fail", told[0]
        )
    return None


def library() -> tuple[str, ...]:
    """The folders of the in-job library, wherever it is installed; nothing of it is imported."""
    found = [importlib.util.find_spec(name) for name in PACKAGES]
    return tuple(spec.submodule_search_locations[0] for spec in found if spec and spec.submodule_search_locations)


class RunContainers:
    """The containers of one run."""

    def __init__(self, runtime: Runtime, launch: Launch, folder: Path, caller: dict[str, str], store: str) -> None:
        assert launch.container is not None
        self._runtime = runtime
        self._launch, self._container = launch, launch.container
        self._folder = folder
        self._caller = {name: text for name, text in caller.items() if name not in OF_ONE_ATTEMPT}
        self._store = store
        self._asked: dict[int, subprocess.Popen[bytes]] = {}
        self._killed: set[int] = set()

    def name(self, index: int) -> str:
        return container_name(self._store, self._launch.attempt, index)

    def environment(self, variables: dict[str, str]) -> dict[str, str]:
        """Of what runs on the machine for the task: the caller's, and what a container is handed from it."""
        return client_variables(self._caller, variables)

    def prepare(
        self, index: int, command: tuple[str, ...], env: dict[str, str], devices: tuple[str, ...], sockets: Path
    ) -> tuple[tuple[str, ...], dict[str, str]]:
        """What the keeper runs, and its environment. ValueError: it cannot be started here, and why."""
        outside = self._outside(env, sockets)
        refuse_missing(sources(self._container, outside), self._launch.workdir)
        refuse_taken(self._container)
        variables = inside_variables(env, self._container, devices)
        name = self.name(index)
        words = render_run(
            self._runtime,
            self._container,
            outside,
            command,
            name=name,
            label=f"{self._store}/{self._launch.attempt}",
            umask=self._launch.umask,
            devices=devices,
            variables=variables,
        )
        keeper_command = render_keeper_command(self._runtime, str(self._folder / str(index)), name, words)
        return keeper_command, self.environment(variables)

    def _outside(self, env: dict[str, str], sockets: Path) -> Outside:
        token = env.get("KUBEFLOW_TRAINER_SERVER_TOKEN", "")
        return Outside(self._launch.workdir, env.get("SWELL_CHECKPOINTS", ""), token, str(sockets), library())

    def keep_again(self, index: int, lane: int, shared: dict[str, str]) -> int | None:
        """A new keeper for a container whose own was killed: it waits and records. None: there is no container."""
        if not self._call("container", "inspect", self.name(index)):
            return None
        folder = self._folder / str(index)
        env = self.environment({**shared, "SWELL_TASK_INDEX": str(index)})
        script = render_waiter(self._runtime, (folder / "log").stat().st_mtime)
        pid = tasks.spawn(str(folder), lane, (self.name(index),), "/", self._launch.umask, env, script=script)
        for begun in folder.glob("begun.*"):
            begun.rename(folder / f"begun.{pid}.{lane}")  # its time, from which limits count, stays
        return pid

    def ask(self, index: int, keeper: int | None, asked: set[int]) -> None:
        """SIGTERM by name, once. While there is no container yet (its image is fetched), the client is asked."""
        before = self._asked.get(index)
        if before is not None and before.poll() in (None, 0):
            return
        self._asked[index] = self._send("kill", "--signal", "TERM", self.name(index))
        if before is not None and keeper is not None and not self._call("container", "inspect", self.name(index)):
            processes.terminate(keeper, NOBODY, asked)

    def kill(self, index: int) -> bool:
        """SIGKILL by name; False: that was tried, and everything else is due."""
        if index in self._killed:
            self._send(*remove_words(self._runtime), self.name(index))
            return False
        self._killed.add(index)
        self._send("kill", "--signal", "KILL", self.name(index))
        return True

    def remove_all(self, indices: list[int]) -> None:
        """Those that their keepers did not live to remove."""
        left = [self.name(index) for index in indices if not (self._folder / str(index) / "gone").exists()]
        if left:
            self._call(*remove_words(self._runtime), *left)

    def _call(self, *words: str) -> bool:
        """True: it did so."""
        try:
            done = subprocess.run(
                [*self._runtime.command, *words], timeout=ANSWER_S_MAX, check=False, **self._quietly()
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            log.warning("%s %s: %s", self._runtime, words[0], error)
            return False
        return bool(done.returncode == 0)

    def _send(self, *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*self._runtime.command, *words], start_new_session=True, **self._quietly())

    def _quietly(self) -> dict[str, Any]:
        nothing = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return {**nothing, "env": self._caller}


def refuse_missing(paths: tuple[str, ...], workdir: str) -> None:
    for path in paths:
        if not Path(path).exists():
            what = "the job's folder" if path == workdir else "mounts:"
            raise ValueError(f"{what} {path} does not exist on this machine; make it, or name another")


def refuse_taken(container: Container) -> None:
    for port, _ in container.ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError as error:
                raise ValueError(
                    f"ports: {port} of this machine cannot be given to the container: {error.strerror}; choose another"
                ) from error


def failure_text(log_path: Path) -> str:
    """What the runtime said when a container did not come up; nothing else has written to its log."""
    lines = [line for line in log_path.read_text(errors="replace")[-4000:].splitlines() if line.strip()]
    errors = [line for line in lines if "rror" in line]
    return (errors or lines or ["the container runtime did not say why"])[-1].strip()
