"""`swell service`: one server for all users of this machine"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from swell.cli.settings import declared_options, settings

NAME = "swell.service"


def render_unit(swell: Path, *, state: Path, socket: Path) -> str:
    """The systemd unit. KillMode=process and the preserved runtime folder keep running tasks and clients across
    restarts."""
    return f"""\
[Unit]
Description=Swell workload manager: training and HPC jobs for all users of this machine
Documentation=file:///usr/share/doc/swell/box.md
After=network.target nss-user-lookup.target

[Service]
Type=exec
ExecStart={swell} service run --state {state} --socket {socket}
Restart=on-failure
RestartSec=2
# Tasks keep running while the server is restarted or upgraded; the next server takes them over.
KillMode=process
# Each task has its own cgroup below this unit's.
Delegate=yes
# A cgroup with limited child cgroups cannot hold processes; the server's processes are in this child (systemd 254).
DelegateSubgroup=swell-itself
RuntimeDirectory={socket.parent.name}
RuntimeDirectoryMode=0755
# A client that finds the socket of a stopped server waits for it and does not start a private server.
RuntimeDirectoryPreserve=yes
TasksMax=infinity
OOMPolicy=continue

[Install]
WantedBy=multi-user.target
"""


if TYPE_CHECKING:
    from swell.machine.state_folder import StateFolder


def root_option(command: click.decorators.FC) -> click.decorators.FC:
    return click.option(
        "--root", metavar="DIR", default="/", help="Install below this folder, for packaging.  [default: /]"
    )(command)


@click.group("service", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Manage one server for all users of this machine (needs root and systemd).

    All users of the machine use it with the same commands; tasks run as the user who submitted them.
    """


@command.command("install")
@root_option
def install(root: str) -> int:
    """Write the systemd unit and start the server."""
    from swell.cli.printing import say
    from swell.cli.service import render_unit
    from swell.machine.sockets import BOX_SOCKET, BOX_STATE, BOX_UNIT

    _require_root("install a service")
    unit, state = _below(root, BOX_UNIT), _below(root, BOX_STATE)
    unit.parent.mkdir(parents=True, exist_ok=True)
    unit.write_text(render_unit(_program(), state=BOX_STATE, socket=BOX_SOCKET))
    unit.chmod(0o644)
    state.mkdir(mode=0o711, parents=True, exist_ok=True)
    say(f"wrote {unit}; jobs and logs are stored in {state}")
    if root == "/" and _systemd_runs():
        _systemctl("daemon-reload")
        _systemctl("enable", "--now", unit.name)
        say("the server is running; all users of this machine can now use `swell run`")
    else:
        say(
            "systemd is not running here; on a machine with systemd, run: systemctl daemon-reload && systemctl "
            "enable --now swell"
        )
        say("without systemd, keep this command running as root: swell service run")
    return 0


@command.command("uninstall")
@root_option
def uninstall(root: str) -> int:
    """Stop the server and remove the unit. Running jobs and all data are kept."""
    from swell.cli.printing import say
    from swell.machine.sockets import BOX_SOCKET, BOX_STATE, BOX_UNIT

    _require_root("remove a service")
    unit = _below(root, BOX_UNIT)
    if not unit.exists():
        say(f"the service is not installed: {unit} does not exist")
        return 0
    if root == "/" and _systemd_runs():
        _systemctl("disable", "--now", unit.name)
    unit.unlink()
    _below(root, BOX_SOCKET).unlink(missing_ok=True)  # or everybody would go on to wait for it
    if root == "/" and _systemd_runs():
        _systemctl("daemon-reload")
    say(f"removed {unit}; jobs, logs and checkpoints are still in {_below(root, BOX_STATE)}")
    return 0


@command.command("status")
@root_option
def status(root: str) -> int:
    """Show whether the service is installed, running and answering. Exits with 0 if it answers."""
    from swell.cli.printing import say_lines
    from swell.machine.sockets import BOX_SOCKET, BOX_STATE, BOX_UNIT, box_socket
    from swell.machine.state_folder import StateFolder

    unit = _below(root, BOX_UNIT)
    socket = box_socket() or BOX_SOCKET
    folder = StateFolder(BOX_STATE, socket)
    answer, is_well = _answer(folder)
    say_lines(
        {
            "unit": str(unit) if unit.exists() else f"none ({unit} does not exist; `swell service install` writes it)",
            "process": _process(),
            "socket": str(socket) if socket.exists() else f"{socket} does not exist",
            "answer": answer,
        }
    )
    return 0 if is_well else 1


@command.command("run")
@declared_options
@click.option("--state", metavar="DIR", help="State folder.  [default: /var/lib/swell]")
@click.option("--socket", metavar="PATH", help="Socket for all users.  [default: /run/swell/swell.sock]")
def run(state: str | None, socket: str | None, **declared: str | None) -> int:
    """Serve all users of this machine in the foreground, as root. The unit runs this command."""
    from swell.client.embedded import server_options
    from swell.machine.processes import become_module
    from swell.machine.sockets import BOX_SOCKET, BOX_STATE
    from swell.machine.state_folder import StateFolder

    _require_root("serve all users of this machine")
    place = Path(socket or BOX_SOCKET).absolute()
    folder = StateFolder(Path(state or BOX_STATE).absolute(), place)
    changed = settings(**declared)
    folder.prepare()
    become_module("swell.server", *server_options(folder, 0, changed))


def _below(root: str, path: Path) -> Path:
    return Path(root) / path.relative_to("/")


def _require_root(what: str) -> None:
    from swell.errors import Denied

    if os.geteuid() != 0:
        raise Denied(f"only root may {what}; try: sudo {_program()} service")


def _program() -> Path:
    """The full path of the installed command, for the unit."""
    beside = Path(sys.executable).with_name("swell")
    return beside if beside.exists() else Path(shutil.which("swell") or beside)


def _systemd_runs() -> bool:
    return Path("/run/systemd/system").is_dir()


def _systemctl(*words: str) -> None:
    from swell.errors import Unavailable

    done = subprocess.run(["systemctl", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"systemctl {' '.join(words)}: {done.stderr.strip() or done.returncode}")


def _process() -> str:
    if not _systemd_runs():
        return "systemd is not running here"
    done = subprocess.run(
        ["systemctl", "show", "swell", "--property=ActiveState,MainPID", "--value"],
        capture_output=True,
        text=True,
        check=False,
    )
    return " ".join(done.stdout.split()) or "not known to systemd"


def _answer(folder: StateFolder) -> tuple[str, bool]:
    from swell.client.client import Client
    from swell.errors import SwellError

    try:
        about = Client(folder).server()
    except (SwellError, OSError) as error:
        return f"none: {error}", False
    jobs = ", ".join(f"{count} {state}" for state, count in sorted(about["jobs"].items())) or "no jobs"
    return f"swell {about['version']}: {jobs}", True
