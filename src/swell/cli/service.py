"""`swell service`: one server for everybody on this machine"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from swell.cli.up import declared_options, remember, settings

if TYPE_CHECKING:
    from swell.state import StateFolder


def root_option(command: click.decorators.FC) -> click.decorators.FC:
    return click.option("--root", metavar="DIR", default="/", help="Below this folder, for packaging.  [default: /]")(
        command
    )


@click.group("service", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """One server for everybody on this machine (root, systemd).

    Everybody on the machine uses it with the same commands; tasks run as the user who submitted them.
    """


@command.command("install")
@root_option
def install(root: str) -> int:
    """Write the systemd unit and start the server."""
    from swell.cli.printing import say
    from swell.cli.unit import render_unit
    from swell.sockets import BOX_SOCKET, BOX_STATE, BOX_UNIT

    _require_root("install a service")
    unit, state = _below(root, BOX_UNIT), _below(root, BOX_STATE)
    unit.parent.mkdir(parents=True, exist_ok=True)
    unit.write_text(render_unit(_program(), state=BOX_STATE, socket=BOX_SOCKET))
    unit.chmod(0o644)
    state.mkdir(mode=0o711, parents=True, exist_ok=True)
    say(f"wrote {unit}; jobs and logs will be kept in {state}")
    if root == "/" and _systemd_runs():
        _systemctl("daemon-reload")
        _systemctl("enable", "--now", unit.name)
        say("the server runs; everybody on this machine can use `swell run` now")
    else:
        say("systemd does not run here; where it does: systemctl daemon-reload && systemctl enable --now swell")
        say("without systemd, keep this running as root: swell service run")
    return 0


@command.command("uninstall")
@root_option
def uninstall(root: str) -> int:
    """Stop the server and remove the unit. Running jobs and all data stay."""
    from swell.cli.printing import say
    from swell.sockets import BOX_SOCKET, BOX_STATE, BOX_UNIT

    _require_root("remove a service")
    unit = _below(root, BOX_UNIT)
    if not unit.exists():
        say(f"nothing is installed: there is no {unit}")
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
    """Is it installed, does it run, does it answer? Exits with 0 when it answers."""
    from swell.cli.printing import say_lines
    from swell.sockets import BOX_SOCKET, BOX_STATE, BOX_UNIT, box_socket
    from swell.state import StateFolder

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
@click.option("--socket", metavar="PATH", help="Where everybody connects.  [default: /run/swell/swell.sock]")
def run(state: str | None, socket: str | None, **declared: str | None) -> int:
    """Serve everybody on this machine in the foreground, as root; what the unit starts."""
    from swell.sockets import BOX_SOCKET, BOX_STATE
    from swell.state import StateFolder

    _require_root("serve everybody on this machine")
    place = Path(socket or BOX_SOCKET).absolute()
    folder = StateFolder(Path(state or BOX_STATE).absolute(), place)
    changed = settings(**declared)
    folder.prepare()
    if changed:
        remember(folder, changed)
    os.execv(  # noqa: S606  becoming the server is the point
        sys.executable,
        [sys.executable, "-m", "swell.server", "--state", str(folder.root), "--socket", str(place)],
    )


def _below(root: str, path: Path) -> Path:
    return Path(root) / path.relative_to("/")


def _require_root(what: str) -> None:
    from swell.errors import Denied

    if os.geteuid() != 0:
        raise Denied(f"only root may {what}; try: sudo {_program()} service")


def _program() -> Path:
    """The command as installed, which the unit can name in full."""
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
        return "systemd does not run here"
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
