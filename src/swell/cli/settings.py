"""Which options of `swell up` does a server remember?

Only the options that were given change. The server stores them once it has started with them, so that options which
keep a server from starting are not stored.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import click

from swell.model.policy import DEFAULT_POLICY, POLICY_NAMES


def declared_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for the machine's resources and for how long history is kept."""
    for option in (
        click.option(
            "--container-options", metavar="WORDS", help="Extra arguments for every `run` of the container program."
        ),
        click.option(
            "--container-command",
            metavar="WORDS|auto",
            help="Program that runs containers.  [default: podman, otherwise docker]",
        ),
        click.option(
            "--policy",
            metavar="NAME",
            help=f"How to plan jobs: {', '.join(POLICY_NAMES)}.  [default: {DEFAULT_POLICY}]",
        ),
        click.option("--keep", metavar="TIME|forever", help="How long to keep ended jobs and logs.  [default: 30d]"),
        click.option("--cpus", metavar="N|auto", help="Offer N CPUs; auto: all CPUs of the machine."),
        click.option("--gpu-memory", metavar="SIZE", help="Memory of each simulated GPU.  [default: 16GiB]"),
        click.option("--gpus", metavar="N|auto", help="Offer N simulated GPUs; auto: the machine's real GPUs."),
    ):
        command = option(command)
    return command


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for the engine."""
    for option in (
        click.option(
            "--reservation-image",
            metavar="IMAGE",
            help="Image of the pods that reserve shared GPUs.  [default: busybox]",
        ),
        click.option(
            "--namespace", metavar="NAME", help="Namespace for objects that name none.  [default: the context's]"
        ),
        click.option("--context", metavar="NAME", help="Context in the kubeconfig.  [default: the current context]"),
        click.option(
            "--kubeconfig", metavar="FILE", help="Kubeconfig file for the cluster.  [default: the one kubectl uses]"
        ),
        click.option(
            "--engine",
            type=click.Choice(["workers", "kubernetes"]),
            help="Run tasks on this machine (workers) or on a Kubernetes cluster.  [default: as last time, "
            "otherwise workers]",
        ),
    ):
        command = option(command)
    return command


def settings(
    gpus: str | None = None,
    gpu_memory: str | None = None,
    cpus: str | None = None,
    keep: str | None = None,
    container_command: str | None = None,
    container_options: str | None = None,
    policy: str | None = None,
) -> dict[str, object]:
    """The settings that were given; 'auto' resets a stored setting."""
    from swell.model.quantity import parse_cpus, parse_duration, parse_memory

    settings: dict[str, object] = {}
    if gpus is not None:
        settings["gpus"] = None if gpus == "auto" else _read(_parse_count, gpus, "--gpus")
    if gpu_memory is not None:
        settings["gpu_memory_mib"] = _read(parse_memory, gpu_memory, "--gpu-memory")
    if cpus is not None:
        settings["cpus_milli"] = None if cpus == "auto" else _read(parse_cpus, cpus, "--cpus")
    if keep is not None:
        settings["keep_s"] = None if keep == "forever" else _read(parse_duration, keep, "--keep")
    if policy is not None:
        settings["policy"] = _known_policy(policy)
    return settings | _container_settings(container_command, container_options)


def _known_policy(name: str) -> str:
    if name not in POLICY_NAMES:
        from swell.errors import Rejected

        raise Rejected(f"there is no policy {name!r}; there are: {', '.join(POLICY_NAMES)}")
    return name


def listening_settings(said: dict[str, Any]) -> dict[str, object]:
    """The listener's settings, given and stored together; 'none' resets all of them."""
    from swell.config import parse_config
    from swell.machine.listening import listening_of

    if said["listen"] == "none":
        return {**dict.fromkeys(said), "allowed_hosts": [], "plain_http": False}
    return {} if listening_of(parse_config(said)) is None else said


def absolute(path: str | None) -> str | None:
    from pathlib import Path

    return None if path is None else str(Path(path).expanduser().absolute())


def cluster_settings(engine: str | None, before: object, **given: str | None) -> dict[str, object]:
    """`before`: the stored settings; settings without an option are kept."""
    from pathlib import Path

    said: dict[str, object] = {name: text for name, text in given.items() if text is not None}
    if engine != "kubernetes":
        if said:
            from swell.errors import Rejected

            raise Rejected(
                f"--{next(iter(said)).replace('_', '-')} is for a Kubernetes cluster; add --engine kubernetes"
            )
        return {} if engine is None else {"cluster": None}
    if "kubeconfig" in said:
        said["kubeconfig"] = str(Path(str(said["kubeconfig"])).expanduser().absolute())
    if isinstance(before, dict) and "stand_ins" in before:
        said["stand_ins"] = before["stand_ins"]
    return {"cluster": said}


def _container_settings(command: str | None, options: str | None) -> dict[str, object]:
    """Split the text as a shell would; 'auto' or an empty text resets the stored setting."""
    given = {"container_command": command, "container_options": options}
    for name, text in given.items():
        try:
            shlex.split(text or "")
        except ValueError as problem:
            from swell.errors import Rejected

            raise Rejected(f"--{name.replace('_', '-')} {text!r} cannot be split into words: {problem}") from None
    if command is not None and command.strip() not in ("", "auto"):
        _refuse_other_runtime(command)
    return {
        name: text if text.strip() not in ("", "auto") else None for name, text in given.items() if text is not None
    }


def _refuse_other_runtime(command: str) -> None:
    from swell.errors import Rejected
    from swell.model.launch import runtime_name

    program = shlex.split(command)[0]
    if runtime_name(program) is None:
        raise Rejected(f"--container-command {program!r} must be podman or docker, by name or absolute path")


def read_duration(text: str, option: str) -> float:
    from swell.model.quantity import parse_duration

    return _read(parse_duration, text, option)


def _read(parse: Callable[[object], float], text: str, option: str) -> float:
    from swell.errors import Rejected
    from swell.model.quantity import BadQuantity

    try:
        return parse(text)
    except BadQuantity as problem:
        raise Rejected(f"{option}: {problem}") from None


def _parse_count(text: object) -> int:
    from swell.model.quantity import BadQuantity

    said = str(text)
    if not said.isascii() or not said.isdigit():
        raise BadQuantity(f"{said!r} is not a number of GPUs; write a number such as 2, or auto")
    return int(said)
