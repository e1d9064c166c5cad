"""Which control groups hold a task's processes, so that none of them can get lost or take more than its share?

A process can leave its session and scrub its environment, but only root can take it out of its control group. Each
task has one of its name in every hierarchy that we use: one that holds its processes (version 2, else any of version 1
that lets us), and those that limit something: memory, processes, CPUs, GPUs. With version 2 that is one folder, with
version 1 one for each controller. Where a hierarchy does not let us, what it would limit is counted only, and said to
be so. Where none does, a task's processes are found by session and environment alone.

Names of mounts and groups are whatever users called theirs: everything the kernel lists is bytes.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from swell.worker import devicefilter

HOLDING = ("pids", "freezer", "name=systemd")  # of version 1, those that will do to hold processes, best first
#: controllers, and what they keep tasks to, in the words of `swell run`
LIMITING = {"memory": "--memory", "pids": "processes of a task", "cpu": "--cpus", "devices": "GPUs of others"}
OURSELVES = "swell-itself"  # where server and worker are when their group has those of tasks; systemd puts them there

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """One that is mounted, and where we are in it."""

    version: int
    controllers: frozenset[str]
    folder: Path
    name: str  #: of that folder, as /proc/PID/cgroup has it


@dataclass(frozen=True, slots=True)
class Base:
    """Our folder in a hierarchy, for the groups of this store's tasks."""

    folder: Path
    version: int
    name: str  #: as /proc/PID/cgroup has it
    limits: frozenset[str] = frozenset()  #: what is limited in it


@dataclass(frozen=True, slots=True)
class Groups:
    """Where tasks have theirs."""

    bases: tuple[Base, ...]  #: the first holds processes
    unenforced: tuple[tuple[str, str], ...] = field(default=())  #: what cannot be limited, and why not

    @property
    def names(self) -> tuple[str, ...]:
        """Above those of tasks, as the kernel has them."""
        return tuple(base.name for base in self.bases)

    def holding(self, name: str) -> Path:
        return self.bases[0].folder / name

    def all_of(self, pattern: str) -> tuple[Path, ...]:
        """Those that hold processes; names as in a shell."""
        return tuple(self.bases[0].folder.glob(pattern))

    def limiting(self, limit: str) -> Base | None:
        return next((base for base in self.bases if limit in base.limits), None)

    def remove(self, name: str) -> None:
        """Works only where they are empty."""
        for base in self.bases:
            remove(base.folder / name)

    def close(self) -> None:
        """The folders themselves, unless a task's group is left in one."""
        for base in self.bases:
            remove(base.folder)


def find(store: str, before: tuple[Path, ...] = ()) -> Groups | None:
    """Folders for the groups of this store's tasks; None: no hierarchy lets us make one.

    `before`: where an earlier life of ours had them, the first of which holds processes: they must be found again.
    """
    hierarchies = _mounted()
    holding = _holding(hierarchies, store, before[:1])
    return None if holding is None else _with_limits(holding, hierarchies, store)


def _mounted() -> list[Hierarchy]:
    with open("/proc/self/mountinfo", "rb") as mounts, open("/proc/self/cgroup", "rb") as own:  # noqa: PTH123
        return list(parse(mounts.read(), own.read()))


def _holding(hierarchies: list[Hierarchy], store: str, before: tuple[Path, ...]) -> Base | None:
    able = [one for one in hierarchies if _rank(one) <= len(HOLDING)]
    able.sort(key=lambda one: (one.folder / f"swell-{store}" not in before, _rank(one)))
    return next((base for one in able if (base := _make(one, store)) is not None), None)


def probe() -> tuple[tuple[str, str], ...]:
    """What cannot be limited here, in words, and why not. Nothing is left of the attempt."""
    found = find(f"probe-{os.getpid()}")
    if found is None:
        return tuple((limit, "no control group can be created here") for limit in LIMITING.values())
    found.close()
    return tuple((LIMITING[limit], why) for limit, why in found.unenforced)


def make(group: Path) -> None:
    group.mkdir(exist_ok=True)


def pids(group: Path) -> list[int]:
    try:
        return [int(line) for line in (group / "cgroup.procs").read_text().split()]
    except OSError:
        return []


def kill(group: Path) -> None:
    """All at once, faster than they can fork; where the kernel cannot (version 1), one by one has to do."""
    with contextlib.suppress(OSError):
        (group / "cgroup.kill").write_text("1")


def remove(group: Path) -> None:
    """Works only when it is empty."""
    with contextlib.suppress(OSError):
        group.rmdir()


