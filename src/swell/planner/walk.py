"""Who gets a seat, in line, and what is claimed, reserved or taken for those who wait?"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from swell.model.cluster import NodeId, with_lost_gpus
from swell.model.job import JobId, JobState
from swell.model.plan import JobView, Places, Slot, Snapshot, Verdict, taken
from swell.model.reason import Code
from swell.planner.fit import beside, find
from swell.planner.ground import answering
from swell.planner.place import Devices, foreign_gpus, held_gpus
from swell.planner.preempt import can_be_preempted, choose_victims, resumes
from swell.planner.quota import Sheet
from swell.planner.rank import is_late, may_change_slots, rank
from swell.planner.reserve import Holder, Reservation, reserve
from swell.planner.resize import least_places
from swell.planner.room import Room
from swell.planner.size import claim, most, seat


def _is_plain(snapshot: Snapshot) -> bool:
    """One user without limits, whose jobs have no estimates: nothing has to be asked of each that waits."""
    limited = any(one.is_limited for one in snapshot.users.values())
    alike = {(job.user, job.estimate_s) for job in snapshot.jobs}
    return not limited and len({user for user, _ in alike}) < 2 and all(estimate is None for _, estimate in alike)


class Walk:
    """The sheets of one planning run, and what has been decided so far."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        reached = answering(snapshot.nodes)
        held = held_gpus(snapshot)
        foreign = foreign_gpus(snapshot, held)
        every = with_lost_gpus(snapshot.nodes)
        self.empty = Room.of(every)  # the whole cluster, were nobody else there
        self.reachable = self.empty if reached is every else Room.of(reached)  # and the part that answers
        self.free = Room.of(reached, foreign=foreign)  # what nobody holds at this moment
        self.free.hold(snapshot.holding)
        self.line = self.free.copy()  # what those ahead leave over once arrays behind have given way
        self.holders: list[tuple[JobView, Places]] = []  # of what is missing in `line`
        self.seats: dict[JobId, Places] = {}  # what each of those that run keeps in `line`
        self.elastic: dict[JobId, JobView] = {}  # those of them whose width may change, or is about to
        self.victims: dict[JobId, tuple[JobView, JobId]] = {}  # and those that lose their place, and to whom
        self.claimer: JobId | None = None  # the first for whom others make room
        self.has_claims = False
        self.is_plain = _is_plain(snapshot)  # nobody is overtaken, late or limited
        self.held = Sheet(snapshot)  # what users hold at this moment
        self.kept = Sheet(snapshot)  # and what they keep in `line`
        for job in snapshot.holding:
            self._enter(job, job.places)
        self.spare = self.free.copy()  # what is free and nobody ahead has a claim to
        self.first: Reservation | None = None
        self.front: JobId | None = None  # the first that waits for room, with a claim or a reservation
        self.devices = Devices(snapshot, held | foreign)
        self.starts: list[tuple[JobView, Places]] = []
        self.changes: list[tuple[JobView, tuple[Slot, ...], Places]] = []  # an array's slots, and what it gets more
        self.verdicts: dict[JobId, Verdict] = {}
        # By the shape's id: hashing costs more than the rest of a refusal, and equal shapes are one object.
        self.refused: dict[int, Verdict] = {}
        self.passed_over: dict[int, Verdict] = {}  # room is free for them, as long as nobody starts

    def _enter(self, job: JobView, places: Places) -> None:
        self.held.add(job, places)
        if may_change_slots(job) or job.yielding == 0:
            self.line.give(places)
            return
        if job.shape.is_elastic and resumes(job) and self._can_be_counted_on(job):
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
        ground = self.line.ground
        if not ground.is_cluster:
            return True
        counts = [count for _, count in job.shape.tasks_at(job.width)]
        rules = [job.shape.rules_of(role) for role, count in enumerate(counts) for _ in range(count)]
        return all(slot.node in ground.allowed(rule) for slot, rule in zip(job.slots, rules, strict=True))

    @cached_property
    def lawless(self) -> Room:
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
        shape = id(job.shape)
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

    def after(self, job: JobView) -> tuple[Room, ...]:
        """The room beside the reservation, for one that would still be there when it begins."""
        if self.first is not None and self.first.is_outlived_by(job, self.snapshot.now):
            return (self.first.after,)
        return ()

    def _startable(self, job: JobView) -> tuple[Room, ...]:
        """What is there for it now. Shares stay off a GPU that has to become whole for somebody's claim."""
        is_share = any(resources.is_share for resources, _ in job.shape.roles)
        return (self.spare, *((self.line,) if is_share and self.has_claims else ()), *self.after(job))

    def _claimable(self) -> tuple[Room, ...]:
        # Nobody knows when a claim is fulfilled, so it leaves the reservation alone whatever its limit is.
        return (self.line,) if self.first is None else (self.line, self.first.after)

    # -- waiting jobs ------------------------------------------------------------------------------------

    def _visit_waiting(self, job: JobView) -> None:
        places = seat(job, self._startable(job)) if self.held.allows(job) else None
        if places is None:
            self._refuse(job)
        elif job.shape.is_array:
            node = places[0].node
            wanted = self._allowed(job, most(job))
            added = self._add_slots(job, node, wanted, held=0)
            self.starts.append((job, added))
            self._claim_more(job, node, most(job) - len(added), held=len(added))
        else:
            self.starts.append((job, self._occupy(job, places)))

    def _occupy(self, job: JobView, places: Places) -> Places:
        """With the GPUs it gets: whoever comes after it is to see what the next plan will see."""
        places = self.devices.take(places)
        for room in (self.free, self.spare, self.line, *self.after(job)):
            room.take(places)
        self._hold(job, places)
        for sheet in (self.held, self.kept):
            sheet.add(job, places, is_new=not job.slots)
        self.passed_over.clear()
        return places

    def _refuse(self, job: JobView) -> None:
        verdict = self._verdict(job)
        self.verdicts[job.id] = self._told(job, verdict)
        can_wait = verdict.code in (Code.WAITING_FOR_ROOM, Code.WAITING_IN_LINE)
        if can_wait and self._wait(job):
            return  # the next of its shape may get a claim as well
        if verdict.code is Code.WAITING_IN_LINE:
            self.passed_over[id(job.shape)] = verdict
        elif verdict.code is Code.WAITING_FOR_ROOM:
            self.refused[id(job.shape)] = replace(verdict, behind=self.front)
        else:
            self.refused[id(job.shape)] = verdict

    def _verdict(self, job: JobView) -> Verdict:
        shape = job.shape
        if find(shape, (self.empty,), is_steady=True) is None:
            is_kept_off = self.empty.ground.is_cluster and find(shape, (self.lawless,), is_steady=True) is not None
            return Verdict(Code.NO_SUITABLE_NODE if is_kept_off else Code.CANNOT_RUN_HERE)
        if find(shape, (self.reachable,), is_steady=True) is None:
            return Verdict(Code.WORKER_UNREACHABLE)
        if find(shape, (self.free,)) is None:
            return Verdict(Code.WAITING_FOR_ROOM, self.front)
        is_unclaimed = find(shape, (self.spare,)) is not None
        return Verdict(Code.WAITING_IN_LINE, self.first.job if self.first and is_unclaimed else self.front)

    def _wait(self, job: JobView) -> bool:
        """Keep room for it: arrays behind it give way; if that is not enough, the first one reserves."""
        places = claim(job, self._claimable())
        if places is None and not job.shape.is_array:
            places = self._preempt_for(job)
            if places is not None and self._can_start_after_all(job):
                return True
        if places is not None:
            self._claim(job, places, is_new=True)
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
        self.starts.append((job, self._occupy(job, places)))
        return True

    def _preempt_for(self, job: JobView) -> Places | None:
        """Take the room of jobs of lower priority; None: that would not be enough."""
        now = self.snapshot.now
        candidates = [
            (victim, self.seats[victim.id])
            for victim in self.snapshot.holding
            if rank(victim, now) < rank(job, now) and victim.id in self.seats and can_be_preempted(victim, now)
        ]
        chosen = choose_victims(job.shape, self._claimable(), candidates, now) if candidates else None
        if chosen is None:
            return None
        victims, places = chosen
        for victim in victims:
            self.victims[victim.id] = victim, job.id
            self.elastic.pop(victim.id, None)
            for room in self._claimable():
                room.give(self.seats[victim.id])
            self.kept.remove(victim, self.seats[victim.id])
            del self.seats[victim.id]
        gone = {victim.id for victim in victims}
        self.holders = [(job, places) for job, places in self.holders if job.id not in gone]
        return places

    def _stand_in_front(self, job: JobView) -> None:
        if self.front is None:
            self.front = job.id

    # -- arrays ------------------------------------------------------------------------------------------

    def _visit_array(self, job: JobView) -> None:
        """Keep the slots its turn allows, drain the rest, add what fits, claim what arrays behind it hold."""
        if not job.slots:
            return
        kept = tuple(self._keep(job, slot) for slot in job.slots)
        working = taken(slot for slot in kept if not slot.is_draining)
        self._hold(job, working)
        self.kept.add(job, working)
        node = kept[0].node
        missing = most(job) - len(kept)
        added = self._add_slots(job, node, self._allowed(job, missing), held=len(kept))
        self._claim_more(job, node, missing - len(added), held=len(kept) + len(added))
        if added or kept != job.slots:
            self.changes.append((job, kept, added))

    def _keep(self, job: JobView, slot: Slot) -> Slot:
        if slot.is_draining or slot.node not in self.line.nodes:  # out of reach: as it is until we know more
            return slot
        rooms = (self.line, *self.after(job))
        may_stay = slot.node in self.line.ground.allowed(job.shape.rules_of(0))
        if not may_stay or not all(room.has(slot) for room in rooms):
            return replace(slot, is_draining=True)
        for room in rooms:
            room.take(taken((slot,)))
        return slot

    def _allowed(self, job: JobView, wanted: int) -> int:
        return int(min(wanted, self.held.copies(job), self.kept.copies(job)))

    def _add_slots(self, job: JobView, node: NodeId, wanted: int, *, held: int) -> Places:
        """Further slots on the node it is on."""
        rooms = self._startable(job)
        places = beside(job.shape, node, rooms, count=wanted, held=held, is_steady=False)
        return self._occupy(job, places) if places else ()

    def _claim_more(self, job: JobView, node: NodeId, wanted: int, *, held: int) -> None:
        allowed = int(min(wanted, self.kept.copies(job)))
        places = beside(job.shape, node, self._claimable(), count=allowed, held=held, is_steady=True)
        if places:
            self._claim(job, places, is_new=False)
            self._stand_in_front(job)
