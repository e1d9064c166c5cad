"""How does a task outlive us, and how do we know what became of it?

Every task has a folder, `tasks/<attempt>/<index>/`. Making it (mkdir fails if it exists) is the claim: whoever
made it, and nobody else, may start the task. In it:

    log                 stdout and stderr, appended by the task itself, nothing of ours in between. The open file
                        is locked (flock) before the fork and inherited, so the lock is held exactly as long as
                        the task, its keeper or anything they started lives.
    begun.<pid>.<lane>  made by the keeper before it runs the command
    exit.<code>[.note]  made by the keeper after the command has ended
    cause.<word>        made by us before we end it, so that the reason survives a crash
    failed.<word>       made where a container did not come up, or took its code with it (see `containers.py`)

The keeper is a plain `sh` that we start in a session of its own: it makes `begun`, runs the command, makes `exit`
and ends with the same code. Facts are file *names*: making one is atomic and needs no free block, so they hold on
a full disk too. From the folder it is always decidable:

    exit.*                                      ended, with that code
    no exit, the log is locked                  alive
    no exit, not locked, begun.*                ended, but its keeper was killed: the code is not known
    no exit, not locked, no begun               never begun: it may be started

Where tasks run as other users (`asuser.py`), what is locked is a file `lock` that only the keeper holds: whoever has
the log open could let go of its lock, and seem to have ended.

The order of looking matters: the lock is tried first and the names are read after it, because a keeper makes
`exit` before it lets go of the lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

KEEPER = """\
trap : HUP INT QUIT USR1 USR2 ALRM TERM
: > "$1/begun.$$.$2" || exit 125
_swell_task=$1
umask "$4"
if cd "$3"; then
  shift 4
  "$@"
  _swell_code=$?
  _swell_note=
else
  _swell_code=125
  _swell_note=.workdir
fi
: > "$_swell_task/exit.$_swell_code$_swell_note"
exit $_swell_code
"""
# A child inherits what is ignored: Python ignores some, `nohup` and a shell's `&` others, and a shell cannot undo that.
DEFAULT_SIGNALS = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}


class Status(Enum):
    NEVER_BEGUN = "never begun"
    ALIVE = "alive"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Found:
    """What a task's folder says."""

    status: Status
    pid: int | None = None  #: of the keeper; None: not begun yet
    lane: int = 0
    begun_at: float = 0.0
    ended_at: float = 0.0
    code: int | None = None  #: None: alive, or nobody recorded it
    note: str = ""
    cause: str = ""


def claim(folder: Path | str) -> bool:
    """True: the task is ours to start."""
    try:
        os.mkdir(folder, 0o700)  # noqa: PTH102  a hot path; pathlib's costs twice as much
    except FileExistsError:
        return False
    return True


def spawn(
    folder: str,
    lane: int,
    command: tuple[str, ...],
    workdir: str,
    umask: int,
    env: dict[str, str],
    *,
    script: str = KEEPER,
) -> int:
    """Start the keeper, which starts the command. Returns the keeper's pid, which is its session and group too.

    Another script than the keeper's own looks after a container that runs already, and may hold the lock itself.
    """
    log = os.open(f"{folder}/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(log, may_be_held=script is not KEEPER)
        return os.posix_spawn(
            "/bin/sh",
            [
                "swell-keeper",
                "-c",
                script,
                "swell-keeper",
                folder,
                str(lane),
                workdir,
                f"{umask:04o}",
                *command,
            ],
            env,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=DEFAULT_SIGNALS,
        )
    finally:
        os.close(log)


def _lock(log: int, *, may_be_held: bool) -> None:
    try:
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if not may_be_held:
            raise


def inspect(folder: Path) -> Found:
    """What became of this task? See the table at the top."""
    own = folder / "lock"
    is_locked = _is_locked(own if own.exists() else folder / "log")
    facts = _facts(folder)
    pid, lane = (int(part) for part in facts["begun"].split(".")) if "begun" in facts else (None, 0)
    begun_at = _made_at(folder, f"begun.{facts['begun']}") if "begun" in facts else 0.0
    cause = facts.get("cause", "")
    if "exit" in facts:
        code, _, note = facts["exit"].partition(".")
        note = note or facts.get("failed", "")
        ended_at = _made_at(folder, f"exit.{facts['exit']}")
        return Found(Status.ENDED, pid, lane, begun_at, ended_at, None if note == "lost" else int(code), note, cause)
    if is_locked:
        return Found(Status.ALIVE, pid, lane, begun_at, cause=cause)
    if "begun" in facts:
        return Found(Status.ENDED, pid, lane, begun_at, _made_at(folder, "log"), None, "keeper", cause)
    return Found(Status.NEVER_BEGUN)


def note_cause(folder: Path, word: str) -> None:
    with contextlib.suppress(OSError):  # a full disk must not keep us from stopping it
        (folder / f"cause.{word}").touch(mode=0o600)


def _facts(folder: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in sorted(os.listdir(folder), reverse=True):  # noqa: PTH208  names are all we need
        kind, dot, rest = name.partition(".")
        if dot:
            found[kind] = rest
    return found


def _made_at(folder: Path, name: str) -> float:
    try:
        return (folder / name).stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _is_locked(log: Path) -> bool:
    try:
        descriptor = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
