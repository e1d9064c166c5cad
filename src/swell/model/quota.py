"""How much may one user have waiting and stored?"""

from __future__ import annotations

from dataclasses import dataclass

from swell.model.job import JobId


@dataclass(frozen=True, slots=True)
class Quota:
    """Held against every submission; None: no limit."""

    queued: int | None = None  #: jobs that wait, held ones included
    tasks: int | None = None  #: of all jobs that have not ended; arrays have many
    stored_bytes: int | None = None  #: of all jobs that are remembered


NO_QUOTA = Quota()


MIB = 1024 * 1024
DISK_MARGIN = 0.1  # of the limit: a job that was about to end, or to delete an old checkpoint, can still do so
DISK_MARGIN_BYTES_MIN = 16 * MIB  # of a small limit: a burst of output between two counts
LARGEST_SHOWN = 3  # jobs that are named to who has too much


@dataclass(frozen=True, slots=True)
class DiskUse:
    """As it was counted last."""

    bytes: int
    bytes_max: int
    largest: tuple[tuple[JobId, int], ...] = ()  #: jobs that take the most, with their bytes, the largest first

    @property
    def is_over(self) -> bool:
        return self.bytes > self.bytes_max

    @property
    def margin(self) -> int:
        """By how much more, once they are above the limit, something is done about jobs that run."""
        return max(DISK_MARGIN_BYTES_MIN, int(self.bytes_max * DISK_MARGIN))

    @property
    def margins_above(self) -> int:
        """0: not above the limit; 1: above it, by less than the margin."""
        return 1 + (self.bytes - self.bytes_max) // self.margin if self.is_over else 0

    @property
    def in_words(self) -> str:
        """ "20.1 MiB on the disk of at most 10 MiB, most of it in jobs 3 (15.0 MiB) and 4 (5.1 MiB)\""""
        most = " and ".join(f"{job} ({size / MIB:.1f} MiB)" for job, size in self.largest)
        where = f", most of it in job{'s' if len(self.largest) > 1 else ''} {most}" if most else ""
        return f"{self.bytes / MIB:.1f} MiB of logs and checkpoints of at most {self.bytes_max // MIB} MiB{where}"

    @property
    def advice(self) -> str:
        named = str(self.largest[0][0]) if self.largest else "JOB"
        return f"delete jobs that have ended, with their logs and checkpoints (swell delete {named}), or remove files"
