"""What would happen next? A few lines of pure virtual time around the planner.

Plans are carried out with a lag, as in the real world: a job that was started is seen STARTING for a while,
an end is seen later than it happened, and a drained slot is held until its task has ended and that was seen.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count

from swell.model.cluster import Device, Node
from swell.model.job import JobId, JobState, ResizeMode
from swell.model.plan import JobView, Plan, Preempt, Resize, SetSlots, Slot, Snapshot, Standing, Start
from swell.model.training import Training

GRACE_S = 5.0


@dataclass(frozen=True)
class Trainee:
    """A gang that trains epoch by epoch, and says so."""

    epochs: int
    epoch_s: tuple[float, ...]  #: by width, from 1; the last counts for all above. More may be slower
    restart_s: float
    every: int | None  #: a checkpoint after so many epochs; None: it never makes one
    says_total: bool = True


@dataclass(frozen=True)
class Arrival:
    at: float
    job: JobView
    lasts_s: tuple[float, ...]  #: of a gang the first counts; an array's tasks take them in turn
    trainee: Trainee | None = None  #: None: it reports nothing
    uses_mib: int | None = None  #: of the GPU it shares, as is seen when it runs; None: what it reserved


@dataclass(frozen=True)
class Intrusion:
    """Processes outside Swell use a GPU for a while."""

    node: str
    device: str
    mib: int
    since: float
    until: float


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
    intrusions: tuple[Intrusion, ...] = ()
    cordons: tuple[Outage, ...] = ()  #: for a while nobody new is to go to a node of a cluster
    users: tuple[tuple[str, Standing], ...] = ()
    lags_s: tuple[float, ...] = (0.0,)  #: taken in turn by everything that is seen later than it happens

    @property
    def tasks(self) -> int:
        epochs = sum(arrival.trainee.epochs for arrival in self.arrivals if arrival.trainee)
        return epochs + sum(arrival.job.unfinished for arrival in self.arrivals)


@dataclass
class _Live:
    job: JobView
    lasts_s: tuple[float, ...]
    not_begun: int  #: tasks of an array
    trainee: Trainee | None = None
    uses_mib: int | None = None
    durable: int = 0  #: epochs
    done: int = 0
    life: int = 0  #: attempts; what was to happen in an earlier one does not
    measured: dict[int, float] = field(default_factory=dict)
    checkpoint_at: float | None = None

    def duration(self, task: int) -> float:
        return self.lasts_s[task % len(self.lasts_s)]


@dataclass
class Simulation:
    story: Story
    now: float = 0.0
    started: dict[JobId, float] = field(default_factory=dict)
    ended: dict[JobId, float] = field(default_factory=dict)
    drains: int = 0
    resizes: int = 0
    preemptions: list[tuple[JobId, JobId]] = field(default_factory=list)  #: victim, for whom
    lost_epochs: int = 0
    done_epochs: dict[JobId, list[int]] = field(default_factory=dict)  #: durable ones, in order

    def __post_init__(self) -> None:
        self._live: dict[JobId, _Live] = {}
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()
        self._lag = count()
        for arrival in self.story.arrivals:
            self._at(arrival.at, lambda arrival=arrival: self._arrive(arrival))
        edges = (*self.story.outages, *self.story.intrusions, *self.story.cordons)
        for moment in {moment for edge in edges for moment in (edge.since, edge.until)}:
            self._at(moment, lambda: None)

    # -- what the planner sees -------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        lost, cordoned = self._struck_by(self.story.outages), self._struck_by(self.story.cordons)
        nodes = tuple(
            replace(
                node,
                is_reachable=node.id not in lost,
                is_cordoned=node.id in cordoned,
                devices=self._used_devices(node),
            )
            for node in self.story.nodes
        )
        jobs = tuple(live.job for live in self._live.values())
        return Snapshot(self.now, nodes, jobs, users=dict(self.story.users))

    def _struck_by(self, outages: tuple[Outage, ...]) -> set[str]:
        return {outage.node for outage in outages if outage.since <= self.now < outage.until}

    def _used_devices(self, node: Node) -> tuple[Device, ...]:
        used = {
            one.device: one.mib
            for one in self.story.intrusions
            if one.node == node.id and one.since <= self.now < one.until
        }
        return tuple(replace(device, outsiders_mib=used.get(device.id, 0)) for device in node.devices)

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
        job = replace(arrival.job, lined_up_at=self.now)
        self._live[job.id] = _Live(job, arrival.lasts_s, arrival.job.unfinished, arrival.trainee, arrival.uses_mib)

    def apply(self, plan: Plan) -> None:
        for action in plan.actions:
            if isinstance(action, Start):
                self._start(action)
            elif isinstance(action, SetSlots):
                self._set_slots(action)
            else:
                self._ask(action)

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
        if live.uses_mib is not None:
            live.job = as_measured(live.job, live.uses_mib)
        if live.trainee is not None:
            live.life += 1
            self._next_epoch(live, live.life, live.trainee.restart_s)
            return
        self._at(self.now + live.duration(0), lambda: self._end_gang(live))

    def _end_gang(self, live: _Live) -> None:
        live.job = replace(live.job, state=JobState.STOPPING)
        self._later(lambda: self._end(live))

    def _end(self, live: _Live) -> None:
        self.ended[live.job.id] = self.now
        del self._live[live.job.id]

    # -- training --------------------------------------------------------------------------------------------

    def _next_epoch(self, live: _Live, life: int, pause_s: float = 0.0) -> None:
        assert live.trainee is not None
        curve = live.trainee.epoch_s
        lasts_s = curve[min(live.job.width, len(curve)) - 1]
        live.measured.setdefault(live.job.width, lasts_s)
        self._at(self.now + pause_s + lasts_s, lambda: self._end_epoch(live, life))

    def _end_epoch(self, live: _Live, life: int) -> None:
        assert live.trainee is not None
        if life != live.life or live.job.state is not JobState.RUNNING:
            return
        live.done += 1
        is_over = live.done == live.trainee.epochs
        if live.trainee.every is not None and (is_over or live.done % live.trainee.every == 0):
            self.done_epochs.setdefault(live.job.id, []).extend(range(live.durable, live.done))
            live.durable, live.checkpoint_at = live.done, self.now
        live.job = replace(live.job, training=self._told(live))
        if is_over:
            self._end_gang(live)
        elif live.job.yielding is not None and live.durable == live.done:
            self._leave(live)
        else:
            self._next_epoch(live, life)

    def _told(self, live: _Live) -> Training:
        assert live.trainee is not None
        left = float(live.trainee.epochs - live.durable) if live.trainee.says_total else None
        epoch_s = tuple((width, 1, seconds) for width, seconds in sorted(live.measured.items()))
        every_s = None if live.trainee.every is None else live.trainee.every * max(live.measured.values())
        return Training(left, epoch_s, live.trainee.restart_s, live.checkpoint_at, every_s)

    def _ask(self, action: Resize | Preempt) -> None:
        live = self._live[action.job]
        width = action.width if isinstance(action, Resize) else 0
        live.job = replace(live.job, yielding=width)
        if isinstance(action, Resize):
            self.resizes += 1
        else:
            self.preemptions.append((action.job, action.room_for))
        if action.room_for is not None:
            holder = self._live[action.room_for]
            holder.job = as_reserved(holder.job, self.now)
        life = live.life
        if action.when is ResizeMode.IMMEDIATE:
            self._leave(live)
        elif action.deadline_s is not None:
            self._at(self.now + action.deadline_s, lambda: self._overdue(live, life))

    def _overdue(self, live: _Live, life: int) -> None:
        if life == live.life and live.job.state is JobState.RUNNING and live.job.yielding is not None:
            self._leave(live)

    def _leave(self, live: _Live) -> None:
        live.job = replace(live.job, state=JobState.STOPPING)
        self.lost_epochs += live.done - live.durable
        live.done = live.durable
        self._later(lambda: self._line_up_again(live))

    def _line_up_again(self, live: _Live) -> None:
        ran_s = 0.0 if live.job.started_at is None else self.now - live.job.started_at
        waiting = replace(live.job, state=JobState.QUEUED, lined_up_at=self.now, used_s=live.job.used_s + ran_s)
        returns = live.job.yielding or None
        live.job = replace(waiting, slots=(), width=0, started_at=None, yielding=None, returns=returns)

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
            live.job = replace(live.job, state=JobState.QUEUED, started_at=None, lined_up_at=self.now)


def as_measured(job: JobView, mib: int) -> JobView:
    """What it reserves follows what it uses."""
    slots = tuple(replace(slot, resources=slot.resources.with_share(mib)) for slot in job.slots)
    return replace(job, shape=job.shape.with_shares(mib), slots=slots)


def as_started(job: JobView, start: Start, now: float) -> JobView:
    started = replace(job, state=JobState.STARTING, slots=start.slots, started_at=now, reserved_at=None, returns=None)
    return replace(started, width=start.width)


def as_reserved(job: JobView, now: float) -> JobView:
    """An array gives its lanes back to whoever stands before it, so it is not brought forward."""
    return job if job.shape.is_array or job.reserved_at is not None else replace(job, reserved_at=now)


def applied(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The same moment, with the plan recorded and nothing of it seen yet."""
    jobs = dict(snapshot.jobs_by_id)
    for action in plan.actions:
        job = jobs[action.job]
        if isinstance(action, Start):
            jobs[action.job] = as_started(job, action, snapshot.now)
        elif isinstance(action, SetSlots):
            jobs[action.job] = replace(job, slots=action.slots)
        else:
            is_now = action.when is ResizeMode.IMMEDIATE
            state = JobState.STOPPING if is_now else job.state
            width = action.width if isinstance(action, Resize) else 0
            jobs[action.job] = replace(job, yielding=width, state=state)
            if action.room_for is not None:
                jobs[action.room_for] = as_reserved(jobs[action.room_for], snapshot.now)
    return replace(snapshot, jobs=tuple(jobs.values()))
