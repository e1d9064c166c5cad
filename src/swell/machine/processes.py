"""How is a process of our own started, also one that outlives us, and how do we learn that one has ended?"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from swell.machine.users import User


def module_argv(module: str, *words: str, sees_environment: bool = True) -> list[str]:
    """The words that run a module of ours. The folder we stand in may be anybody's: `-m` alone imports from it first.

    `sees_environment` is false where the variables are a user's, too (PYTHONPATH among them).
    """
    return [sys.executable, "-P" if sees_environment else "-I", "-m", module, *words]


def become_module(module: str, *words: str) -> NoReturn:
    """From here on this process is that module."""
    argv = module_argv(module, *words)
    os.execv(argv[0], argv)  # noqa: S606  no shell is the point


def spawn_detached(argv: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """In a session of its own, with nothing of our terminal; what it says is appended to the log, mode 0600."""
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as output:
        return subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, cwd="/"
        )


def as_user(user: User | None) -> dict[str, Any]:
    """For `subprocess`: the child is that user before anything of theirs is looked at; None: it stays as we are.

    In a session of its own: they can make it do what they like, and our terminal is not theirs.
    """
    if user is None:
        return {}
    return {"user": user.uid, "group": user.gid, "extra_groups": user.groups, "start_new_session": True}


def in_folder(folder: str, argv: Sequence[str]) -> list[str]:
    """The command in that folder, or in / where the child may not enter it. Not `cwd`: that is entered as root."""
    return ["/bin/sh", "-c", 'cd -- "$0" 2>/dev/null || cd /; exec "$@"', folder, *argv]


def wait_for_end(pid: int, timeout_s: float | None = None) -> bool:
    """True when it has ended, also if that was long ago; False: it has not within so long. None: however long."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(ready(timeout_s, descriptor))
    finally:
        os.close(descriptor)


def ready(timeout_s: float | None, *descriptors: int) -> set[int]:
    """Which of them can be read, or are closed at their other end; None: however long that takes.

    Not `select`: it knows 1024 descriptors, and a server has more when many are connected.
    """
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(None if timeout_s is None else max(0.0, 1000 * timeout_s))}
