"""Which control group holds a task's processes, so that none of them can get lost?

A process can leave its session and scrub its environment, but only root can take it out of its control group. Any
hierarchy that we may make groups in will do (nothing is limited by them): version 2, else one of version 1. Where
there is none, a task's processes are found by session and environment alone.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

V1_CONTROLLERS = ("pids", "freezer", "name=systemd")

log = logging.getLogger(__name__)


def find_base(store: str) -> Path | None:
    """A folder for the groups of this store's tasks; None: no hierarchy lets us make one."""
    for hierarchy in _hierarchies(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text()):
        base = hierarchy / f"swell-{store}"
        try:
            base.mkdir(exist_ok=True)
        except OSError as error:
            log.info("no control groups in %s: %s", hierarchy, error.strerror)
            continue
        return base
    return None


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


def _hierarchies(mounts: str, own: str) -> Iterator[Path]:
    """Where we are in each, version 2 first."""
    found: list[tuple[int, Path]] = []
    ours = {controllers: path for _, controllers, path in (line.split(":", 2) for line in own.splitlines())}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        names = [""] if kind == "cgroup2" else [name for name in V1_CONTROLLERS if name in options.split(",")]
        if kind not in ("cgroup", "cgroup2") or not names:
            continue
        point = before.split()[4]
        inside = next((path for controllers, path in ours.items() if names[0] in controllers.split(",")), "/")
        rank = 0 if kind == "cgroup2" else 1 + V1_CONTROLLERS.index(names[0])
        found.append((rank, Path(point + inside if os.path.isdir(point + inside) else point)))  # noqa: PTH112
    return (path for _, path in sorted(found))
