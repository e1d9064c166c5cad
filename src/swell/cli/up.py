"""`swell up` and `swell down`"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import click

from swell.cli.options import state_option
from swell.cli.settings import (
    absolute,
    cluster_options,
    cluster_settings,
    declared_options,
    listening_settings,
    settings,
)

if TYPE_CHECKING:
    from swell.machine.state_folder import StateFolder


@click.command("up")
@click.option("-d", "--detach", is_flag=True, help="Run in the background; return when the server answers.")
@declared_options
@cluster_options
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port on loopback.  [default: the last port used]"
)
@click.option("--listen", metavar="ADDRESS:PORT|none", help="Listen on this address, too; clients need a token.")
@click.option("--advertise", metavar="URL", help="URL for jobs on other machines.  [default: https://ADDRESS:PORT]")
@click.option("--allowed-host", metavar="NAME", multiple=True, help="Another host name of the server; repeatable.")
@click.option("--tls-cert", metavar="FILE", help="Certificate for --listen, in PEM.  [default: self-signed]")
@click.option("--tls-key", metavar="FILE", help="Private key of the certificate, in PEM.")
@click.option("--plain-http", is_flag=True, help="Serve --listen without TLS, for example behind a proxy that adds it.")
@state_option
def up(
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
    swell up -d --gpus 4                     with four simulated GPUs, for a first try
    swell up -d --engine kubernetes          tasks run on the cluster that kubectl talks to

    The options for the engine, GPUs, CPUs, containers, --listen and --keep are stored in the state folder for the
    next start, once a server has started with them.
    """
    changed = settings(**declared) | listening_settings(
        {
            "listen": listen,
            "advertise": advertise,
            "allowed_hosts": list(allowed_host),
            "tls_cert": absolute(tls_cert),
            "tls_key": absolute(tls_key),
            "plain_http": plain_http,
        }
    )
    folder = _folder_for_a_server(state)
    changed |= cluster_settings(
        engine,
        folder.read_json(folder.config).get("cluster"),
        kubeconfig=kubeconfig,
        context=context,
        namespace=namespace,
        reservation_image=reservation_image,
    )
    _refuse_beside_another(folder, changed)
    folder.prepare()
    if detach:
        _start(folder, port, changed)
    else:
        _become(folder, port, changed)
    return 0


def _folder_for_a_server(state: str | None) -> StateFolder:
    """The state folder in which commands will find the server."""
    from swell.client.find import choose
    from swell.errors import Conflict
    from swell.machine.state_folder import StateFolder

    chosen = choose(state)
    folder = chosen.server
    if not isinstance(folder, StateFolder):
        raise Conflict(
            f"commands use {folder} because {chosen.why}, and would not find a server started here; name a "
            "state folder here and in each command, for example --state ~/.local/state/swell"
        )
    if folder.socket is not None:
        raise Conflict(
            f"a box server already serves all users of {folder}; use it (`swell run`, `swell ps`), or name a "
            "state folder with --state for a private server"
        )
    return folder


def _refuse_beside_another(folder: StateFolder, changed: dict[str, object]) -> None:
    """Refuse options that a running server was not started with."""
    from swell.client.embedded import is_running
    from swell.client.find import typed
    from swell.errors import Conflict

    if not is_running(folder):
        return
    runs = f"a server for {folder} is already running (process {folder.lock_holder('server')})"
    stop = typed("down", folder)
    if _is_remembered(folder, changed):
        raise Conflict(f"{runs}; use it, stop it with `{stop}`, or choose another folder with --state")
    raise Conflict(
        f"{runs} with other options; to change them, run `{stop}` and then this command again (running jobs keep "
        "running), or choose another folder with --state"
    )


def _is_remembered(folder: StateFolder, changed: dict[str, object]) -> bool:
    """Treat an empty setting as one that is not set."""
    known = folder.read_json(folder.config)
    return all((known.get(name) or None) == (value or None) for name, value in changed.items())


def _become(folder: StateFolder, port: int, changed: dict[str, object]) -> None:
    from swell.cli.printing import say
    from swell.client.embedded import server_options
    from swell.machine.processes import become_module

    say(f"serving {folder} in the foreground; Ctrl-C stops the server, running jobs keep running")
    become_module("swell.server", *server_options(folder, port, changed))


def _start(folder: StateFolder, port: int, changed: dict[str, object]) -> None:
    from swell.cli.printing import say
    from swell.client.connection import no_server
    from swell.client.embedded import ensure_server
    from swell.client.find import typed

    ensure_server(folder, port=port, settings=changed)
    about = folder.read_json(folder.server_file)
    if not about:
        raise no_server(folder)
    if not _is_remembered(folder, changed):  # somebody else's start was a moment faster
        _refuse_beside_another(folder, changed)
    say(f"serving {folder} at {about['url']} (process {about['pid']}, log {folder.server_log})")
    _say_how_others_reach(folder)
    known = folder.read_json(folder.config)
    if known.get("cluster") is not None and known.get("listen") is None:
        again = typed("up -d --listen ADDRESS:PORT", folder)
        say(
            "pods cannot reach that address: jobs run, but cannot report epochs and are not resized; to let "
            f"them report, run: {typed('down', folder)}, then {again} with an address of this machine"
        )


def _say_how_others_reach(folder: StateFolder) -> None:
    from swell.cli.printing import say
    from swell.config import read_config
    from swell.machine.certificate import certificate_of, way_for_others
    from swell.machine.listening import listening_of

    config = read_config(folder.config)
    beyond = listening_of(config)
    for line in way_for_others(beyond, certificate_of(folder, config, beyond)):
        say(line)


@click.command("down")
@click.option("--cancel", is_flag=True, help="First cancel all users' jobs and wait for them to end.")
@state_option
def down(cancel: bool, state: str | None) -> int:
    """Stop the server and its worker. Running jobs keep running; the next `swell up` takes them over."""
    from swell.cli.printing import say
    from swell.client.client import Client
    from swell.client.embedded import is_running, stop_server
    from swell.client.find import find_server, typed
    from swell.client.job import ENDED
    from swell.errors import Conflict, SwellError
    from swell.machine.state_folder import StateFolder

    folder = find_server(state)
    if not isinstance(folder, StateFolder):
        raise Conflict(
            f"{folder} is a remote server that this command cannot stop; `swell logout` stops using it, and "
            "--state names a server on this machine"
        )
    running = 0
    if is_running(folder):
        client = Client(folder)
        if cancel:
            for job in client.cancel_all(all_users=True):
                job.wait()
        else:
            with contextlib.suppress(SwellError):  # one of an earlier version says nothing, and is stopped
                jobs: dict[str, int] = client.server()["jobs"]
                running = sum(count for state, count in jobs.items() if state not in (*ENDED, "queued", "held"))
    stopped = stop_server(folder)
    if not stopped:
        say(f"no server is running for {folder}")
        return 0
    said = (
        f"; {running} running job(s) keep running; the next `{typed('up', folder)}` takes them over" if running else ""
    )
    say(f"stopped the {stopped} of {folder}{said}")
    return 0
