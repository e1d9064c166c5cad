"""Which container runtime is here, and what would keep a container from starting?"""

from __future__ import annotations

import logging
import shlex
import shutil
import socket
from dataclasses import replace
from pathlib import Path

from swell.machine.users import open_without_waiting
from swell.model.job import Container
from swell.model.launch import RUNTIMES, runtime_name, words_for_users
from swell.worker.containers import Runtime

INIT_PROGRAMS = ("/usr/libexec/podman/catatonit", "/usr/lib/podman/catatonit", "/usr/bin/catatonit")
SAID_BYTES = 4000  # of the end of a log, which may be long
DOCKERS_ADVICE = "'docker run --help'"  # in the last line, after what went wrong
SUBORDINATE_IDS = Path("/etc/subuid")
RANGE = 65536  # ids that one user's containers need

log = logging.getLogger(__name__)


def find_runtime(command: str | None, container_options: str | None) -> Runtime | None:
    """What the worker was told, else the first of podman and docker; None: there is none."""
    told = shlex.split(command or "")
    options = tuple(shlex.split(container_options or ""))
    if told and runtime_name(told[0]) is None:
        log.warning("the container command %r is neither podman nor docker; jobs with an image fail", told[0])
        return None
    for program, *words in [told] if told else [[name] for name in RUNTIMES]:
        found = shutil.which(program)
        if found is not None:
            runtime = Runtime((found, *words), options)
            return Runtime(
                runtime.command, options, runtime.is_docker or any(Path(program).exists() for program in INIT_PROGRAMS)
            )
    if told:
        log.warning(
            "the container runtime %r that was given to `swell up` is not on PATH; jobs with an image fail", told[0]
        )
    return None


def for_users(runtime: Runtime | None) -> Runtime | None:
    """What runs the containers of a box server's users. None: nothing here can do that.

    Whoever may talk to docker's engine is root, and what it runs is nobody's process.
    """
    if runtime is None:
        return None
    if runtime.is_docker:
        log.warning("docker cannot run containers as the users of a box server; install podman")
        return None
    return replace(runtime, command=tuple(words_for_users(runtime.command)))


def refuse_without(runtime: Runtime | None, *, is_box: bool) -> None:
    if runtime is None and is_box:
        raise ValueError(
            "the job has an image, but this machine has no podman, and docker cannot run containers as their users; "
            "have the administrator install podman and restart the service"
        )
    if runtime is None:
        raise ValueError(
            "the job has an image, but this machine has neither podman nor docker; install one, then: "
            "swell down, swell up"
        )


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
    unknown = "the container runtime did not say why"
    try:
        with open(log_path, "rb", opener=open_without_waiting) as file:
            file.seek(max(0, log_path.stat().st_size - SAID_BYTES))
            return last_words(file.read(SAID_BYTES).decode(errors="replace")) or unknown
    except OSError:
        return unknown


def last_words(said: str) -> str:
    """The line that says what went wrong; empty: there is none."""
    lines = [line.strip() for line in said.splitlines() if line.strip() and DOCKERS_ADVICE not in line]
    errors = [line for line in lines if "rror" in line]
    return (errors or lines or [""])[-1]


def advice(said: str, user: str) -> str:
    """What an administrator must do before this user can run containers; empty: nothing that we know of."""
    if "/etc/subuid" in said or "insufficient UIDs" in said:
        taken = SUBORDINATE_IDS.read_text() if SUBORDINATE_IDS.exists() else ""
        first = free_range(taken)
        ids = f"{first}-{first + RANGE - 1}"
        return (
            f"; {user} has no subordinate user ids, which containers need; the administrator gives them with: "
            f"usermod --add-subuids {ids} --add-subgids {ids} {user}"
        )
    if "newuidmap" in said:
        return "; the administrator must install newuidmap (Debian: apt-get install -y uidmap)"
    if "/run/user/" in said:
        keep = f"loginctl enable-linger {user}"
        return f"; {user}'s podman wants the folder that a login makes; the administrator keeps it with: {keep}"
    return ""


def free_range(taken: str) -> int:
    """The first id after all ranges that users have; `taken`: lines of /etc/subuid."""
    fields = [line.split(":") for line in taken.splitlines()]
    ends = [
        int(part[1]) + int(part[2]) for part in fields if len(part) == 3 and part[1].isdigit() and part[2].isdigit()
    ]
    return max([100000, *ends])
