"""What may a task take at most, and did it die of that?"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from swell.worker import cgroups, devicefilter
from swell.worker.cgroups import Base, Groups

PROCESSES_MAX = 32768  # threads included; a fork bomb ends there, data loaders of a large machine do not
PID_MAX = Path("/proc/sys/kernel/pid_max")
MIB = 1 << 20
SHARES_OF_A_CPU = 1024  # version 1; 2 to 262144
SHARES_MIN, SHARES_MAX = 2, 262144
PERIOD_US, QUOTA_US_MIN = 100_000, 1000  # as Kubernetes has them
WEIGHT_MAX = 10000  # version 2; 1 to this


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """Of one task."""

    processes: int  #: threads included
    memory_mib: int = 0  #: 0: it named none, and may take what there is
    cpus_milli: int = 0  #: its share when all want more than there is; 0: as one CPU
    cpu_limit_milli: int = 0  #: also where more are free; 0: as many as are free
    denied: tuple[devicefilter.Number, ...] = ()  #: GPUs of this machine that are not its own


def processes_max(configured: int | None) -> int:
    """None: nobody has said. Never so many that two tasks could take every number the kernel has."""
    return configured or min(PROCESSES_MAX, int(PID_MAX.read_text()) // 2)


def make_groups(groups: Groups, name: str, limits: TaskLimits) -> tuple[Path, ...]:
    """The control groups that a task has to enter, with its limits in place."""
    bases = [base for base in groups.bases if base is groups.bases[0] or _wanted(base, limits)]
    for base in bases:
        group = base.folder / name
        cgroups.make(group)
        for file, text in _settings(base, limits):
            if (group / file).exists():
                (group / file).write_text(text)
        if "devices" in base.limits and limits.denied:
            _deny(base, group, limits.denied)
    return tuple(base.folder / name for base in bases)


def _wanted(base: Base, limits: TaskLimits) -> bool:
    """A group costs a little to make; an array makes thousands."""
    needed = {"pids", "cpu"} | ({"memory"} if limits.memory_mib else set()) | ({"devices"} if limits.denied else set())
    return bool(needed & base.limits)


def _settings(base: Base, limits: TaskLimits) -> list[tuple[str, str]]:
    """Files and what is written to them; some are not there on every kernel."""
    found = []
    if "pids" in base.limits:
        found.append(("pids.max", str(limits.processes)))
    if "cpu" in base.limits:
        shares = shares_of(limits.cpus_milli)
        found.append(("cpu.shares", str(shares)) if base.version == 1 else ("cpu.weight", str(weight_of(shares))))
        found += _quota(base.version, limits.cpu_limit_milli)
    if "memory" in base.limits and limits.memory_mib:
        most = str(limits.memory_mib * MIB)
        if base.version == 1:
            found += [("memory.limit_in_bytes", most), ("memory.memsw.limit_in_bytes", most)]
        else:
            found += [("memory.max", most), ("memory.swap.max", "0"), ("memory.oom.group", "1")]
    return found


def _quota(version: int, milli: int) -> list[tuple[str, str]]:
    """So much of each tenth of a second. The kernel takes no less than a thousandth of a second."""
    if not milli:
        return []
    most_us = max(QUOTA_US_MIN, PERIOD_US * milli // 1000)
    if version == 1:
        return [("cpu.cfs_period_us", str(PERIOD_US)), ("cpu.cfs_quota_us", str(most_us))]
    return [("cpu.max", f"{most_us} {PERIOD_US}")]


def _deny(base: Base, group: Path, devices: tuple[devicefilter.Number, ...]) -> None:
    if base.version == 2:
        devicefilter.deny(group, devices)
        return
    for major, minor in devices:
        (group / "devices.deny").write_text(f"c {major}:{minor} rwm")


def shares_of(cpus_milli: int) -> int:
    return min(SHARES_MAX, max(SHARES_MIN, (cpus_milli or 1000) * SHARES_OF_A_CPU // 1000))


def weight_of(shares: int) -> int:
    """As Kubernetes translates them, so that a task weighs the same everywhere."""
    return 1 + (shares - SHARES_MIN) * (WEIGHT_MAX - 1) // (SHARES_MAX - SHARES_MIN)


def killed_for_memory(groups: Groups, name: str) -> int | None:
    """The MiB it had when the kernel ended a process of it for its limit; None: that did not happen."""
    base = groups.limiting("memory")
    if base is None:
        return None
    group = base.folder / name
    events = group / ("memory.oom_control" if base.version == 1 else "memory.events")
    if _counts(events).get("oom_kill", 0) == 0:
        return None
    peak = group / ("memory.max_usage_in_bytes" if base.version == 1 else "memory.peak")
    limit = group / ("memory.limit_in_bytes" if base.version == 1 else "memory.max")
    return (_number(peak) or _number(limit)) // MIB


def _counts(path: Path) -> dict[str, int]:
    with contextlib.suppress(OSError, ValueError):
        return {name: int(count) for name, count in (line.split() for line in path.read_text().splitlines())}
    return {}


def _number(path: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text())
    return 0
