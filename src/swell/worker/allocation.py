"""What of this machine is a worker given?

A worker on another machine is often part of a Slurm or Batch job and may use what that job was given: by control groups
(its own and those above it), by the CPUs it may run on, and by what the batch system says in the environment. Of each
the least counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from swell.model.cluster import Device

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")
MIB = 1 << 20
UNLIMITED_BYTES = 1 << 60  # version 1 writes a number near 2^63 where nothing is limited
COUNT = re.compile(r"[0-9]{1,9}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Allocation:
    """The most that may be offered; None: nothing says so."""

    cpus_milli: int | None = None
    memory_mib: int | None = None
    gpus: tuple[str, ...] | None = None  #: as CUDA_VISIBLE_DEVICES names them: numbers or UUIDs

    def of_devices(self, devices: Sequence[Device]) -> tuple[Device, ...]:
        if self.gpus is None:
            return tuple(devices)
        found = [_find(name, devices) for name in self.gpus]
        return tuple(dict.fromkeys(device for device in found if device is not None))


def read_allocation(
    environ: Mapping[str, str], *, own_cgroups: Path = OWN_CGROUPS, cgroups: Path = CGROUPS
) -> Allocation:
    folders = list(_folders(own_cgroups, cgroups))
    cpus = [*(_quota(folder) for folder in folders), _times(environ.get("SLURM_CPUS_ON_NODE"), 1000)]
    memory = [*(_memory(folder) for folder in folders), _slurm_memory(environ)]
    named = environ.get("CUDA_VISIBLE_DEVICES")
    return Allocation(_least(cpus), _least(memory), None if named is None else tuple(_names(named)))


def _least(found: list[int | None]) -> int | None:
    return min((one for one in found if one is not None), default=None)


def _folders(own: Path, root: Path) -> Iterator[Path]:
    """The control groups of this process and those above them, of both versions."""
    for line in _text(own).splitlines():
        _, controllers, path = line.split(":", 2)
        tops = [root] if not controllers else [root / one for one in (controllers, *controllers.split(","))]
        for top in dict.fromkeys(tops):
            folder = top / path.strip("/")
            yield from (above for above in (folder, *folder.parents) if above == top or top in above.parents)


def _quota(folder: Path) -> int | None:
    """Thousandths of a CPU."""
    older = f"{_text(folder / 'cpu.cfs_quota_us')} {_text(folder / 'cpu.cfs_period_us')}"
    words = (_text(folder / "cpu.max") or older).split()
    if len(words) != 2 or not all(COUNT.fullmatch(word) for word in words) or int(words[1]) == 0:
        return None
    return max(1, int(words[0]) * 1000 // int(words[1]))


def _memory(folder: Path) -> int | None:
    text = _text(folder / "memory.max") or _text(folder / "memory.limit_in_bytes")
    return int(text) // MIB if text.isdigit() and int(text) < UNLIMITED_BYTES else None


def _slurm_memory(environ: Mapping[str, str]) -> int | None:
    whole = _times(environ.get("SLURM_MEM_PER_NODE"), 1)
    cpus = _times(environ.get("SLURM_CPUS_ON_NODE"), 1)
    found = whole if whole is not None or cpus is None else _times(environ.get("SLURM_MEM_PER_CPU"), cpus)
    return found or None  # 0: all of the node


def _times(text: str | None, factor: int) -> int | None:
    return int(text) * factor if text is not None and COUNT.fullmatch(text) else None


def _names(text: str) -> Iterator[str]:
    """As CUDA reads it: what comes after the first name that names nothing does not count."""
    for name in text.split(","):
        if not name.strip() or name.strip().startswith(("-", "NoDevFiles")):
            return
        yield name.strip()


def _find(name: str, devices: Sequence[Device]) -> Device | None:
    if COUNT.fullmatch(name):
        return devices[int(name)] if int(name) < len(devices) else None
    return next((device for device in devices if device.id.startswith(name)), None)


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
