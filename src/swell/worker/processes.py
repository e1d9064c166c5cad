"""Which processes belong to a task, and how are they ended?

A task's processes are those in its keeper's session or group, and those that left it but still carry the task's
mark in their environment. The keeper itself is spared: it ends when the command has, and records its code.

Where tasks have control groups, everything in them and nothing else belongs to the task, whatever it looks like. The
number of a keeper says nothing once it has ended: anybody may have it by now. Environments of other users' processes
are not even looked at: they are memory of the process, which can say anything there, and can keep a reader waiting for
ever (a page that nobody delivers). Where tasks of other users have no groups, only a process of the task's own user can
belong to it: anybody could write somebody else's mark into their own environment.

Whatever is read here is bounded, and what cannot be read is nobody's.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from swell.worker import cgroups

GONE = (b"Z", b"X", b"")  # states of what has ended but is still listed, or no longer
ENVIRON_BYTES_MAX = 6 << 20  # as much as exec takes; a process can make the kernel believe that it has gigabytes
OUR_VARIABLE = re.compile(rb"(?<=\0)(SWELL_[^\0]{0,250})(?=\0)")  # none of those that say whose a process is are longer
THREADS = 17  # where their number stands in /proc/PID/stat, from the state on
TRACERS_MAX = 64  # of one process, and of those that trace it
KERNEL_BYTES_MAX = 1 << 16  # of what the kernel itself says of a process

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Confined:
    """How far a task of another user can spread."""

    uid: int
    groups: tuple[Path, ...] | None  #: control groups that hold its processes and nothing else; None: there are none

    @property
    def says_it_all(self) -> bool:
        """Does nothing count but the groups? What runs as we do may also be told by its marks: `swell exec` is."""
        return self.groups is not None and self.uid != os.getuid()

    def pids(self) -> list[int]:
        return [pid for group in self.groups or () for pid in cgroups.pids(group)]


def marks(store: str, attempt: str, index: int | None = None) -> tuple[bytes, ...]:
    """What to look for in an environment; without an index: any task of the attempt."""
    found = (f"SWELL_STORE={store}".encode(), f"SWELL_ATTEMPT={attempt}".encode())
    return found if index is None else (*found, f"SWELL_TASK_INDEX={index}".encode())


def members(keeper: int | None, wanted: tuple[bytes, ...], confined: Confined | None = None) -> list[int]:
    """Every living process of a task but its keeper."""
    spared = {keeper, os.getpid()}
    found = [] if confined is not None and confined.says_it_all else _told_apart(keeper, wanted, confined)
    if confined is not None:
        found += [pid for pid in confined.pids() if _stat(pid)[0] not in GONE]
    return [pid for pid in dict.fromkeys(found) if pid not in spared]


def _told_apart(keeper: int | None, wanted: tuple[bytes, ...], confined: Confined | None) -> list[int]:
    """By session, group and marks, among all that there are."""
    return [pid for pid in _pids() if pid != os.getpid() and _belongs(pid, keeper, wanted, confined)]


def group_is_empty(keeper: int, confined: Confined | None = None) -> bool:
    """Is nobody left in the session of a keeper that has ended? Cheap when that is so: one system call.

    A zombie whose parent does not reap (process 1 of many containers) is in the group for ever, and is nobody.
    """
    if confined is not None and confined.groups is not None:
        return not any(_stat(pid)[0] not in GONE for pid in confined.pids())
    try:
        os.killpg(keeper, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return not any(
        keeper in _stat(pid)[1:] and _stat(pid)[0] not in GONE and (confined is None or _uid(pid) == confined.uid)
        for pid in _pids()
    )


def terminate(keeper: int | None, wanted: tuple[bytes, ...], asked: set[int], confined: Confined | None = None) -> None:
    """Ask everybody once: SIGTERM, and SIGCONT so that a stopped one hears it. Notes in `asked` who was.

    A process that was being forked while we asked has missed it; asking again finds it, and spares the others a
    second SIGTERM, which many programs take for impatience.
    """
    for pid in _elders_first(set(members(keeper, wanted, confined)) - asked):
        _signal(pid, signal.SIGTERM)
        _signal(pid, signal.SIGCONT)
        asked.add(pid)


def _elders_first(pids: set[int]) -> list[int]:
    """A shell that waits for its child has to hear of it before the child ends: its trap would come too late."""
    found = generations({pid: _parent(pid) for pid in pids})
    return sorted(pids, key=lambda pid: (found[pid], pid))


def generations(parents: dict[int, int]) -> dict[int, int]:
    """How many of these are above each. Everybody is passed once, however long the line."""
    found: dict[int, int] = {}
    for first in parents:
        line: dict[int, None] = {}
        pid = first
        while pid in parents and pid not in found and pid not in line:
            line[pid] = None
            pid = parents[pid]
        is_circle = pid in line  # a number was used again while we looked: any order will do
        above = found.get(pid, 0)
        for one in reversed(line):
            above = 1 if is_circle else above + 1
            found[one] = above
    return found


def kill(
    keeper: int | None, wanted: tuple[bytes, ...], confined: Confined | None = None, killed: set[int] | None = None
) -> int:
    """End what is left, and what it forks meanwhile; returns how many were still there.

    Notes in `killed` who was, and ends what keeps those from going who were before.
    """
    found = members(keeper, wanted, confined)
    for group in (confined.groups or ()) if confined is not None and found else ():
        cgroups.kill(group)
    for pid in found:
        if killed is not None and pid in killed:
            _end_tracers(pid, killed)
        _signal(pid, signal.SIGKILL)
    if killed is not None:
        killed.update(found)
    return len(found)


def end_session(keeper: int, wanted: tuple[bytes, ...]) -> int:
    """What a keeper that is gone has left in its session, and has the task's mark; returns how many were still there.

    Both: its number may be of another session by now, and what a container engine has started has the mark, too.
    """
    found = [pid for pid in _pids() if keeper in _stat(pid)[1:] and _stat(pid)[0] not in GONE]
    ours = [pid for pid in found if pid != keeper and _uid(pid) == os.getuid() and _has_marks(pid, wanted)]
    for pid in ours:
        _signal(pid, signal.SIGKILL)
    return len(ours)


def kill_program(name: str, pids: list[int]) -> None:
    """Those of these processes that run the program of this name."""
    for pid in pids:
        if _read(pid, "comm", 64).strip() == name.encode():
            _signal(pid, signal.SIGKILL)


def _end_tracers(pid: int, told: set[int]) -> None:
    """Who traces a process can keep it from ending when it is killed (PTRACE_O_TRACEEXIT), and need not be in the task.

    Only somebody who is the same user; and those who do it to the tracer. Of others `worker.log` tells, once.
    """
    uid, lines, seen = _uid(pid), [pid], {pid}
    while lines and len(seen) < TRACERS_MAX:
        held = lines.pop()
        for tracer in {found for thread in _threads(held) if (found := _tracer(held, thread))} - seen:
            seen.add(tracer)
            if uid is not None and _end_as(tracer, uid):
                lines.append(tracer)
            elif tracer not in told:
                told.add(tracer)
                log.warning("process %d keeps process %d of a task from ending: it traces it", tracer, held)


def _end_as(pid: int, uid: int) -> bool:
    """If it is that user's. By a descriptor: the number could be somebody else's by now."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        is_theirs = _uid(pid) == uid
        if is_theirs:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    finally:
        os.close(descriptor)
    return is_theirs


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
    except OSError:
        return []