def parse(mounts: bytes, own: bytes) -> Iterator[Hierarchy]:
    """Those that are mounted; lines of /proc/self/mountinfo and /proc/self/cgroup."""
    fields = [line.split(b":", 2) for line in own.split(b"\n") if line.count(b":") >= 2]
    ours = {controllers: path for _, controllers, path in fields}
    for line in mounts.split(b"\n"):
        before, _, after = line.partition(b" - ")
        kind, *_, options = [*after.split(b" "), b""] if b" " not in after else after.split(b" ")
        if kind == b"cgroup2":
            yield _hierarchy(2, b"", before, ours.get(b"", b"/"))
        elif kind == b"cgroup":
            named = [option for option in options.split(b",") if option != b"rw"]
            inside = next((path for names, path in ours.items() if set(names.split(b",")) & set(named)), b"/")
            yield _hierarchy(1, b" ".join(named), before, inside)


def _hierarchy(version: int, controllers: bytes, before: bytes, inside: bytes) -> Hierarchy:
    """`inside`: where we are; a container may see only a part of the hierarchy, mounted from there on."""
    point = Path(os.fsdecode(before.split()[4]))
    folder = point / os.fsdecode(inside.lstrip(b"/"))
    at, name = (folder, os.fsdecode(inside)) if folder.is_dir() else (point, "/")
    if version == 2 and at.name == OURSELVES:  # its parent is what we were given
        at, name = at.parent, name.removesuffix(f"/{OURSELVES}") or "/"
    names = _words(at / "cgroup.controllers") if version == 2 else controllers.split()
    return Hierarchy(version, frozenset(os.fsdecode(one) for one in names), at, name)


def _words(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().split()
    except OSError:
        return []


def _rank(one: Hierarchy) -> int:
    """How well it holds processes; the last: not at all."""
    if one.version == 2:
        return 0
    return next((1 + HOLDING.index(name) for name in HOLDING if name in one.controllers), len(HOLDING) + 1)


def _make(one: Hierarchy, store: str) -> Base | None:
    folder = one.folder / f"swell-{store}"
    try:
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.procs").open("a").close()  # ours to write to, too
    except OSError as error:
        log.info("no control groups in %s: %s", one.folder, error.strerror)
        return None
    return Base(folder, one.version, f"{one.name.rstrip('/')}/{folder.name}")


def _with_limits(holding: Base, hierarchies: list[Hierarchy], store: str) -> Groups:
    bases: dict[Path, tuple[Base, set[str]]] = {holding.folder: (holding, set())}
    problems = []
    for limit in LIMITING:
        base, why = _limiting(limit, holding, hierarchies, store)
        if base is None:
            problems.append((limit, why))
        else:
            bases.setdefault(base.folder, (base, set()))[1].add(limit)
    made = tuple(Base(base.folder, base.version, base.name, frozenset(limits)) for base, limits in bases.values())
    return Groups(made, tuple(problems))


def _limiting(limit: str, holding: Base, hierarchies: list[Hierarchy], store: str) -> tuple[Base | None, str]:
    """Where it is limited; None, and why it is not."""
    for one in hierarchies:
        if limit in one.controllers:
            base = _make(one, store)
            if base is None:
                return None, f"no permission to create control groups in {one.folder}"
            why = hand_down(one, base, limit) if one.version == 2 else ""
            return (None, why) if why else (base, "")
    if limit == "devices" and holding.version == 2:
        why = devicefilter.problem()
        return (None, why) if why else (holding, "")
    return None, f"the kernel has no control group for {limit} here"


def hand_down(one: Hierarchy, base: Base, limit: str) -> str:
    """Version 2: a controller works in a group whose parents all hand it down. Empty: it does; else why not."""
    try:
        if limit.encode() not in _words(one.folder / "cgroup.subtree_control"):
            _enable(one.folder, limit)
        _write(base.folder / "cgroup.subtree_control", f"+{limit}")
    except OSError as error:
        return f"{one.folder} does not delegate it: {error.strerror}; systemd 254 arranges that for the service"
    return ""


def _enable(folder: Path, limit: str) -> None:
    """A group that has processes of its own hands nothing down; ours are moved aside where the group is given to us.

    Asked for "pids" or "cpu", the kernel does it all the same, and lets no process enter the groups below any more.
    """
    if pids(folder) and (folder / "cgroup.type").exists():  # the root of all has none, and may do both
        if not _is_ours(folder):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        aside = folder / OURSELVES
        aside.mkdir(exist_ok=True)
        for pid in pids(folder):
            with contextlib.suppress(ProcessLookupError):
                _write(aside / "cgroup.procs", str(pid))
    _write(folder / "cgroup.subtree_control", f"+{limit}")


def _is_ours(folder: Path) -> bool:
    """In a container it is the whole of what there is. Of systemd's only a scope that was given to us, which is never
    started again: into the group of a service it could not put another process any more.
    """
    if not folder.name.endswith(".scope"):
        return folder.is_mount()
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(folder, name) == b"1":
                return True
    return False


def _write(path: Path, text: str) -> None:
    with path.open("w") as file:
        file.write(text)
