"""Who gets a seat, in the order of the queue, and what is claimed, reserved or taken for those who wait?

`admit` visits the jobs one by one and hands on a frozen value. What it counts on the way stays in here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from swell.model.cluster import with_lost_gpus
from swell.model.job import JobId, JobState
from swell.model.plan import JobView, Places, Shape, Slot, Snapshot, Verdict, taken
from swell.model.reason import Code
from swell.planner.devices import FreeDevices, foreign_gpus, held_gpus
from swell.planner.fit import beside, find, nodes_for_more
from swell.planner.mix import Mix
from swell.planner.nodes import answering
from swell.planner.preempt import can_be_preempted, choose_victims, resumes
from swell.planner.quota import UserTotals
from swell.planner.rank import is_late, line_up, may_change_slots, rank
from swell.planner.reserve import Holder, Reservation, reserve
from swell.planner.room import Room
from swell.planner.seat import claim, least_places, most, seat


def _is_plain(snapshot: Snapshot) -> bool:
    """One user without limits, whose jobs have no estimates: nothing has to be asked of each that waits."""
    limited = any(one.is_limited for one in snapshot.users.values())
    alike = {(job.user, job.estimate_s) for job in snapshot.jobs}
    return not limited and len({user for user, _ in alike}) < 2 and all(estimate is None for _, estimate in alike)


@dataclass(frozen=True, slots=True)
class Seated:
    """A job that starts or waits, and where it is at its least width."""

    job: JobView
    places: Places


@dataclass(frozen=True, slots=True)
class Regrouped:
    """An array that runs: the slots it has, some of them draining from now on, and what it gets more."""

    job: JobView
    slots: tuple[Slot, ...]
    added: Places


@dataclass(frozen=True, slots=True)
class Preempted:
    """A job that loses its place, and who gets it."""

    job: JobView
    room_for: JobId
    is_evicted: bool = False  #: it is not asked to save first


@dataclass(frozen=True, slots=True)
class Admitted:
    """Who has a seat, who waits and why, and what is left over. Whoever changes a room works on a copy."""

    starts: tuple[Seated, ...]
    claims: tuple[Seated, ...]  #: jobs that are no arrays and wait, and room in `line` that is enough for each
    arrays: tuple[Regrouped, ...]
    preempted: tuple[Preempted, ...]
    verdicts: Mapping[JobId, Verdict]  #: of those that wait, in the order of the queue
    elastic: Mapping[JobId, JobView]  #: jobs that run and whose width may change, or is about to
    seats: Mapping[JobId, Places]  #: what each job that runs keeps at the least
    claimer: JobId | None  #: the first job for which others make room; None: nobody
    reservation: Reservation | None
    free: Room  #: what nobody holds at this moment
    spare: Room  #: the part of it to which nobody ahead has a claim
    line: Room  #: what is left once everybody behind has given way
    held: UserTotals  #: what users hold at this moment
    kept: UserTotals  #: and what they keep in `line`
    devices: FreeDevices


def admit(snapshot: Snapshot) -> Admitted:
    """Visit the jobs in the order of the queue."""
    admission = _Admission(snapshot)
    for job in line_up(snapshot):
        admission.visit(job)
    return admission.result()


class _Admission:
    """What has been counted and decided so far."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        reached = answering(snapshot.nodes)
        held = held_gpus(snapshot)
        foreign = foreign_gpus(snapshot, held)
        every = with_lost_gpus(snapshot.nodes)
        self.empty = Room.of(every)  # the whole cluster, were nobody else there
        self.reachable = self.empty if reached is every else Room.of(reached)  # and the part that answers
        self.free = Room.of(
            reached, foreign=foreign, mix=Mix.of(snapshot.jobs, reached)
        )  # what nobody holds at this moment
        self.free.hold(snapshot.holding)
        self.line = self.free.copy()  # what those ahead leave over once arrays behind have given way
        self.holders: list[tuple[JobView, Places]] = []  # of what is missing in `line`
        self.seats: dict[JobId, Places] = {}  # what each of those that run keeps in `line`
        self.elastic: dict[JobId, JobView] = {}  # those of them whose width may change, or is about to
        self.victims: dict[JobId, Preempted] = {}  # and those that lose their place, and to whom
        self.claimer: JobId | None = None  # the first for whom others make room
        self.has_claims = False
        self.is_plain = _is_plain(snapshot)  # nobody is overtaken, late or limited
        self.held = UserTotals(snapshot)  # what users hold at this moment
        self.kept = UserTotals(snapshot)  # and what they keep in `line`
        for job in snapshot.holding:
            self._enter(job, job.places)
        self.spare = self.free.copy()  # what is free and nobody ahead has a claim to
        self.first: Reservation | None = None
        self.front: JobId | None = None  # the first that waits for room, with a claim or a reservation
        self.devices = FreeDevices(snapshot, held | foreign)
        self.starts: list[Seated] = []
        self.claims: list[Seated] = []
        self.changes: list[Regrouped] = []
        self.verdicts: dict[JobId, Verdict] = {}
        # By the shape's id: hashing costs more than the rest of a refusal, and equal shapes are one object. Who takes
        # the room of others may get in where one of its shape that does not was refused.
        self.refused: dict[tuple[int, bool], Verdict] = {}
        self.passed_over: dict[tuple[int, bool], Verdict] = {}  # room is free for them, as long as nobody starts

    def result(self) -> Admitted:
        return Admitted(
            starts=tuple(self.starts),
            claims=tuple(self.claims),
            arrays=tuple(self.changes),
            preempted=tuple(self.victims[job] for job in sorted(self.victims)),
            verdicts=self.verdicts,
            elastic=self.elastic,
            seats=self.seats,
            claimer=self.claimer,
            reservation=self.first,
            free=self.free,
            spare=self.spare,
            line=self.line,
            held=self.held,
            kept=self.kept,
            devices=self.devices,
        )

    def _enter(self, job: JobView, places: Places) -> None:
        self.held.add(job, places)
        if may_change_slots(job) or job.yielding == 0:
            self.line.give(places)
            return
        if job.shape.is_elastic and not job.is_partly_over and resumes(job) and self._can_be_counted_on(job):
            self.elastic[job.id] = job
            self.line.give(places)
            places = least_places(job)
            self.line.take(places)
        self.seats[job.id] = places
        self.kept.add(job, places)
        self._hold(job, places)

    def _can_be_counted_on(self, job: JobView) -> bool:
        """Not one that is ending; and one on a machine that does not answer cannot be seen to give room back."""
        is_ending = job.state is JobState.STOPPING and job.yielding is None
        return not is_ending and all(slot.node in self.line.nodes for slot in job.slots) and self._may_stay(job)

    def _may_stay(self, job: JobView) -> bool:
        """Could it come back to where it is? Not where a node was cordoned under it."""
        table = self.line.table
        if not table.is_cluster and not job.shape.rules:
            return True
        counts = [count for _, count in job.shape.tasks_at(job.width)]
        rules = [job.shape.rules_of(role) for role, count in enumerate(counts) for _ in range(count)]
        return all(slot.node in table.allowed(rules[slot.number]) for slot in job.slots)

    @cached_property
    def without_rules(self) -> Room:
        """The whole cluster, without rules."""
        return Room.of([replace(node, labels=None) for node in self.snapshot.nodes])

    def visit(self, job: JobView) -> None:
        if job.state is not JobState.QUEUED:
            self._visit_array(job)
            return
        if job.waits_for:
            self.verdicts[job.id] = Verdict(Code.WAITING_FOR_JOB, job.waits_for[0])
            return
        if job.not_before is not None and self.snapshot.now < job.not_before:
            self.verdicts[job.id] = Verdict(Code.WAITING_TO_RETRY)
            return
        shape = id(job.shape), job.preempts
        verdict = self.refused.get(shape) or self.passed_over.get(shape)
        if verdict is not None:
            self.verdicts[job.id] = verdict if self.is_plain else self._told(job, verdict)
        elif not self.kept.allows(job):
            self.verdicts[job.id] = self._told(job, self._verdict(job))
        else:
            self._visit_waiting(job)

    def _told(self, job: JobView, verdict: Verdict) -> Verdict:
        """The reason behind the reason: why others stand before it."""
        if verdict.code not in (Code.WAITING_FOR_ROOM, Code.WAITING_IN_LINE):
            return verdict
        if not self._may_start(job):
            return Verdict(Code.USER_LIMIT)
        if is_late(job, self.snapshot.now):
            return replace(verdict, code=Code.OVER_ESTIMATE)
        ahead = None if verdict.behind is None else self.snapshot.jobs_by_id[verdict.behind]
        is_overtaken = ahead is not None and ahead.user != job.user and ahead.id > job.id
        if is_overtaken and ahead is not None and ahead.priority == job.priority:
            return replace(verdict, code=Code.FAIR_SHARE)
        return verdict

    def _may_start(self, job: JobView) -> bool:
        """Do its user's limits allow it at this moment?"""
        return self.held.allows(job) and self.kept.allows(job)

    def _hold(self, job: JobView, places: Places) -> None:
        self.holders.append((job, places))

    def _after(self, job: JobView) -> tuple[Room, ...]:
        """The room beside the reservation, for one that would still be there when it begins."""
        if self.first is not None and self.first.is_outlived_by(job, self.snapshot.now):
            return (self.first.after,)
        return ()

    def _startable(self, job: JobView) -> tuple[Room, ...]:
        """What is there for it now. Shares stay off a GPU that has to become whole for somebody's claim."""
        is_share = any(resources.is_share for resources, _ in job.shape.roles)
        return (self.spare, *((self.line,) if is_share and self.has_claims else ()), *self._after(job))

    def _claimable(self) -> tuple[Room, ...]:
        # Nobody knows when a claim is fulfilled, so it leaves the reservation alone whatever its limit is.
        return (self.line,) if self.first is None else (self.line, self.first.after)

    # -- waiting jobs ------------------------------------------------------------------------------------

    def _visit_waiting(self, job: JobView) -> None:
        places = seat(job, self._startable(job)) if self.held.allows(job) else None
        if places is None:
            self._refuse(job)
        elif job.shape.is_array:
            added = self._add_slots(job, places, self._allowed(job, most(job)), held=())
            self.starts.append(Seated(job, added))
            self._claim_more(job, most(job) - len(added), held=added)
        else:
            self.starts.append(Seated(job, self._occupy(job, places)))

    def _occupy(self, job: JobView, places: Places) -> Places:
        """With the GPUs it gets: whoever comes after it is to see what the next plan will see."""
        places = self.devices.take(places)
        for room in (self.free, self.spare, self.line, *self._after(job)):
            room.take(places)
        self._hold(job, places)
        for totals in (self.held, self.kept):
            totals.add(job, places, is_new=not job.slots)
        self.passed_over.clear()
        return places

    def _refuse(self, job: JobView) -> None:
        verdict = self._verdict(job)
        self.verdicts[job.id] = self._told(job, verdict)
        can_wait = verdict.code in (Code.WAITING_FOR_ROOM, Code.WAITING_IN_LINE)
        if can_wait and self._wait(job):
            return  # the next of its shape may get a claim as well
        if verdict.code is Code.WAITING_IN_LINE:
            self.passed_over[id(job.shape), job.preempts] = verdict
        elif verdict.code is Code.WAITING_FOR_ROOM:
            self.refused[id(job.shape), job.preempts] = replace(verdict, behind=self.front)
        else:
            self.refused[id(job.shape), job.preempts] = verdict

    def _verdict(self, job: JobView) -> Verdict:
        shape = job.shape
        if find(shape, (self.empty,), is_steady=True) is None:
            return Verdict(Code.NO_SUITABLE_NODE if self._is_kept_off(shape) else Code.CANNOT_RUN_HERE)
        if find(shape, (self.reachable,), is_steady=True) is None:
            return Verdict(Code.WORKER_UNREACHABLE)
        if find(shape, (self.free,)) is None:
            return Verdict(Code.WAITING_FOR_ROOM, self.front)
        is_unclaimed = find(shape, (self.spare,)) is not None
        return Verdict(Code.WAITING_IN_LINE, self.first.job if self.first and is_unclaimed else self.front)

    def _is_kept_off(self, shape: Shape) -> bool:
        """Is it only the rules that leave no node for it?"""
        has_rules = self.empty.table.is_cluster or bool(shape.rules)
        return has_rules and find(replace(shape, rules=()), (self.without_rules,), is_steady=True) is not None

    def _wait(self, job: JobView) -> bool:
        """Keep room for it: arrays behind it give way; if that is not enough, the first one reserves."""
        places = claim(job, self._claimable())
        if places is None and not job.shape.is_array:
            places = self._preempt_for(job)
            if places is not None and self._can_start_after_all(job):
                return True
        if places is not None and job.preempts and not job.shape.is_array:
            places = self._evict_arrays(job, places)
        if places is not None:
            self._claim(job, places, is_new=True)
            if not job.shape.is_array:
                self.claims.append(Seated(job, places))
            if self.claimer is None:
                self.claimer = job.id
        elif self.first is None:
            holders = [Holder.of(one, places, self.snapshot.now) for one, places in self.holders]
            self.first = reserve(job, self.line, holders)
            if self.first is not None:
                self.devices.leave_to_the_last(self.first.places)
                self.kept.add(job, self.first.places)
        self._stand_in_front(job)
        return places is not None

    def _claim(self, job: JobView, places: Places, *, is_new: bool) -> None:
        for room in (self.spare, *self._claimable()):
            room.take(places)
        self._hold(job, places)
        self.has_claims = True
        self.devices.leave_to_the_last(places)  # nobody starts where they would have to go away again
        self.kept.add(job, places, is_new=is_new)

    def _can_start_after_all(self, job: JobView) -> bool:
        """What its victims give back serves the one before it, so what is free now is there for this one."""
        places = seat(job, self._startable(job)) if self._may_start(job) else None
        if places is None:
            return False
        del self.verdicts[job.id]
        self.starts.append(Seated(job, self._occupy(job, places)))
        return True

    def _preempt_for(self, job: JobView) -> Places | None:
        """Take the room of jobs of lower priority; None: that would not be enough.

        Those that can save are asked first. If all of them are not enough, and a PriorityClass allows it, others are
        evicted.
        """
        now = self.snapshot.now
        askable = [
            (victim, self.seats[victim.id])
            for victim in self.snapshot.holding
            if rank(victim, now) < rank(job, now) and victim.id in self.seats and can_be_preempted(victim, now)
        ]
        chosen = choose_victims(job.shape, self._claimable(), askable, now) if askable else None
        evictable: list[tuple[JobView, Places]] = []
        if chosen is None and job.preempts:
            holding = (victim for victim in self.snapshot.holding if victim.id in self.seats)
            evictable = [(one, self.seats[one.id]) for one in holding if self._can_be_evicted(one, job)]
            chosen = choose_victims(job.shape, self._claimable(), askable, now, evictable) if evictable else None
        if chosen is None:
            return None
        victims, places = chosen
        evicted = {victim.id for victim, _ in evictable}
        for victim in victims:
            self.victims[victim.id] = Preempted(victim, job.id, victim.id in evicted)
            self.elastic.pop(victim.id, None)
            for room in self._claimable():
                room.give(self.seats[victim.id])
            self.kept.remove(victim, self.seats[victim.id])
            del self.seats[victim.id]
        gone = {victim.id for victim in victims}
        self.holders = [(job, places) for job, places in self.holders if job.id not in gone]
        return places

    def _can_be_evicted(self, victim: JobView, job: JobView) -> bool:
        """Pods of a cluster, of lower priority. Who can save is asked, if not now then soon."""
        has_room = victim.state in (JobState.STARTING, JobState.RUNNING)
        is_asked = victim.yielding is not None or resumes(victim)
        is_below = victim.priority < job.priority and self.line.table.is_cluster
        return has_room and is_below and not is_asked

    def _evict_arrays(self, job: JobView, places: Places) -> Places:
        """Arrays of lower priority end whole, where `places` would be there only when their tasks have ended.

        Returns where the job will be: not where an array runs that is not needed.
        """
        arrays = [
            (one, one.places)
            for one in self.snapshot.holding
            if may_change_slots(one) and one.id not in self.victims and self._can_be_evicted(one, job)
        ]
        if not arrays:
            return places
        rooms = [room.copy() for room in self._claimable()]
        for room in rooms:
            for _, held in arrays:
                room.take(held)
        without = find(job.shape, rooms, is_steady=True)
        if without is not None:
            return without
        chosen = choose_victims(job.shape, rooms, arrays, self.snapshot.now)
        if chosen is None:
            return places
        victims, places = chosen
        self.victims |= {victim.id: Preempted(victim, job.id, is_evicted=True) for victim in victims}
        return places

    def _stand_in_front(self, job: JobView) -> None:
        if self.front is None:
            self.front = job.id

    # -- arrays ------------------------------------------------------------------------------------------

    def _visit_array(self, job: JobView) -> None:
        """Keep the slots its turn allows, drain the rest, add what fits, claim what arrays behind it hold."""
        if not job.slots or job.id in self.victims:
            return
        kept = tuple(self._keep(job, slot) for slot in job.slots)
        working = taken(slot for slot in kept if not slot.is_draining)
        self._hold(job, working)
        self.kept.add(job, working)
        missing, held = most(job) - len(kept), taken(kept)
        added = self._add_slots(job, held, self._allowed(job, missing), held=held)
        self._claim_more(job, missing - len(added), held=(*held, *added))
        if added or kept != job.slots:
            self.changes.append(Regrouped(job, kept, added))

    def _keep(self, job: JobView, slot: Slot) -> Slot:
        if slot.is_draining or slot.node not in self.line.nodes:  # out of reach: as it is until we know more
            return slot
        rooms = (self.line, *self._after(job))
        may_stay = slot.node in self.line.table.allowed(job.shape.rules_of(0))
        if job.is_held or not may_stay or not all(room.has(slot) for room in rooms):
            return replace(slot, is_draining=True)
        for room in rooms:
            room.take(taken((slot,)))
        return slot

    def _allowed(self, job: JobView, wanted: int) -> int:
        return int(min(wanted, self.held.copies(job), self.kept.copies(job)))

    def _add_slots(self, job: JobView, first: Places, wanted: int, *, held: Places) -> Places:
        """Further slots on the nodes it is on, the `first`, and then on others."""
        found: Places = ()
        rooms = self._startable(job)
        for node in nodes_for_more(job, first, rooms) if wanted > 0 else ():
            places = beside(job.shape, node, rooms, count=wanted - len(found), held=held, is_steady=False)
            found += self._occupy(job, places) if places else ()
            if len(found) >= wanted:
                break
        return found

    def _claim_more(self, job: JobView, wanted: int, *, held: Places) -> None:
        rooms, left = self._claimable(), int(min(wanted, self.kept.copies(job)))
        for node in nodes_for_more(job, held, rooms, is_steady=True) if left > 0 else ():
            places = beside(job.shape, node, rooms, count=left, held=held, is_steady=True)
            if places:
                self._claim(job, places, is_new=False)
                self._stand_in_front(job)
                left -= len(places)
            if left <= 0:
                break
