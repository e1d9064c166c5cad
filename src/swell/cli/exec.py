"""`swell exec`"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from swell.cli.options import job_argument, with_client

if TYPE_CHECKING:
    from swell.client import Client
    from swell.client.remote import Remote
    from swell.state import StateFolder

SHELL = "/bin/sh"
PROBE = (SHELL, "-c", ":")
EXIT_NOT_FOUND, EXIT_NOT_RUN = 127, 126  # as a shell has it


@click.command("exec")
@click.option("--rank", metavar="R", type=int, help="Task: a gang's rank or an array's index.  [default: the first]")
@job_argument()
@click.argument("argv", metavar="[--] [COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@with_client
def command(client: Client, job: str, rank: int | None, argv: tuple[str, ...]) -> int:
    """Run a command beside a running job: in its folder, with its environment and GPUs; a shell by default.

    \b
    swell exec train                         look around where it runs
    swell exec train -- nvidia-smi
    swell exec train --rank 1 -- py-spy dump --pid 4711

    Of a job in a container it is run in the container, of one on Kubernetes in its pod, with your kubectl; an image
    without a shell needs a COMMAND that it has. It ends with the job at the latest, and exits with the command's
    code; a failure of Swell itself is 125.
    """
    from swell.errors import Conflict

    place = client.place(job, rank=rank)
    if place["runtime"][:1] == ["kubectl"]:
        return _enter(job, place, argv, dict(os.environ), _cluster(client.state))
    if client.is_elsewhere:
        raise Conflict(
            f"job {job} runs on {place['node']}, where {client.state} put it, and only there can it be entered; "
            "log in to that machine and repeat it"
        )
    if place["node"] != socket.gethostname():
        raise Conflict(
            f"job {job} runs on {place['node']}, and this is {socket.gethostname()}; log in there and repeat"
        )
    if place["container"] is not None:
        folder = place["runtime_folder"]
        known = {} if folder is None else {"XDG_RUNTIME_DIR": folder}
        return _enter(job, place, argv, {**os.environ, **known})
    environment, folder = _surroundings(place["pid"], job)
    os.chdir(folder)
    return _become(list(argv or (environment.get("SHELL") or SHELL,)), environment)


def _enter(
    job: str,
    place: dict[str, Any],
    argv: tuple[str, ...],
    environment: dict[str, str],
    cluster: list[str] | None = None,
) -> int:
    """`cluster`: which, for kubectl; None: a container of this machine."""
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
    """Many images have none. Asked before: how a shell was left and that there is none look the same afterwards."""
    import subprocess

    from swell.errors import Conflict

    try:
        done = subprocess.run(enter, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError:
        return  # whoever becomes it says what is wrong with it
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
        raise Conflict(
            f"{SHELL} cannot be run in the container of job {job}: {said}; "
            f"if its image has no shell, name a program that it has: swell exec {job} -- PROGRAM"
        )


def _cluster(state: StateFolder | Remote) -> list[str]:
    """The one that the server was told of, which need not be the one that kubectl is set to; elsewhere, kubectl's."""
    from swell.state import StateFolder as Folder

    if not isinstance(state, Folder):
        return []
    told = state.read_json(state.config).get("cluster") or {}
    options = {"--kubeconfig": told.get("kubeconfig"), "--context": told.get("context")}
    return [word for name, value in options.items() if value for word in (name, value)]


def _surroundings(pid: int | None, job: str) -> tuple[dict[str, str], str]:
    """Read here, by the person who asks: the kernel says whether they may."""
    from swell.errors import Conflict, Denied

    try:
        process = _readable(pid)
        pairs = (process / "environ").read_bytes().split(b"\0")
        folder = os.readlink(process / "cwd")  # noqa: PTH115  a path of bytes that need not be UTF-8
    except FileNotFoundError:
        raise Conflict(f"job {job} has just ended; there is nothing to enter") from None
    except PermissionError:
        raise Denied(f"process {pid} of job {job} is somebody else's; only who runs it may enter it") from None
    found = dict(os.fsdecode(pair).split("=", 1) for pair in pairs if b"=" in pair)
    return {**found, **{name: os.environ[name] for name in ("TERM",) if name in os.environ}}, folder


def _readable(keeper: int | None) -> Path:
    """On a box server the keeper is root's; what it started is the user's."""
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
        say(f"there is no command {argv[0]!r} on the job's PATH")
        return EXIT_NOT_FOUND
    except OSError as error:
        say(f"{argv[0]!r} cannot be run: {error.strerror}")
        return EXIT_NOT_RUN
