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
KERNEL_BYTES_MAX = 1 << 16  # of what the kernel itself says of a process


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
    spared = (keeper, os.getpid())
    found = [pid for pid in _pids() if pid not in spared and _belongs(pid, keeper, wanted, confined)]
    if confined is not None:
        found += [pid for pid in confined.pids() if pid not in (*spared, *found) and _stat(pid)[0] not in GONE]
    return found


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
    parents = {pid: _parent(pid) for pid in pids}

    def generation(pid: int) -> int:
        count = 0
        while pid in parents and count < len(parents):  # a number that was used again may close a circle
            pid, count = parents[pid], count + 1
        return count

    return sorted(pids, key=lambda pid: (generation(pid), pid))


def kill(keeper: int | None, wanted: tuple[bytes, ...], confined: Confined | None = None) -> int:
    """End what is left, and what it forks meanwhile; returns how many were still there."""
    found = members(keeper, wanted, confined)
    for group in (confined.groups or ()) if confined is not None and found else ():
        cgroups.kill(group)
    for pid in found:
        _signal(pid, signal.SIGKILL)
    return len(found)


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
    if confined is not None and (_uid(pid) != confined.uid or confined.says_it_all):
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
    """State, process group, session; empty when it is gone or hidden."""
    fields = _stat_fields(pid)
    return (fields[0], int(fields[2]), int(fields[3])) if len(fields) > 3 else (b"", 0, 0)


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
