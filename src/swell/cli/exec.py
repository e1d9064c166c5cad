"""`swell exec`"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from swell.cli.options import job_argument, with_client

if TYPE_CHECKING:
    from swell.client import Client
    from swell.client.remote import Remote
    from swell.machine.state_folder import StateFolder

SHELL = "/bin/sh"
PROBE = (SHELL, "-c", ":")
POD_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}")
CONTAINER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}")
EXIT_NOT_FOUND, EXIT_NOT_RUN = 127, 126  # as a shell has it


@click.command("exec")
@click.option(
    "--rank", metavar="R", type=int, help="Task: a rank of a gang or an index of an array.  [default: the first]"
)
@job_argument()
@click.argument("argv", metavar="[--] [COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@with_client
def command(client: Client, job: str, rank: int | None, argv: tuple[str, ...]) -> int:
    """Run a command next to a running job, with the job's folder, environment and GPUs. The default is a shell.

    \b
    swell exec train                         open a shell
    swell exec train -- nvidia-smi
    swell exec train --rank 1 -- py-spy dump --pid 4711

    For a job with an image, the command runs in the job's container; on Kubernetes, in its pod, through your kubectl.
    If the image has no shell, name a COMMAND in the image. The command ends when the job ends. swell exec exits with
    the command's exit code, or with 125 if Swell itself failed.
    """
    from swell.errors import Conflict
    from swell.machine.worker_options import host_name

    place = client.place(job, rank=rank)
    if is_pod(place):
        return _enter(job, place, argv, dict(os.environ), _cluster(client.state))
    if client.is_elsewhere:
        raise Conflict(
            f"job {job} of {client.state} runs on {place['node']}; log in to that machine and run this command there"
        )
    if place["node"] != host_name():
        raise Conflict(
            f"job {job} runs on {place['node']}, but this is {host_name()}; log in to that machine and "
            "run this command there"
        )
    if place["container"] is not None:
        refuse_other_program(place)
        folder = place["runtime_folder"]
        known = {} if folder is None else {"XDG_RUNTIME_DIR": folder}
        return _enter(job, place, argv, {**os.environ, **known})
    environment, folder = _surroundings(place["pid"], job)
    os.chdir(folder)
    return _become(list(argv or (environment.get("SHELL") or SHELL,)), environment)


def is_pod(place: dict[str, Any]) -> bool:
    """Only a server that works on a cluster answers so; nothing in it can be taken for an option of kubectl."""
    match place["runtime"]:
        case ["kubectl", "--namespace", str(namespace)]:
            names = (namespace, str(place["container"]))
            return place["pid"] is None and all(POD_NAME.fullmatch(name) for name in names)
    return False


def refuse_other_program(place: dict[str, Any]) -> None:
    """What a server says becomes a command of whoever types it: a program other than these never does."""
    from swell.errors import Denied
    from swell.model.launch import runtime_name

    program, name = next(iter(place["runtime"]), ""), place["container"]
    if runtime_name(program) is None or not CONTAINER_NAME.fullmatch(str(name)):
        raise Denied(
            f"the server says that {program!r} enters the container {name!r}; swell exec runs only podman and docker, "
            "with a container's name; ask whoever runs the server"
        )


def _enter(
    job: str,
    place: dict[str, Any],
    argv: tuple[str, ...],
    environment: dict[str, str],
    cluster: list[str] | None = None,
) -> int:
    """`cluster`: kubectl's options for the cluster; None for a container on this machine."""
    if not argv:
        refuse_without_shell(job, _words(place, cluster, (), PROBE), environment)
    has_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    options = ("-i", "-t") if has_terminal else ("-i",)  # podman, docker and kubectl call them alike
    return _become(_words(place, cluster, options, argv or (SHELL,)), environment)


def _words(
    place: dict[str, Any], cluster: list[str] | None, options: tuple[str, ...], argv: tuple[str, ...]
) -> list[str]:
    if cluster is None:
        return [*place["runtime"], "exec", *options, place["container"], *argv]
    return [*place["runtime"], *cluster, "exec", *options, place["container"], "--", *argv]


def refuse_without_shell(job: str, enter: list[str], environment: dict[str, str]) -> None:
    """Check for a shell first, because many images have none: afterwards, a shell's own exit code looks the same."""
    import subprocess

    from swell.errors import Conflict

    try:
        done = subprocess.run(enter, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError:
        return  # whoever becomes it says what is wrong with it
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
        raise Conflict(
            f"{SHELL} cannot be run in the container of job {job}: {said}; if its image has no shell, name a "
            f"program in the image: swell exec {job} -- PROGRAM"
        )


def _cluster(state: StateFolder | Remote) -> list[str]:
    """The server's cluster, which may differ from kubectl's current context; for a remote server, kubectl's context."""
    from swell.machine.state_folder import StateFolder as Folder

    if not isinstance(state, Folder):
        return []
    told = state.read_json(state.config).get("cluster") or {}
    options = {"--kubeconfig": told.get("kubeconfig"), "--context": told.get("context")}
    return [word for name, value in options.items() if value for word in (name, value)]


def _surroundings(pid: int | None, job: str) -> tuple[dict[str, str], str]:
    """Read as the user who asks: the kernel decides whether they may."""
    from swell.errors import Conflict, Denied

    try:
        process = _readable(pid)
        pairs = (process / "environ").read_bytes().split(b"\0")
        folder = os.readlink(process / "cwd")  # noqa: PTH115  a path of bytes that need not be UTF-8
    except FileNotFoundError:
        raise Conflict(f"job {job} has just ended; swell exec needs a running job") from None
    except PermissionError:
        raise Denied(
            f"process {pid} of job {job} belongs to another user; only its owner can run commands in it"
        ) from None
    found = dict(os.fsdecode(pair).split("=", 1) for pair in pairs if b"=" in pair)
    return {**found, **{name: os.environ[name] for name in ("TERM",) if name in os.environ}}, folder


def _readable(keeper: int | None) -> Path:
    """On a box server the keeper runs as root; its child process runs as the user."""
    process = Path(f"/proc/{keeper}")
    if os.access(process / "environ", os.R_OK):
        return process
    children = (process / f"task/{keeper}/children").read_text().split()
    return Path(f"/proc/{children[0]}") if children else process


def _become(argv: list[str], environment: dict[str, str]) -> int:
    from swell.cli.printing import say

    try:
        os.execvpe(argv[0], argv, environment)  # noqa: S606  becoming it is the point: terminals and signals work
    except FileNotFoundError:
        say(f"command {argv[0]!r} was not found on the job's PATH")
        return EXIT_NOT_FOUND
    except OSError as error:
        say(f"{argv[0]!r} cannot be run: {error.strerror}")
        return EXIT_NOT_RUN
