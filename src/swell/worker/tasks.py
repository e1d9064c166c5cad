"""How does a task outlive us, and how do we know what became of it?

Every task has a folder, `tasks/<attempt>/<index>/`. Making it (mkdir fails if it exists) is the claim: whoever
made it, and nobody else, may start the task. In it:

    log                 stdout and stderr, appended by the task itself, nothing of ours in between. The open file
                        is locked (flock) before the fork and inherited, so the lock is held exactly as long as
                        the task, its keeper or anything they started lives.
    begun.<pid>.<lane>  made by the keeper before it runs the command
    exit.<code>[.note]  made by the keeper after the command has ended
    cause.<word>        made by us before we end it, so that the reason survives a crash
    failed.<word>       made where a container did not come up, or took its code with it (see `containers.py`), or
                        where the command could not enter its control groups

The keeper is a plain `sh` that we start in a session of its own: it makes `begun`, runs the command, makes `exit`
and ends with the same code. Facts are file *names*: making one is atomic and needs no free block, so they hold on
a full disk too. From the folder it is always decidable:

    exit.*                                      ended, with that code
    no exit, the log is locked                  alive
    no exit, not locked, begun.*                ended, but its keeper was killed: the code is not known
    no exit, not locked, no begun               never begun: it may be started

Where tasks run as other users (`asuser.py`), what is locked is a file `lock` that only the keeper holds: whoever has
the log open could let go of its lock, and seem to have ended.

A name that none of us has made (somebody who may write there did) says nothing.

The order of looking matters: the lock is tried first and the names are read after it, because a keeper makes
`exit` before it lets go of the lock.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import signal
import time
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from swell.machine.users import open_without_waiting

KEEPER = """\
trap : HUP INT QUIT USR1 USR2 ALRM TERM
: > "$1/begun.$$.$2" || exit 125
_swell_task=$1
umask "$4"
if cd "$3"; then
  shift 4
  (
    while [ "$1" != -- ]; do
      echo 0 > "$1/cgroup.procs" || { : > "$_swell_task/failed.fence"; exit 125; }
      shift
    done
    shift
    "$@"
  )
  _swell_code=$?
  _swell_note=
else
  _swell_code=125
  _swell_note=.workdir
fi
: > "$_swell_task/exit.$_swell_code$_swell_note"
exit $_swell_code
"""
#: names that a keeper or a worker makes; numbers so short that they are some
FACT = re.compile(
    r"begun\.[0-9]{1,10}\.[0-9]{1,18}|exit\.[0-9]{1,3}(\.[a-z]+)?|cause\.[a-z-]+|failed\.[a-z]+", re.ASCII
)
NOT_OURS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)  # not there, or a link, a socket: not of our making
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
    groups: tuple[Path, ...] = (),
    script: str = KEEPER,
) -> int:
    """Start the keeper, which starts the command. Returns the keeper's pid, which is its session and group too.

    The command enters the control groups, the keeper does not: it has to live to tell. Another script than the keeper's
    own looks after a container that runs already, and may hold the lock itself.
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
                *([*map(str, groups), "--"] if script is KEEPER else []),
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
    is_locked = _is_locked(own if os.path.lexists(own) else folder / "log")
    facts = _facts(folder)
    pid, lane = _begun(facts["begun"]) if "begun" in facts else (None, 0)
    begun_at = _made_at(folder, f"begun.{facts['begun']}") if "begun" in facts else 0.0
    cause = facts.get("cause", "")
    if "exit" in facts:
        code, _, note = facts["exit"].partition(".")
        note = note or facts.get("failed", "")
        known = None if note == "lost" else int(code)
        ended_at = _made_at(folder, f"exit.{facts['exit']}")
        return Found(Status.ENDED, pid, lane, begun_at, ended_at, known, note, cause)
    if is_locked:
        return Found(Status.ALIVE, pid, lane, begun_at, cause=cause)
    if "begun" in facts:
        return Found(Status.ENDED, pid, lane, begun_at, _made_at(folder, "log"), None, "keeper", cause)
    return Found(Status.NEVER_BEGUN)


def note_cause(folder: Path, word: str) -> None:
    with contextlib.suppress(OSError):  # a full disk must not keep us from stopping it
        (folder / f"cause.{word}").touch(mode=0o600)


def _begun(fact: str) -> tuple[int, int]:
    pid, lane = fact.split(".")
    return int(pid), int(lane)


def _facts(folder: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in sorted(_names(folder), reverse=True):
        kind, _, rest = name.partition(".")
        if FACT.fullmatch(name):
            found[kind] = rest
    return found


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208  names are all we need
    except OSError as error:
        if error.errno not in NOT_OURS:
            raise
        return []


def _made_at(folder: Path, name: str) -> float:
    """0: it is gone. The log's own time is its writer's to set, so that no time lies in the future, or before 1970."""
    try:
        return max(0.0, min((folder / name).lstat().st_mtime, time.time()))
    except OSError as error:
        if error.errno not in NOT_OURS:
            raise
        return 0.0


def _is_locked(log: Path) -> bool:
    try:
        descriptor = open_without_waiting(log)
    except OSError as error:
        if error.errno not in NOT_OURS:
            raise
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