def _tracer(pid: int, thread: str) -> int:
    """0: nobody."""
    said = _read(pid, f"task/{thread}/status", KERNEL_BYTES_MAX).partition(b"\nTracerPid:")[2].split(None, 1)
    return int(said[0]) if said else 0


def is_keeper(pid: int, wanted: tuple[bytes, ...]) -> bool:
    """Is this process really our keeper, and not a stranger with a number that was used again?"""
    return _uid(pid) == os.getuid() and _has_marks(pid, wanted)


def reap(pid: int) -> int | None:
    """The keeper's own exit code if it was our child and ended by itself; None: look into the folder."""
    try:
        _, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else None


@dataclass(frozen=True, slots=True)
class Trace:
    """What tells whose process it is; a process id alone does not."""

    group: int
    session: int
    uid: int | None = None  #: the real one; None: not known
    cgroups: tuple[str, ...] = ()  #: paths
    told: tuple[tuple[str, str], ...] = ()  #: our own variables in its environment; empty: none, or not to be read


def trace(pid: int, *, reads_environment: bool = True) -> Trace | None:
    """None: there is no such process here. It has ended, or the number is of another namespace."""
    state, group, session = _stat(pid)
    if state in GONE:
        return None
    paths = [os.fsdecode(line).split(":", 2)[-1] for line in _read(pid, "cgroup", KERNEL_BYTES_MAX).split(b"\n")]
    told = _told(pid) if reads_environment else ()
    return Trace(group, session, _uid(pid), tuple([path for path in paths if path]), told)


def _told(pid: int) -> tuple[tuple[str, str], ...]:
    found = b"\0" + _read(pid, "environ", ENVIRON_BYTES_MAX) + b"\0"
    variables = [line.decode(errors="replace").partition("=") for line in OUR_VARIABLE.findall(found)]
    return tuple((name, text) for name, _, text in variables)


def _belongs(pid: int, keeper: int | None, wanted: tuple[bytes, ...], confined: Confined | None) -> bool:
    state, group, session = _stat(pid)
    if state in GONE:
        return False
    if confined is not None and _uid(pid) != confined.uid:
        return False
    is_kept = keeper is not None and keeper in (group, session) and (confined is None or confined.groups is None)
    return is_kept or _has_marks(pid, wanted)


def _uid(pid: int) -> int | None:
    """The real one; None: it is gone."""
    try:
        return int(_read(pid, "status", KERNEL_BYTES_MAX).partition(b"\nUid:")[2].split(None, 1)[0])
    except (IndexError, ValueError):
        return None


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208


def _stat(pid: int) -> tuple[bytes, int, int]:
    """State, process group, session; empty when it is gone or hidden.

    One whose first thread has ended looks like a zombie, but lives as long as another one does.
    """
    fields = _stat_fields(pid)
    if len(fields) <= THREADS:
        return b"", 0, 0
    is_partly_gone = fields[0] in GONE and int(fields[THREADS]) > 1
    return b"S" if is_partly_gone else fields[0], int(fields[2]), int(fields[3])


def _parent(pid: int) -> int:
    """0: it is gone or hidden."""
    fields = _stat_fields(pid)
    return int(fields[1]) if len(fields) > 1 else 0


def _stat_fields(pid: int) -> list[bytes]:
    """From its state on. The name before that may hold anything."""
    return _read(pid, "stat", KERNEL_BYTES_MAX).rpartition(b")")[2].split()


def _has_marks(pid: int, wanted: tuple[bytes, ...]) -> bool:
    found = b"\0" + _read(pid, "environ", ENVIRON_BYTES_MAX) + b"\0"
    return all(b"\0" + mark + b"\0" in found for mark in wanted)


def _read(pid: int, name: str, limit: int) -> bytes:
    """Not more than that; nothing when it is gone, or somebody else's."""
    found = bytearray()
    try:
        with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:  # noqa: PTH123
            while len(found) < limit and (piece := file.read(limit - len(found))):
                found += piece
    except OSError:
        return b""
    return bytes(found)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
