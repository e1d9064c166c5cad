"""Where does every job go, and what of that can be done now?

All widths are decided together (size.py), so all places are, too. Jobs that keep their width stay where they are. The
others are fitted around them, the widest first: on one node if it holds them, else on whole nodes, and what is left
over where it fits tightest. Room that a waiting job was promised floats: it is kept somewhere, not on certain GPUs, so
nobody has to leave because of where it was first found. Only if a job finds no place at all is everybody fitted again
around the seat that it was admitted with.

What is free at this moment is begun at once. A job that starts waits a little for its whole width, when others are
about to give it (`PATIENCE_RESTARTS`): growing later would cost it a restart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from swell.model.job import JobId, JobState
from swell.model.plan import ENDLESS, JobView, Places, Snapshot, Start, Verdict
from swell.model.reason import Code
from swell.planner.admit import Admitted, Seated
from swell.planner.devices import slots_of
from swell.planner.fit import find, most_tasks
from swell.planner.interrupt import gain, is_worth, restart_s, weigh
from swell.planner.preempt import can_yield, resumes
from swell.planner.price import GROW_LASTS_S, Option, lost_s, nodes_of, time_left_s
from swell.planner.room import Room, unnamed
from swell.planner.seat import least_places
from swell.planner.size import Seat, Widths, elastic_seats, gpus_per_step, size, size_again

PATIENCE_RESTARTS = 2.0  # how long a job waits for a better seat: two restarts, as coming back for it costs one
LOOKS_MAX = 4  # how often widths are chosen again because of where there is room
LOOKS_JOBS_MAX = 200  # with more jobs than this, once: there are other places, and it would take too long
PINNED_MAX = 3  # jobs that are kept their seats one by one; then all are
MANY_JOBS = 2000  # above this number each look takes a second: widths are chosen once, and seats kept all at once
SAME = 1.02  # a seat that is slower by less than this is as good

#: Why those wait who take room as soon as their turn comes.
AWAIT_ROOM = frozenset(
    {Code.WAITING_TO_RETRY, Code.OVER_ESTIMATE, Code.FAIR_SHARE, Code.WAITING_FOR_ROOM, Code.WAITING_IN_LINE}
)


@dataclass(frozen=True, slots=True)
class NewWidth:
    """A running job that is to have another width, for which there is room now."""

    job: JobView
    width: int
    left_s: float  #: how long it would take there, as far as anybody knows

    def gain(self, now: float) -> float:
        job = self.job
        return gain(job, self.width, time_left_s(job, job.width, nodes_of(job), now), self.left_s)


@dataclass(frozen=True, slots=True)
class Placed:
    """Everything that happens now to jobs that are no arrays."""

    starts: tuple[Start, ...]
    resizes: tuple[NewWidth, ...]
    waiting: Mapping[JobId, Verdict]  #: of those that could start and wait for a better seat


def patience_s(job: JobView) -> float:
    """How long it waits for a better seat at the most."""
    return PATIENCE_RESTARTS * restart_s(job)


class _Choice(NamedTuple):
    """A width, where it is, and how long the job would take there."""

    width: int
    places: Places
    left_s: float


def place(snapshot: Snapshot, admitted: Admitted, widths: Widths) -> Placed:
    """Those that start first. Then the others, beside them: what the next plan will see."""
    fitted = _fit_worthwhile(snapshot, admitted, widths)
    starts, waiting = _starts(snapshot, admitted, fitted)
    if not any(can_yield(job, snapshot.now) for job in admitted.elastic.values()):
        return Placed(tuple(starts), (), waiting)  # nobody can have another width now
    if starts:
        admitted = _with_started(snapshot, admitted, starts)
        fitted = _fit_worthwhile(snapshot, admitted, size(snapshot, admitted, widths))
    return Placed(tuple(starts), tuple(_resizes(snapshot, admitted, fitted)), waiting)


class _Fitted(NamedTuple):
    """Where everybody goes."""

    targets: Mapping[JobId, _Choice]
    now: Mapping[JobId, _Choice]  #: of those that can be there at once
    pinned: frozenset[JobId]  #: who was kept the seat that it was admitted with


def _fit_worthwhile(snapshot: Snapshot, admitted: Admitted, widths: Widths) -> _Fitted:
    """Widths are chosen as if every place were compact. Where that is not so, they are chosen again, knowing it.

    Whoever would only lose in the end, where there is room for it, keeps its width.
    """
    known: dict[tuple[JobId, int], float] = {}
    kept: dict[JobId, int] = {}
    jobs = len(widths.contenders)
    looks = LOOKS_MAX if jobs <= LOOKS_JOBS_MAX else 1 if jobs <= MANY_JOBS else 0
    pinned: frozenset[JobId] = frozenset()
    while True:
        fitted = _fit(snapshot, admitted, widths, pinned)
        pinned = fitted.pinned if jobs > MANY_JOBS else pinned
        slower = _slower_than_thought(widths, fitted) if looks else {}
        losing = {job.id: job.width for job in admitted.elastic.values() if _loses(job, widths, fitted.targets[job.id])}
        if not slower and not losing.keys() - kept.keys():
            return fitted
        looks -= bool(slower)
        known |= slower
        kept |= {} if slower else losing
        widths = size_again(widths, kept=kept, known=known)


def _slower_than_thought(widths: Widths, fitted: _Fitted) -> dict[tuple[JobId, int], float]:
    """By job and width: how long it would take where it found a place; nothing is known of where it found none."""
    found: dict[tuple[JobId, int], float] = {}
    for job, one in widths.contenders.items():
        width = widths.by_job[job]
        if not width:
            continue
        choice = fitted.targets[job]
        if one.fixed is None and width != one.present and SAME * one.option(width).left_s < choice.left_s < ENDLESS:
            found[job, width] = choice.left_s
    return found


def _loses(job: JobView, widths: Widths, choice: _Choice) -> bool:
    """Was its new width to make it faster, and would not, where it found a place?"""
    one = widths.contenders[job.id]
    if choice.width == job.width or one.fixed is not None:
        return False
    present, wanted = one.option(job.width), one.option(widths.of(job))
    if wanted.left_s >= present.left_s and choice.width == wanted.width:
        return False  # it makes room
    return one.option(choice.width).kept / choice.left_s <= 1 / present.left_s


def _fit(snapshot: Snapshot, admitted: Admitted, widths: Widths, pinned: frozenset[JobId]) -> _Fitted:
    """`pinned`: those that are kept their seats from the start."""
    # Nobody knows when a claim is fulfilled, so it stays beside a reservation, where it was found.
    if admitted.reservation:
        pinned |= {one.job.id for one in admitted.claims}
    while True:
        fitting = _Fitting(snapshot, admitted, widths, pinned)
        stuck = fitting.run()
        if stuck is None:
            return _Fitted(fitting.targets, fitting.now, pinned)
        is_one_more = len(pinned) < PINNED_MAX and len(fitting.seats) <= MANY_JOBS
        pinned = pinned | {stuck} if is_one_more else frozenset(seat.job.id for seat in fitting.seats)


class _Fitting:
    """What has been given away so far, on copies of the rooms."""

    def __init__(self, snapshot: Snapshot, admitted: Admitted, widths: Widths, pinned: frozenset[JobId]) -> None:
        self._snapshot, self._admitted, self._widths, self._pinned = snapshot, admitted, widths, pinned
        rigid = [Seat(one.job, one.places) for one in admitted.claims if not one.job.shape.is_elastic]
        self.seats = [*elastic_seats(admitted, snapshot.now), *rigid]
        self._starting = {one.job.id: one.places for one in admitted.starts}
        self._held = admitted.held.copy()
        self._left = admitted.line.copy()  # what is there in the end
        self._free = admitted.spare.copy()  # what is there at this moment
        first = admitted.reservation
        self._after = None if first is None else first.after.copy()
        self.targets: dict[JobId, _Choice] = {}
        self.now: dict[JobId, _Choice] = {}

    def run(self) -> JobId | None:
        """The first job that found no place, although it was not kept its seat; None: all have."""
        for seat in self.seats:
            if seat.job.id not in self._pinned:
                self._give_seat(seat)
        staying = [seat for seat in self.seats if seat.job.slots and self._widths.of(seat.job) == seat.job.width]
        moving = [seat for seat in self.seats if not seat.job.slots or self._widths.of(seat.job) != seat.job.width]
        moving += [seat for seat in sorted(staying, key=lambda seat: seat.job.id) if not self._stay(seat)]
        for seat in sorted(moving, key=lambda seat: (-self._widths.of(seat.job), seat.job.id)):
            if self._widths.of(seat.job) and not self._settle(seat):
                return seat.job.id
        return None

    def _give_seat(self, seat: Seat) -> None:
        self._left.give(seat.places)
        if not seat.job.slots:
            self._free.give(seat.places)
            if seat.job.id in self._starting and self._beside(seat.job):
                self._after_room.give(seat.places)

    @property
    def _after_room(self) -> Room:
        assert self._after is not None
        return self._after

    def _beside(self, job: JobView) -> tuple[Room, ...]:
        """What it must leave alone: the room beside the reservation, if it would still be there when that begins.

        On one machine a job that can give room back may use what is reserved for later: its seat stays where it is.
        Where there are several it might come back to another one, and be in the way there.
        """
        first = self._admitted.reservation
        if first is None or not first.is_outlived_by(job, self._snapshot.now):
            return ()
        return () if resumes(job) and len(self._snapshot.nodes) == 1 else (self._after_room,)

    # -- jobs that stay --------------------------------------------------------------------------------------

    def _stay(self, seat: Seat) -> bool:
        """Where it is, if that is still its own."""
        if seat.job.id in self._pinned:
            self._left.give(seat.places)
        places = self._places_now(seat.job)
        if places is None:
            if seat.job.id in self._pinned:
                self._left.take(seat.places)
            return False
        self._left.take(places)
        self.targets[seat.job.id] = _Choice(seat.job.width, places, 0.0)
        return True

    def _places_now(self, job: JobView) -> Places | None:
        """Where it runs; None: others have been given that room."""
        return job.places if self._left.would_be_whole(job.places, job.sums) else None

    # -- jobs that move or start -----------------------------------------------------------------------------

    def _settle(self, seat: Seat) -> bool:
        job, is_pinned = seat.job, seat.job.id in self._pinned
        if is_pinned:
            self._give_seat(seat)
        rooms = (self._left, *self._beside(job))
        choice = self._choose(job, rooms)
        if choice is None:
            if not is_pinned:
                return False
            choice = _Choice(job.shape.width_min, seat.places, ENDLESS)
        self.targets[job.id] = self._begin(job, rooms, choice) if not job.slots else self._change(job, rooms, choice)
        for room in rooms:
            room.take(self.targets[job.id].places)
        return True

    def _begin(self, job: JobView, rooms: Sequence[Room], choice: _Choice) -> _Choice:
        """A job without room: at once, where that is as good, or its patience is at an end."""
        at_once = None
        if job.id in self._starting:
            at_once = self._choose(job, (*rooms, self._free), width_max=self._within_limit(job))
        if at_once is not None and (at_once.left_s <= SAME * choice.left_s or not self._has_patience(job)):
            self.now[job.id] = choice = at_once
            self._held.remove(job, self._starting[job.id])
            self._held.add(job, choice.places)
        self._free.take(choice.places)
        return choice

    def _has_patience(self, job: JobView) -> bool:
        return self._snapshot.now - job.lined_up_at < patience_s(job)

    def _within_limit(self, job: JobView) -> int:
        """What its user's limit allows now, while others still hold what they may have to give back."""
        step, spare = gpus_per_step(job.shape), self._held.spare_gpus(job.user)
        if not step or spare == ENDLESS:
            return job.shape.width_max
        return job.shape.width_min + max(0, int(spare // step))

    def _change(self, job: JobView, rooms: Sequence[Room], choice: _Choice) -> _Choice:
        """A job that runs. It grows only into room that is free: otherwise it would come back as narrow as it was."""
        if choice.width <= job.width:
            return choice
        self._free.give(job.places)
        at_once = find(job.shape, (*rooms, self._free), width=choice.width)
        self._free.take(job.places)  # what it leaves is not free before it has been seen to leave
        if at_once is None or self._nodes(at_once) > self._nodes(choice.places):
            return choice
        self.now[job.id] = choice._replace(places=at_once)
        self._free.take(at_once)
        return self.now[job.id]

    def _nodes(self, places: Places) -> int:
        return len({place.node for place in places})

    def _choose(self, job: JobView, rooms: Sequence[Room], width_max: int | None = None) -> _Choice | None:
        """The place where it is done soonest: spread over many nodes it may be slower than narrower on fewer."""
        best: _Choice | None = None
        most = max(job.shape.width_min, min(width_max or job.shape.width_max, job.shape.width_max))
        has_failed = False
        for option in self._widths.at_most(job):
            stays = job.slots and option.width == job.width
            if option.width > most and not stays:
                continue
            places = self._places_now(job) if stays else find(job.shape, rooms, width=option.width)
            if places is None:
                if not has_failed:
                    has_failed, most = True, max(job.shape.width_min, min(most, most_tasks(job.shape, rooms)))
                continue
            nodes = self._nodes(places)
            left_s = self._time_left_s(job, option, nodes)
            if best is None or left_s < best.left_s:
                best = _Choice(option.width, places, left_s)
            if stays or nodes <= option.nodes:
                break
        return best

    def _time_left_s(self, job: JobView, option: Option, nodes: int) -> float:
        if not job.shape.is_elastic or nodes <= option.nodes:
            return option.left_s
        return time_left_s(job, option.width, nodes, self._snapshot.now)


# -- what is done now ----------------------------------------------------------------------------------------


def _starts(snapshot: Snapshot, admitted: Admitted, fitted: _Fitted) -> tuple[list[Start], dict[JobId, Verdict]]:
    """With devices; GPUs side by side for elastic jobs, whose widths are known only now.

    A job that will still be there when the reservation begins chooses first, beside it.
    """
    devices, first = admitted.devices.copy(), admitted.reservation
    elastic = [one for one in admitted.starts if one.job.shape.is_elastic]
    for one in reversed(elastic):
        devices.give(one.places)
    found = {one.job.id: _start(one) for one in admitted.starts if not one.job.shape.is_elastic}
    for one in sorted(elastic, key=lambda one: not (first and first.is_outlived_by(one.job, snapshot.now))):
        choice = fitted.now.get(one.job.id)
        if choice is not None:
            slots = slots_of(devices.take(unnamed(choice.places)))
            found[one.job.id] = Start(one.job.id, choice.width, slots)
    waiting = {one.job.id: Verdict(_for_what(one, fitted)) for one in elastic if one.job.id not in found}
    return [found[one.job.id] for one in admitted.starts if one.job.id in found], waiting


def _for_what(one: Seated, fitted: _Fitted) -> Code:
    return Code.WAITING_FOR_WIDTH if one.job.id in fitted.targets else Code.WAITING_FOR_SHORTER


def _start(one: Seated) -> Start:
    width = len(one.places) if one.job.shape.is_array else one.job.shape.width_min
    return Start(one.job.id, width, slots_of(one.places))


def _with_started(snapshot: Snapshot, admitted: Admitted, starts: list[Start]) -> Admitted:
    """As the next plan will have it: in the queue a job that resumes keeps its least width."""
    line, spare, kept = admitted.line.copy(), admitted.spare.copy(), admitted.kept.copy()
    elastic, seats = dict(admitted.elastic), dict(admitted.seats)
    started = {start.job: start for start in starts}
    first = admitted.reservation
    after = None if first is None else first.after.copy()
    for one in admitted.starts:
        start = started.get(one.job.id)
        if start is None or not one.job.shape.is_elastic:
            continue
        begun = replace(one.job, state=JobState.STARTING, width=start.width, slots=start.slots, started_at=snapshot.now)
        keeps = least_places(begun) if resumes(one.job) else begun.places
        rooms: tuple[tuple[Room, Places], ...] = (spare, begun.places), (line, keeps)
        if first is not None and after is not None and first.is_outlived_by(one.job, snapshot.now):
            rooms = (*rooms, (after, begun.places))
        for room, places in rooms:
            room.give(one.places)
            room.take(places)
        if resumes(one.job):
            elastic[one.job.id], seats[one.job.id] = begun, keeps
        else:
            kept.remove(one.job, one.places)
            kept.add(one.job, keeps)
    still = tuple(one for one in admitted.starts if one.job.shape.is_elastic and one.job.id not in started)
    return replace(
        admitted,
        starts=(),
        claims=(*admitted.claims, *still),
        elastic=elastic,
        seats=seats,
        line=line,
        spare=spare,
        kept=kept,
        reservation=None if first is None or after is None else replace(first, after=after),
    )


def _resizes(snapshot: Snapshot, admitted: Admitted, fitted: _Fitted) -> list[NewWidth]:
    movable = [job for job in admitted.elastic.values() if can_yield(job, snapshot.now)]
    changing = [NewWidth(job, fitted.targets[job.id].width, fitted.targets[job.id].left_s) for job in movable]
    awaited = _is_room_awaited(snapshot, admitted)
    return [
        one
        for one in sorted(changing, key=lambda one: one.job.id)
        if one.width < one.job.width
        or (
            one.width > one.job.width
            and one.job.id in fitted.now
            and _may_grow(one.job, snapshot.now, awaited=awaited)
            and _grows_now(one, snapshot.now)
        )
    ]


def _may_grow(job: JobView, now: float, *, awaited: bool) -> bool:
    """A job that would lose work leaves room alone that others are about to use: it would have to shrink again."""
    return not awaited or job.wanted is not None or lost_s(job, now) <= 0


def _grows_now(one: NewWidth, now: float) -> bool:
    """Rather than at the end of its epoch. Asked already now to stop there, it would keep the room from others."""
    stop = weigh(one.job, now)
    return stop is None or one.job.wanted is not None or is_worth(stop, one.gain(now))


def _is_room_awaited(snapshot: Snapshot, admitted: Admitted) -> bool:
    """Does somebody wait who fits into what is free, or for whom room is kept that is soon all there?"""
    first = admitted.reservation
    if first is not None and first.starts_at - snapshot.now < GROW_LASTS_S:
        return True
    waiting = (snapshot.jobs_by_id[job] for job, one in admitted.verdicts.items() if one.code in AWAIT_ROOM)
    shapes = {id(job.shape): job.shape for job in waiting}
    return any(find(shape, (admitted.free,)) is not None for shape in shapes.values())
