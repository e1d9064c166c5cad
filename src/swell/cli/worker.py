"""`swell worker`"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from swell.machine.worker_options import FLAGS, Flag, FlagKind, read_options

FOLDER = "~/.local/state/swell-worker"
DEFAULTS = {"folder": FOLDER}


def _flags(command: Callable[..., Any]) -> Callable[..., Any]:
    for flag in reversed([flag for flag in FLAGS if not flag.is_own]):
        command = _option(flag)(command)
    return command


def _option(flag: Flag) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    if flag.kind is FlagKind.SWITCH:
        return click.option(f"--{flag.name}", flag.field, is_flag=True, help=flag.help)
    default = DEFAULTS.get(flag.field)
    return click.option(
        f"--{flag.name}",
        flag.field,
        metavar=flag.metavar,
        default=default,
        show_default=default is not None,
        help=flag.help,
    )


@click.command("worker")
@_flags
def command(**given: Any) -> int:
    """Run a worker: offer this machine to a server on another machine and run its jobs here.

    \b
    swell token create lab --scope worker --token-file lab.token      on the machine of the server
    swell worker --server https://box.lab:8443 --token-file lab.token --fingerprint SHA256

    In a Slurm or Batch job the worker offers what that job was given. It sends the logs of its tasks to the server. If
    it cannot reach the server for --lease-seconds, it stops its tasks; the server starts them elsewhere a minute later.
    On SIGTERM it accepts nothing new and exits when its tasks have ended. With --pass-down-termination, or on a second
    SIGTERM, it stops its tasks so that they save a checkpoint, and their jobs are requeued.
    """
    from swell.machine.processes import become_module

    become_module("swell.worker", *read_options(given).words())
