"""When can the first waiting job start at the latest, and what may others use meanwhile?

Backfill, in the form known as EASY: the first job that does not fit gets a reservation at the earliest moment
at which enough of the running jobs must have ended, and a later job may start now only if it has ended by
then, or if it leaves that reservation alone. A job without a time limit counts as endless: as a holder it is
released last, as a candidate it may only use what the reservation leaves over. Ends are taken from time
limits, so a running job that ends early may find a backfilled one in the way for as long as *its* limit says,
never longer.

An array's limit is per task: a slot that is drained is empty when its task's limit has passed. So an array
may use reserved room as long as a task begun now would end in time, and is drained after that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from swell.model.job import JobId, JobState
from swell.model.plan import ENDLESS, JobView, Places
from swell.planner.fit import find
from swell.planner.room import Room


@dataclass(frozen=True, slots=True)
class Holder:
    """Room that will be given back, at the latest at `ends_at`."""

    ends_at: float
    since: float
    place_in_line: tuple[int, JobId]
    places: Places

    @classmethod
    def of(cls, job: JobView, places: Places, now: float) -> Holder:
        since = now if job.started_at is None else job.started_at
        return cls(_ends_at(job, now), since, place_in_line(job), places)


@dataclass(frozen=True, slots=True)
class Reservation:
    job: JobId
    starts_at: float
    after: Room  #: what is left over once it has started
    places: Places  #: where it will be
    released: frozenset[JobId]  #: those whose end it waits for

    def is_outlived_by(self, job: JobView, now: float) -> bool:
        """Would the job, running from now on, still be there when the reservation begins?"""
        ends_at = ENDLESS if job.left_s is None else now + job.left_s
        return job.id not in self.released and (ends_at > self.starts_at or ends_at == ENDLESS)


def place_in_line(job: JobView) -> tuple[int, JobId]:
    """Higher priority first, then who came first."""
    return -job.priority, job.id


def reserve(job: JobView, line: Room, holders: Iterable[Holder]) -> Reservation | None:
    """The earliest start that the limits of the running jobs promise; None when nothing would free enough."""
    room = line.copy()
    released: set[JobId] = set()
    for ends_at, ending in groupby(sorted(holders, key=_release_order), key=_moment):
        for holder in ending:
            room.give(holder.places)
            released.add(holder.place_in_line[1])
        places = find(job.shape, (room,), is_steady=True)
        if places is not None:
            room.take(places)
            return Reservation(job.id, ends_at[0], room, places, frozenset(released))
    return None


def _release_order(holder: Holder) -> tuple[float, float, tuple[int, JobId]]:
    """Oldest first among the endless: one that was let in beside a reservation must not become its cause."""
    return holder.ends_at, holder.since, holder.place_in_line


def _moment(holder: Holder) -> tuple[float, JobId]:
    """Those that end at the same moment free their room together; endless ones are released one by one."""
    return holder.ends_at, holder.place_in_line[1] if holder.ends_at == ENDLESS else 0


def _ends_at(job: JobView, now: float) -> float:
    if job.state is JobState.STOPPING and job.yielding is None:
        return now  # any moment; its own limit says nothing any more
    limit = None if job.shape.is_array else job.left_s
    if job.started_at is None and limit is not None:
        return now + limit
    return job.ends_at
