"""Which container runtime is here, and what would keep a container from starting?"""

from __future__ import annotations

import importlib.util
import logging
import shlex
import shutil
import socket
from pathlib import Path
from typing import Any

from swell.model.job import Container
from swell.worker.containers import Runtime

KNOWN = ("podman", "docker")
INIT_PROGRAMS = ("/usr/libexec/podman/catatonit", "/usr/lib/podman/catatonit", "/usr/bin/catatonit")
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


def library() -> tuple[str, ...]:
    """The folders of the in-job library, wherever it is installed; nothing of it is imported."""
    found = [importlib.util.find_spec(name) for name in PACKAGES]
    return tuple(spec.submodule_search_locations[0] for spec in found if spec and spec.submodule_search_locations)


def refuse_without(runtime: Runtime | None) -> None:
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
    lines = [line for line in log_path.read_text(errors="replace")[-4000:].splitlines() if line.strip()]
    errors = [line for line in lines if "rror" in line]
    return (errors or lines or ["the container runtime did not say why"])[-1].strip()
