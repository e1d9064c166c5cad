"""How much of a machine does something take?"""

from __future__ import annotations

from dataclasses import dataclass, replace

from swell.model.quantity import number_of


@dataclass(frozen=True, slots=True)
class Resources:
    """CPUs in thousandths, so that fractions add up exactly; memory in MiB; whole GPUs."""

    cpus_milli: int = 0
    memory_mib: int = 0
    gpus: int = 0
    gpu_memory_mib: int = 0  #: with whole GPUs: each has at least this much; without: a share of one GPU's memory

    def __add__(self, other: Resources) -> Resources:
        return Resources(self.cpus_milli + other.cpus_milli, self.memory_mib + other.memory_mib, self.gpus + other.gpus)

    def __sub__(self, other: Resources) -> Resources:
        return Resources(self.cpus_milli - other.cpus_milli, self.memory_mib - other.memory_mib, self.gpus - other.gpus)

    def times(self, count: int) -> Resources:
        return Resources(self.cpus_milli * count, self.memory_mib * count, self.gpus * count)

    @property
    def is_share(self) -> bool:
        """Does it take part of one GPU?"""
        return self.gpus == 0 and self.gpu_memory_mib > 0

    def with_share(self, mib: int | None) -> Resources:
        """The same with another share of a GPU, if it has one; None: as it is."""
        return replace(self, gpu_memory_mib=mib) if mib is not None and self.is_share else self

    def with_gpus(self, gpus: int) -> Resources:
        """The same with so many GPUs, if it has any: a task without GPUs stays without."""
        return replace(self, gpus=gpus) if self.gpus not in (0, gpus) else self

    def fits_in(self, room: Resources) -> bool:
        return self.copies_in(room) >= 1

    def copies_in(self, room: Resources) -> int:
        """How many of these fit side by side; a demand for nothing fits without end."""
        copies = COPIES_MAX
        if self.cpus_milli:
            copies = min(copies, room.cpus_milli // self.cpus_milli)
        if self.memory_mib:
            copies = min(copies, room.memory_mib // self.memory_mib)
        if self.gpus:
            copies = min(copies, room.gpus // self.gpus)
        return max(copies, 0)

    def least(self, other: Resources) -> Resources:
        """What is there in both rooms."""
        return Resources(
            min(self.cpus_milli, other.cpus_milli),
            min(self.memory_mib, other.memory_mib),
            min(self.gpus, other.gpus),
        )

    def __str__(self) -> str:
        return self.as_far_as(self)

    def as_far_as(self, wanted: Resources) -> str:
        """In words, only the kinds of things that are wanted; of those also what there is none of."""
        parts = [number_of(self.cpus_milli / 1000, "CPU")]
        if wanted.memory_mib:
            parts.append(memory_text(self.memory_mib))
        if wanted.gpus:
            least = f" of at least {memory_text(wanted.gpu_memory_mib)}" if wanted.gpu_memory_mib else ""
            parts.append(number_of(self.gpus, "GPU") + least)
        if wanted.is_share:
            parts.append(f"{memory_text(self.gpu_memory_mib)} of one GPU's memory")
        return ", ".join(parts)


def gpus_of(resources: Resources, card_mib: int) -> float:
    """Whole GPUs, or the part of one."""
    return resources.gpu_memory_mib / max(card_mib, 1) if resources.is_share else resources.gpus


def memory_text(mib: int) -> str:
    return f"{round(mib / 1024, 1):g} GiB" if mib >= 1024 else f"{mib} MiB"


COPIES_MAX = 1_000_000  # stands for "without end"; above any number of tasks a job may have
NOTHING = Resources()
