"""How much did somebody use, and how much of it still counts?

GPUs are counted as they are held: whole ones by number, a share of one by the fraction of its memory that was
promised. What a user has used fades with a half-life for fair share; the daily sums never do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from swell.model.cluster import DeviceId, NodeId
from swell.model.plan import Slot

CPU_WEIGHT = 1 / 64  # of a core in a job without GPUs: to rent, a GPU costs about as much as 64 cores

DeviceMemory = Mapping[tuple[NodeId, DeviceId], int]  #: MiB by machine and GPU: simulated ones have one name everywhere


@dataclass(frozen=True, slots=True)
class Used:
    gpu_s: float = 0.0
    cpu_s: float = 0.0
    lost_gpu_s: float = 0.0  #: of gpu_s: work that had to be done again
    attempts: int = 0

    def __add__(self, other: Used) -> Used:
        return Used(
            self.gpu_s + other.gpu_s,
            self.cpu_s + other.cpu_s,
            self.lost_gpu_s + other.lost_gpu_s,
            self.attempts + other.attempts,
        )


@dataclass(frozen=True, slots=True)
class DayOfUse:
    """What one user's attempts held on one day, UTC."""

    owner: str
    day: str  #: as in 2026-11-16
    used: Used


@dataclass(frozen=True, slots=True)
class Account:
    """Use that fades: what was used one half-life ago counts half."""

    gpu_s: float = 0.0
    at: float = 0.0  #: the moment for which gpu_s was worked out

    def faded(self, now: float, half_life_s: float) -> float:
        return self.gpu_s * _remains(now - self.at, half_life_s)

    def charged(self, gpus: float, begin: float, end: float, half_life_s: float) -> Account:
        """With so many GPUs held in between; worked out for the later of the end and what was known."""
        at = max(self.at, end)
        return Account(self.faded(at, half_life_s) + faded_gpu_s(gpus, begin, end, at, half_life_s), at)


def faded_gpu_s(gpus: float, begin: float, end: float, now: float, half_life_s: float) -> float:
    """GPUs held from begin to end, as they count now: the integral of gpus * 2^-((now - t) / half life)."""
    if end <= begin:
        return 0.0
    remaining = _remains(now - end, half_life_s) - _remains(now - begin, half_life_s)
    return gpus * half_life_s / math.log(2) * remaining


def _remains(age_s: float, half_life_s: float) -> float:
    return math.exp2(-max(0.0, age_s) / half_life_s)


def gpu_seconds(slots: Iterable[Slot], memory: DeviceMemory, seconds: float) -> float:
    """What holding these slots for so long takes of GPUs."""
    return seconds * sum(_gpus(slot, memory) for slot in slots)


def cpu_seconds(slots: Iterable[Slot], seconds: float) -> float:
    return seconds * sum(slot.resources.cpus_milli for slot in slots) / 1000


def charged_gpus(slots: Sequence[Slot], memory: DeviceMemory) -> float:
    """What holding them counts in fair share: GPUs, or a little for the cores of a job without any."""
    return gpu_seconds(slots, memory, 1.0) or CPU_WEIGHT * cpu_seconds(slots, 1.0)


def _gpus(slot: Slot, memory: DeviceMemory) -> float:
    """A share of a GPU that is no longer there counts as all of it."""
    wanted = slot.resources
    if wanted.gpus or not wanted.gpu_memory_mib:
        return wanted.gpus
    return sum(
        wanted.gpu_memory_mib / memory.get((slot.node, device), wanted.gpu_memory_mib) for device in slot.devices
    )
