"""`swell up`"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from swell.cli.options import state_option

if TYPE_CHECKING:
    from swell.state import StateFolder


def declared_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What a server is told of its machine, and how long it keeps history."""
    for option in (
        click.option("--container-options", metavar="WORDS", help="For every `run` of it."),
        click.option(
            "--container-command", metavar="WORDS|auto", help="Runs containers.  [default: podman, else docker]"
        ),
        click.option("--keep", metavar="TIME|forever", help="How long ended jobs and logs are kept.  [default: 30d]"),
        click.option("--cpus", metavar="N|auto", help="Offer N CPUs; auto: what the machine has."),
        click.option("--gpu-memory", metavar="SIZE", help="Memory of each simulated GPU.  [default: 16GiB]"),
        click.option("--gpus", metavar="N|auto", help="Declare N simulated GPUs; auto: what the machine has."),
    ):
        command = option(command)
    return command


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Who runs the tasks, if not this machine."""
    for option in (
        click.option("--reservation-image", metavar="IMAGE", help="Of pods that keep shared GPUs.  [default: busybox]"),
        click.option("--namespace", metavar="NAME", help="For objects that name none.  [default: the context's]"),
        click.option("--context", metavar="NAME", help="Of the kubeconfig.  [default: its current one]"),
        click.option("--kubeconfig", metavar="FILE", help="How to reach the cluster.  [default: as kubectl finds it]"),
        click.option(
            "--engine",
            type=click.Choice(["workers", "kubernetes"]),
            help="Run tasks on this machine, or on a Kubernetes cluster.  [default: as last time, else workers]",
        ),
    ):
        command = option(command)
    return command


@click.command("up")
@click.option("-d", "--detach", is_flag=True, help="Return when the server answers.")
@declared_options
@cluster_options
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port on loopback.  [default: the last one]")
@click.option("--listen", metavar="ADDRESS:PORT|none", help="Listen there, too; whoever asks needs your token.")
@click.option("--advertise", metavar="URL", help="How jobs elsewhere reach it.  [default: https://ADDRESS:PORT]")
@click.option("--allowed-host", metavar="NAME", multiple=True, help="A further name it is called by; repeatable.")
@click.option("--tls-cert", metavar="FILE", help="Certificate for --listen, in PEM.  [default: one of its own]")
@click.option("--tls-key", metavar="FILE", help="Its key.")
@click.option("--plain-http", is_flag=True, help="No TLS for --listen: something in front speaks it, or nobody does.")
@state_option
def command(
    detach: bool,
    port: int,
    listen: str | None,
    advertise: str | None,
    allowed_host: tuple[str, ...],
    tls_cert: str | None,
    tls_key: str | None,
    plain_http: bool,
    engine: str | None,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    reservation_image: str | None,
    state: str | None,
    **declared: str | None,
) -> int:
    """Start the server and its worker on this machine, private to you.

    \b
    swell up -d                              tasks run on this machine
    swell up -d --gpus 4                     with four simulated GPUs, to try things
    swell up -d --engine kubernetes          tasks run on the cluster that kubectl talks to

    What you say of the engine, GPUs, CPUs, containers, --listen and --keep is remembered in the state folder for the
    next start.
    """
    folder = _folder_for_a_server(state)
    changed = settings(**declared) | _listening_settings(
        {
            "listen": listen,
            "advertise": advertise,
            "allowed_hosts": list(allowed_host),
            "tls_cert": _absolute(tls_cert),
            "tls_key": _absolute(tls_key),
            "plain_http": plain_http,
        }
    )
    changed |= _cluster_settings(
        engine,
        folder.read_json(folder.config).get("cluster"),
        kubeconfig=kubeconfig,
        context=context,
        namespace=namespace,
        reservation_image=reservation_image,
    )
    folder.prepare()
    if changed:
        remember(folder, changed)
    if detach:
        _start(folder, port)
    else:
        _become(folder, port)
    return 0


def _folder_for_a_server(state: str | None) -> StateFolder:
    """Where commands will look for it, and none is yet."""
    from swell.client.embedded import is_running
    from swell.client.find import choose
    from swell.errors import Conflict
    from swell.state import StateFolder

    chosen = choose(state)
    folder = chosen.server
    if not isinstance(folder, StateFolder):
        raise Conflict(
            f"commands ask {folder} because {chosen.why}, and would not find a server here; "
            "name a folder for one, as in --state ~/.local/state/swell, here and in each command"
        )
    if folder.socket is not None:
        raise Conflict(
            f"a box server is for everybody on {folder}; use it as it is (`swell run`, `swell ps`), "
            "or name a folder with --state for a private one"
        )
    if is_running(folder):
        pid = folder.lock_holder("server")
        raise Conflict(
            f"a server for {folder} runs already (process {pid}); "
            "use it, stop it with `swell down`, or choose another folder with --state"
        )
    return folder


def _become(folder: StateFolder, port: int) -> None:
    from swell.cli.printing import say

    say(f"serving {folder} in the foreground; Ctrl-C stops the server, running jobs go on")
    _say_how_others_reach(folder)
    os.execv(  # noqa: S606  becoming the server is the point
        sys.executable,
        [sys.executable, "-m", "swell.server", "--state", str(folder), "--port", str(port)],
    )


def _start(folder: StateFolder, port: int) -> None:
    from swell.cli.printing import say
    from swell.client.connection import no_server
    from swell.client.embedded import ensure_server

    ensure_server(folder, port=port)
    about = folder.read_json(folder.server_file)
    if not about:
        raise no_server(folder)
    say(f"serving {folder} at {about['url']} (process {about['pid']}, log {folder.server_log})")
    _say_how_others_reach(folder)
    known = folder.read_json(folder.config)
    if known.get("cluster") is not None and known.get("listen") is None:
        say(
            "pods cannot reach that address: jobs run, but report no epochs and keep their width; "
            "to hear from them: swell down, then swell up -d --listen ADDRESS:PORT with an address of this machine"
        )


def _say_how_others_reach(folder: StateFolder) -> None:
    """With what they know its certificate by, if it has one."""
    from swell.certificate import certificate_of
    from swell.cli.printing import say
    from swell.config import read_config
    from swell.listening import listening_of

    config = read_config(folder.config)
    beyond = listening_of(config)
    certificate = certificate_of(folder, config, beyond)
    if beyond is None or certificate is None:
        return
    say(f"others reach it at {beyond.url}; the SHA-256 fingerprint of its certificate is")
    say(f"  {certificate.fingerprint}")
    pin = f" --fingerprint {certificate.fingerprint}" if certificate.is_own else ""
    say(f"they log in with a token of yours: swell login {beyond.url} --token-file FILE{pin}")


def remember(folder: StateFolder, changed: dict[str, object]) -> None:
    from swell.errors import Unavailable
    from swell.state import disk_problem

    try:
        folder.write_json(folder.config, {**folder.read_json(folder.config), **changed})
    except OSError as error:
        raise Unavailable(disk_problem(error, folder.root)) from error


def settings(
    gpus: str | None = None,
    gpu_memory: str | None = None,
    cpus: str | None = None,
    keep: str | None = None,
    container_command: str | None = None,
    container_options: str | None = None,
) -> dict[str, object]:
    """Only what was said; 'auto' takes an earlier word back."""
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
    return settings | _container_settings(container_command, container_options)


def _listening_settings(said: dict[str, Any]) -> dict[str, object]:
    """Said together, remembered together; 'none' takes all of it back."""
    from swell.config import parse_config
    from swell.listening import listening_of

    if said["listen"] == "none":
        return {**dict.fromkeys(said), "allowed_hosts": [], "plain_http": False}
    return {} if listening_of(parse_config(said)) is None else said


def _absolute(path: str | None) -> str | None:
    from pathlib import Path

    return None if path is None else str(Path(path).expanduser().absolute())


def _cluster_settings(engine: str | None, before: object, **given: str | None) -> dict[str, object]:
    """`before`: what the file says; of that, what there is no option for is kept."""
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
    """Words as a shell would split them; 'auto', or none at all, takes an earlier word back."""
    given = {"container_command": command, "container_options": options}
    for name, text in given.items():
        try:
            shlex.split(text or "")
        except ValueError as problem:
            from swell.errors import Rejected

            raise Rejected(f"--{name.replace('_', '-')} {text!r} cannot be split into words: {problem}") from None
    return {
        name: text if text.strip() not in ("", "auto") else None for name, text in given.items() if text is not None
    }


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
    from swell.model.quantity import BadQuantity, parse_range

    low, high = parse_range(text)
    if low != high:
        raise BadQuantity(f"{str(text)!r} is a range, but a machine has a number of GPUs; write {high}, or auto")
    return low
