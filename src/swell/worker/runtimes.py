"""Which container runtime is here, and what would keep a container from starting?"""

from __future__ import annotations

import importlib.util
import logging
import os
import shlex
import shutil
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

from swell.model.job import Container
from swell.worker.containers import Runtime

KNOWN = ("podman", "docker")
INIT_PROGRAMS = ("/usr/libexec/podman/catatonit", "/usr/lib/podman/catatonit", "/usr/bin/catatonit")
SAID_BYTES = 4000  # of the end of a log, which may be long
DOCKERS_ADVICE = "'docker run --help'"  # in the last line, after what went wrong
SUBORDINATE_IDS = Path("/etc/subuid")
RANGE = 65536  # ids that one user's containers need
PACKAGES = ("swell_sdk", "kubernetesdlprofile")

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


def for_users(runtime: Runtime | None) -> Runtime | None:
    """What runs the containers of a box server's users. None: nothing here can do that.

    Whoever may talk to docker's engine is root, and what it runs is nobody's process. Without a session podman has no
    systemd to ask for control groups.
    """
    if runtime is None or any(word.startswith("--cgroup-manager") for word in runtime.command):
        return runtime
    if runtime.is_docker:
        log.warning("docker cannot run containers as the users of a box server; install podman")
        return None
    return replace(runtime, command=(*runtime.command, "--cgroup-manager", "cgroupfs"))


def library() -> tuple[str, ...]:
    """The folders of the in-job library, wherever it is installed; nothing of it is imported."""
    found = [importlib.util.find_spec(name) for name in PACKAGES]
    return tuple(spec.submodule_search_locations[0] for spec in found if spec and spec.submodule_search_locations)


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
        with open(log_path, "rb", opener=_without_waiting) as file:
            file.seek(max(0, log_path.stat().st_size - SAID_BYTES))
            return last_words(file.read(SAID_BYTES).decode(errors="replace")) or unknown
    except OSError:
        return unknown


def _without_waiting(path: str, flags: int) -> int:
    """The log may be its user's own, who can hold a lease on it: whoever opens it then waits for 45 s."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)


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
