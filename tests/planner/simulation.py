"""What would happen next? A few lines of pure virtual time around the planner.

Plans are carried out with a lag, as in the real world: a job that was started is seen STARTING for a while,
an end is seen later than it happened, and a drained slot is held until its task has ended and that was seen.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count

from swell.model.cluster import Node
from swell.model.job import JobId, JobState
from swell.model.plan import JobView, Plan, SetSlots, Slot, Snapshot, Start


@dataclass(frozen=True)
class Arrival:
    at: float
    job: JobView
    lasts_s: tuple[float, ...]  #: of a gang the first counts; an array's tasks take them in turn


@dataclass(frozen=True)
class Outage:
    node: str
    since: float
    until: float


@dataclass(frozen=True)
class Story:
    """Everything that is going to happen, except for what the planner decides."""

    nodes: tuple[Node, ...]
    arrivals: tuple[Arrival, ...]
    outages: tuple[Outage, ...] = ()
    lags_s: tuple[float, ...] = (0.0,)  #: taken in turn by everything that is seen later than it happens

    @property
    def tasks(self) -> int:
        return sum(arrival.job.unfinished for arrival in self.arrivals)


@dataclass
class _Live:
    job: JobView
    lasts_s: tuple[float, ...]
    not_begun: int  #: tasks of an array

    def duration(self, task: int) -> float:
        return self.lasts_s[task % len(self.lasts_s)]


@dataclass
class Simulation:
    story: Story
    now: float = 0.0
    started: dict[JobId, float] = field(default_factory=dict)
    ended: dict[JobId, float] = field(default_factory=dict)
    drains: int = 0

    def __post_init__(self) -> None:
        self._live: dict[JobId, _Live] = {}
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()
        self._lag = count()
        for arrival in self.story.arrivals:
            self._at(arrival.at, lambda arrival=arrival: self._arrive(arrival))
        for moment in {edge for outage in self.story.outages for edge in (outage.since, outage.until)}:
            self._at(moment, lambda: None)

    # -- what the planner sees -------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        lost = {outage.node for outage in self.story.outages if outage.since <= self.now < outage.until}
        nodes = tuple(replace(node, is_reachable=node.id not in lost) for node in self.story.nodes)
        return Snapshot(self.now, nodes, tuple(live.job for live in self._live.values()))

    # -- time ------------------------------------------------------------------------------------------------

    def advance(self) -> bool:
        """To the next moment at which anything happens; False when nothing ever will."""
        if not self._queue:
            return False
        self.now = self._queue[0][0]
        while self._queue and self._queue[0][0] == self.now:
            heapq.heappop(self._queue)[2]()
        return True

    def _at(self, moment: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (moment, next(self._number), what))

    def _later(self, what: Callable[[], None]) -> None:
        """Now, or after a lag."""
        lags = self.story.lags_s
        lag = lags[next(self._lag) % len(lags)]
        self._at(self.now + lag, what) if lag else what()

    # -- what happens ----------------------------------------------------------------------------------------

    def _arrive(self, arrival: Arrival) -> None:
        self._live[arrival.job.id] = _Live(arrival.job, arrival.lasts_s, arrival.job.unfinished)

    def apply(self, plan: Plan) -> None:
        for action in plan.actions:
            if isinstance(action, Start):
                self._start(action)
            else:
                self._set_slots(action)

    def _start(self, start: Start) -> None:
        live = self._live[start.job]
        live.job = as_started(live.job, start, self.now)
        self.started.setdefault(start.job, self.now)
        if live.job.shape.is_array:
            self._open_lanes(live, start.slots)
        else:
            self._later(lambda: self._begin_gang(live))

    def _begin_gang(self, live: _Live) -> None:
        live.job = replace(live.job, state=JobState.RUNNING)
        self._at(self.now + live.duration(0), lambda: self._end_gang(live))

    def _end_gang(self, live: _Live) -> None:
        live.job = replace(live.job, state=JobState.STOPPING)
        self._later(lambda: self._end(live))

    def _end(self, live: _Live) -> None:
        self.ended[live.job.id] = self.now
        del self._live[live.job.id]

    # -- arrays ----------------------------------------------------------------------------------------------

    def _set_slots(self, change: SetSlots) -> None:
        live = self._live[change.job]
        before = {slot.number: slot for slot in live.job.slots}
        self.drains += sum(slot.is_draining and not before[slot.number].is_draining for slot in change.slots)
        live.job = replace(live.job, slots=change.slots)
        self._open_lanes(live, tuple(slot for slot in change.slots if slot.number not in before))

    def _open_lanes(self, live: _Live, slots: tuple[Slot, ...]) -> None:
        for slot in slots:
            self._later(lambda number=slot.number: self._next_task(live, number))

    def _next_task(self, live: _Live, number: int) -> None:
        """Begin one in this lane, or see that the lane has become empty for good."""
        slot = next(slot for slot in live.job.slots if slot.number == number)
        if slot.is_draining or not live.not_begun:
            self._later(lambda: self._close_lane(live, number))
            return
        live.not_begun -= 1
        live.job = replace(live.job, state=JobState.RUNNING)
        self._at(self.now + live.duration(live.not_begun), lambda: self._end_task(live, number))

    def _end_task(self, live: _Live, number: int) -> None:
        live.job = replace(live.job, unfinished=live.job.unfinished - 1)
        self._next_task(live, number)

    def _close_lane(self, live: _Live, number: int) -> None:
        left = tuple(slot for slot in live.job.slots if slot.number != number)
        live.job = replace(live.job, slots=left)
        if not left and not live.job.unfinished:
            self._end(live)
        elif not left:
            live.job = replace(live.job, state=JobState.QUEUED, started_at=None)


def as_started(job: JobView, start: Start, now: float) -> JobView:
    return replace(job, state=JobState.STARTING, slots=start.slots, started_at=now)


def applied(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The same moment, with the plan recorded and nothing of it seen yet."""
    jobs = dict(snapshot.jobs_by_id)
    for action in plan.actions:
        job = jobs[action.job]
        if isinstance(action, Start):
            jobs[action.job] = as_started(job, action, snapshot.now)
        else:
            jobs[action.job] = replace(job, slots=action.slots)
    return Snapshot(snapshot.now, snapshot.nodes, tuple(jobs.values()))
