"""When everybody sits: how wide is each, on which devices, and what has to be done for it?"""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter

from swell.model.job import JobId, JobState
from swell.model.plan import ENDLESS, Action, JobView, Places, Plan, Preempt, Resize, SetSlots, Slot, Start, taken
from swell.planner.place import place
from swell.planner.preempt import can_yield, deadline_s, resumes
from swell.planner.price import quietness
from swell.planner.resize import Seat, gpus_per_step, is_there, least_places, widths
from swell.planner.room import Room, unnamed
from swell.planner.size import spread
from swell.planner.walk import Walk


class Finish:
    """Of one walk; it goes on with that walk's sheets."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk

    def plan(self) -> Plan:
        quiet = quietness(self._walk.snapshot.arrivals, self._walk.snapshot.now)
        changes = [self._set_slots(*change) for change in self._walk.changes]
        starts = self._begin_all(quiet)
        others = [*self._preempt_all(), *self._resize_all(quiet)]
        return Plan((*changes, *others, *starts), self._walk.verdicts)

    def _set_slots(self, job: JobView, kept: tuple[Slot, ...], added: Places) -> SetSlots:
        first_number = 1 + max(slot.number for slot in kept)
        return SetSlots(job.id, kept + place(added, first_number=first_number))

    def _begin_all(self, quiet: float) -> list[Start]:
        sizes: dict[JobId, int] = {}
        starting = [Seat(job, places) for job, places in self._walk.starts if job.shape.is_elastic]
        if starting:
            sizes = self._widths([*self._seated(), *starting], quiet)
        starts = [self._begin(job, places, sizes.get(job.id, job.shape.width_min)) for job, places in self._walk.starts]
        return self._with_neighbours(starts, starting) if starting else starts

    def _with_neighbours(self, starts: list[Start], elastic: list[Seat]) -> list[Start]:
        """GPUs side by side for elastic jobs, whose widths are known only now.

        Who will still be there when the reservation begins chooses first, beside it.
        """
        for one in reversed(elastic):
            self._walk.devices.give(one.places)
        first, now = self._walk.first, self._walk.snapshot.now
        found = {start.job: start for start in starts}
        for job in sorted((one.job for one in elastic), key=lambda job: not (first and first.is_outlived_by(job, now))):
            places = unnamed(taken(found[job.id].slots))
            found[job.id] = replace(found[job.id], slots=place(self._walk.devices.take(places)))
        return [found[start.job] for start in starts]

    def _begin(self, job: JobView, seat: Places, width: int) -> Start:
        places = seat
        if job.shape.is_array:
            width = len(places)
        elif job.shape.is_elastic:
            rooms = (self._walk.spare, self._walk.line, *self._beside(job))
            width, places = spread(job.shape, seat, rooms, width_max=self._within_limit(job, width))
            self._book(job, seat, places)
        start = Start(job.id, width, place(places))
        if job.shape.is_elastic and resumes(job):
            self._seat_started(job, start, places)
        return start

    def _within_limit(self, job: JobView, width: int) -> int:
        """What its user's limit allows now, while others still hold what they may have to give back."""
        step, spare = gpus_per_step(job.shape), self._walk.held.spare_gpus(job.user)
        return width if not step or spare == ENDLESS else min(width, job.shape.width_min + max(0, int(spare // step)))

    def _book(self, job: JobView, seat: Places, places: Places) -> None:
        """It is wider than its seat. In the line that counts only for one that cannot give it back."""
        for sheet in (self._walk.held,) if resumes(job) else (self._walk.held, self._walk.kept):
            sheet.remove(job, seat)
            sheet.add(job, places)

    def _seat_started(self, job: JobView, start: Start, places: Places) -> None:
        """In the line it keeps its least width, as the next plan will have it."""
        now = self._walk.snapshot.now
        begun = replace(job, state=JobState.STARTING, width=start.width, slots=start.slots, started_at=now)
        self._walk.elastic[job.id], self._walk.seats[job.id] = begun, least_places(begun)
        self._walk.line.give(places)
        self._walk.line.take(self._walk.seats[job.id])

    def _widths(self, seats: list[Seat], quiet: float) -> dict[JobId, int]:
        limited = {seat.job.user for seat in seats} & self._walk.snapshot.users.keys()
        more = {user: self._walk.kept.spare_gpus(user) for user in limited}
        return widths(seats, self._walk.line, self._walk.snapshot.now, quiet, more)

    def _seated(self) -> list[Seat]:
        return [
            Seat(job, self._walk.seats[job.id], is_fixed=not can_yield(job, self._walk.snapshot.now))
            for job in self._walk.elastic.values()
        ]

    def _resize_all(self, quiet: float) -> list[Action]:
        if not self._walk.elastic:
            return []
        sizes = self._widths(self._seated(), quiet)
        movable = [job for job in self._walk.elastic.values() if can_yield(job, self._walk.snapshot.now)]
        changing = [job for job in movable if sizes[job.id] != job.width]
        return [
            self._resize(job, sizes[job.id])
            for job in sorted(changing, key=attrgetter("id"))
            if sizes[job.id] < job.width or self._is_there(job, sizes[job.id])
        ]

    def _beside(self, job: JobView) -> tuple[Room, ...]:
        """What it must leave alone when it spreads.

        On one machine a job that can give room back may use what is reserved for later: its seat stays where it is.
        Where there are several it might come back to another one, and be in the way there.
        """
        return () if resumes(job) and len(self._walk.snapshot.nodes) == 1 else self._walk.after(job)

    def _is_there(self, job: JobView, width: int) -> bool:
        """As it will be when it starts again: free, nobody's seat, and beside the reservation."""
        return is_there(
            Seat(job, self._walk.seats[job.id]), width, self._walk.spare, (self._walk.line, *self._beside(job))
        )

    def _resize(self, job: JobView, width: int) -> Resize:
        room_for = self._walk.claimer if width < job.width else None
        return Resize(job.id, width, job.mode, None if room_for is None else deadline_s(job), room_for)

    def _preempt_all(self) -> list[Action]:
        return [
            Preempt(victim.id, victim.mode, deadline_s(victim), room_for)
            for victim, room_for in (self._walk.victims[job] for job in sorted(self._walk.victims))
        ]
