"""`python -m swell.worker.trial STATE [SOCKET]`: does a container start here, as a job's would? For `swell doctor`.

A version says little: an engine may be down, a user may lack the right or the ids, a kernel may refuse. So a container
is started with the words that a task's is started with. Its image is made here, has no program and is not pulled: the
machine's own are mounted. Container and image are removed, however it ends. The answer is JSON.
"""

from __future__ import annotations

import io
import json
import logging
import os
import pwd
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from swell.errors import SwellError
from swell.machine.state_folder import StateFolder
from swell.model.job import Container, Mount
from swell.worker.containers import Outside, Runtime, remove_words, render_run
from swell.worker.runtimes import advice, find_runtime, for_users, last_words

START_S_MAX = 30.0  # a container takes one or two; a runtime that hangs is not waited for
CALL_S_MAX = 10.0
SAID_MAX = 400  # characters of what went wrong
FOLDERS = ("usr", "bin", "lib", "lib64", "dev", "proc", "sys", "etc", "tmp")
PROGRAMS = ("/usr", "/bin", "/lib", "/lib64")
COMMAND = ("/bin/sh", "-c", "id -u")
NOT_FOR_USERS = "access to its engine is equivalent to root, so users of a box server cannot run containers with it"


@dataclass(frozen=True, slots=True)
class TrialResult:
    """How it went."""

    runtime: str = ""  #: the words that run containers; empty: there is nothing that could
    seconds: float = 0.0  #: from asking to its end
    problem: str = ""  #: why none started, in the runtime's words; empty: one did
    following: str = ""  #: what to do about it; empty: nothing that we know of


def main() -> None:
    logging.disable()  # what goes wrong is in the document
    state = StateFolder(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
    print(json.dumps(asdict(try_out(state))))


def try_out(state: StateFolder) -> TrialResult:
    config = _config(state)
    found = find_runtime(config.get("container_command"), config.get("container_options"))
    runtime = found if state.socket is None else for_users(found)
    if runtime is None:
        return (
            TrialResult()
            if found is None
            else TrialResult(str(found), problem=NOT_FOR_USERS, following="install podman")
        )
    env = dict(os.environ)
    if state.socket is not None and state.runtime_folder(os.getuid()).is_dir():
        env["XDG_RUNTIME_DIR"] = str(state.runtime_folder(os.getuid()))
    return ContainerTrial(runtime, env).run()


def _config(state: StateFolder) -> dict[str, Any]:
    """Empty: nobody has set anything, or it is not ours to read."""
    try:
        return dict(state.read_json(state.config))
    except (SwellError, OSError):
        return {}


class ContainerTrial:
    """One container, and everything that is made for it."""

    def __init__(self, runtime: Runtime, env: dict[str, str], *, patience_s: float = START_S_MAX) -> None:
        self._runtime, self._env, self._patience_s = runtime, env, patience_s
        self._name = f"swell-doctor-{os.getpid()}-{os.urandom(4).hex()}"
        self._image = f"localhost/swell-doctor:{self._name}"

    def run(self) -> TrialResult:
        began = time.monotonic()
        try:
            problem = self._imported() or self._started()
        finally:
            self._call(*remove_words(self._runtime), self._name)
            self._call("rmi", "--force", self._image)
        seconds = time.monotonic() - began
        following = what_to_do(problem, self._runtime, pwd.getpwuid(os.getuid()).pw_name) if problem else ""
        return TrialResult(str(self._runtime), round(seconds, 1), problem, following)

    def _imported(self) -> str:
        """What went wrong; empty: nothing."""
        return self._call("import", "-", self._image, stdin=_archive())[1]

    def _started(self) -> str:
        with tempfile.TemporaryDirectory(prefix="swell-doctor-") as folder:
            answer, problem = self._call("run", *self._words(folder), within_s=self._patience_s)
        if problem or answer == str(os.getuid()):
            return problem
        return f"in the container you are user {answer or 'unknown'}, not {os.getuid()}"

    def _words(self, folder: str) -> tuple[str, ...]:
        mounts = tuple(Mount(path, path, is_read_only=True) for path in PROGRAMS if Path(path).exists())
        words = render_run(
            self._runtime,
            Container(self._image, mounts),
            Outside(folder),
            COMMAND,
            name=self._name,
            label="doctor",
            umask=0o022,
            devices=(),
            variables={},
        )
        is_rootless = os.getuid() != 0 and not self._runtime.is_docker
        user = ("--user", f"{os.getuid()}:{os.getgid()}")
        return (*(("--userns", "keep-id") if is_rootless else ()), *user, *words)

    def _call(self, *words: str, stdin: bytes = b"", within_s: float = CALL_S_MAX) -> tuple[str, str]:
        """What it answered, and what went wrong."""
        called = [*self._runtime.command, *words]
        try:
            done = subprocess.run(
                called, input=stdin, capture_output=True, env=self._env, timeout=within_s, check=False
            )
        except subprocess.TimeoutExpired:
            return "", f"{self._runtime} {words[0]} did not end within {within_s:g} s"
        except OSError as error:
            return "", str(error)
        if done.returncode == 0:
            return done.stdout.decode(errors="replace").strip(), ""
        return "", last_words(done.stderr.decode(errors="replace"))[:SAID_MAX] or f"it ended with {done.returncode}"


def _archive() -> bytes:
    """A root folder without a program."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name in FOLDERS:
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
    return made.getvalue()


#: what the runtime says → what to do
KNOWN_PROBLEMS = (
    (
        "rlimit",
        'lower its limits: swell up -d --container-options "--ulimit nofile=20000:20000 --ulimit nproc=10000:10000"',
    ),
    (
        "permission denied while trying to connect",
        "let an administrator add you to the group docker, or install podman",
    ),
    ("dial unix", "let an administrator add you to the group docker, or install podman"),
    ("Cannot connect to the Docker daemon", "start docker's engine (sudo systemctl start docker), or install podman"),
    ("cgroup", 'choose another way: swell up -d --container-command "podman --runtime runc --cgroup-manager cgroupfs"'),
)


def what_to_do(problem: str, runtime: Runtime, user: str) -> str:
    ours = advice(problem, user).removeprefix("; ")
    known: Sequence[str] = [following for words, following in KNOWN_PROBLEMS if words in problem]
    return ours or next(iter(known), f"jobs with an image fail until `{runtime} run` works for {user}")


if __name__ == "__main__":
    main()
