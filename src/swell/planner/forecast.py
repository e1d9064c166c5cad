"""When would waiting jobs start? The planner itself, run forward.

A plan is made, carried out on the snapshot, and time goes on to the next moment at which a job ends; then again. No
new job arrives. Run times are unknown, so it is done twice, and what comes out is a range:

- *soon*: a job takes as long as its progress, its user's estimate or else what it has run so far say, and where that is
  only a guess half of it; never longer than its time limit.
- *late*: a job takes its whole time limit; without one half as long again as its progress says, or twice its
  estimate. A job of which nothing is known never ends, and who waits for its room has no latest moment.

The work is bounded (`PLANS_MAX`): in a cluster with thousands of jobs only the first starts are foreseen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from math import ceil

from swell.model.job import JobId, JobState
from swell.model.plan import ENDLESS, JobView, Plan, Preempt, Resize, SetSlots, Snapshot, Start
from swell.model.reason import Code
from swell.planner.preempt import may_yield_from
from swell.planner.price import time_left_s

PLANS_MAX, PLANS_MIN, JOBS_PLANNED_MAX = 60, 2, 20_000  # of one run: so many plans, or so many jobs in all of them
SAME_MOMENT_MAX = 4  # plans before time goes on; a resize takes two
LOOK_AGAIN_S = 15.0  # where a plan waits for something other than an end
LATER, MUCH_LATER, SOONER = 1.5, 2.0, 0.5
FOR_A_WHILE = (Code.WAITING_FOR_WIDTH, Code.WAITING_FOR_SHORTER)

Policy = Callable[[Snapshot], Plan]


@dataclass(frozen=True, slots=True)
class StartRange:
    """When a job would start: seconds from the snapshot on."""

    earliest_s: float | None  #: None: not within what was looked at
    latest_s: float | None  #: None: nobody can say


@dataclass(frozen=True, slots=True)
class Foreseen:
    """One way things may go."""

    starts: Mapping[JobId, tuple[float, int, tuple[str, ...]]]  #: first start: moment, width, nodes


class RunLength(Enum):
    SOON = "soon"
    LATE = "late"

    def lasts_s(self, job: JobView, now: float) -> float:
        """How long a job that has this width and these slots still runs."""
        limit_s = ENDLESS if job.shape.is_array else job.ends_at - now
        believed_s = _believed_s(job, now)
        has_progress = job.training is not None and bool(job.training.epoch_s) and job.training.left is not None
        if self is RunLength.SOON:
            return min(limit_s, believed_s if has_progress or job.estimate_s is not None else SOONER * believed_s)
        if limit_s < ENDLESS:
            return max(limit_s, 0.0)
        if has_progress:
            return LATER * believed_s
        return ENDLESS if job.estimate_s is None else MUCH_LATER * believed_s


def _believed_s(job: JobView, now: float) -> float:
    width = max(1, job.width or job.shape.width_min)
    if job.shape.is_array:
        return time_left_s(job, 1, 1, now) * ceil(job.unfinished / width)
    return time_left_s(job, width, max(1, len({slot.node for slot in job.slots})), now)


def forecast(snapshot: Snapshot, policy: Policy) -> dict[JobId, StartRange]:
    """Of every job that waits for room or its turn."""
    soon, late = (run_forward(snapshot, policy, run_length).starts for run_length in (RunLength.SOON, RunLength.LATE))
    waiting = [job.id for job in snapshot.jobs if job.state is JobState.QUEUED]
    return {job: start_range(soon.get(job), late.get(job), snapshot.now) for job in waiting}


def start_range(
    soon: tuple[float, int, tuple[str, ...]] | None, late: tuple[float, int, tuple[str, ...]] | None, now: float
) -> StartRange:
    """The plan of the late run may be the luckier one: what is earlier is the earliest."""
    if soon is None:
        return StartRange(None, None)
    if late is None:
        return StartRange(soon[0] - now, None)
    return StartRange(min(soon[0], late[0]) - now, max(soon[0], late[0]) - now)


def run_forward(snapshot: Snapshot, policy: Policy, run_length: RunLength) -> Foreseen:
    return _Forward(snapshot, policy, run_length).run()


class _Forward:
    """The jobs as they would be at one moment after the other."""

    def __init__(self, snapshot: Snapshot, policy: Policy, run_length: RunLength) -> None:
        self._first, self._policy, self._run_length = snapshot, policy, run_length
        self._now = snapshot.now
        self._jobs = {
            job.id: _settled(job, snapshot.now) for job in snapshot.jobs if job.state is not JobState.STOPPING
        }
        self._ends = {job.id: self._end(job) for job in self._jobs.values() if job.slots}
        self._starts: dict[JobId, tuple[float, int, tuple[str, ...]]] = {}
        self._awaited = {job.id for job in snapshot.jobs if job.state is JobState.QUEUED}

    def run(self) -> Foreseen:
        plans = max(PLANS_MIN, min(PLANS_MAX, JOBS_PLANNED_MAX // max(1, len(self._jobs))))
        at_this_moment = 0
        for _ in range(plans):
            plan = self._policy(replace(self._first, now=self._now, jobs=tuple(self._jobs.values())))
            at_this_moment += 1
            self._carry_out(plan)
            if not self._awaited - self._starts.keys():
                break
            if plan.actions and at_this_moment < SAME_MOMENT_MAX:
                continue
            moment = self._next_moment(plan)
            if moment is None:
                break
            self._go_on_to(moment)
            at_this_moment = 0
        return Foreseen(self._starts)

    def _end(self, job: JobView) -> float:
        return self._now + self._run_length.lasts_s(job, self._now)

    def _carry_out(self, plan: Plan) -> None:
        for action in plan.actions:
            job = self._jobs[action.job]
            if isinstance(action, Start):
                self._begin(job, action)
            elif isinstance(action, SetSlots):
                slots = tuple(slot for slot in action.slots if not slot.is_draining)
                self._jobs[job.id] = replace(job, slots=slots, width=len(slots))
                self._ends[job.id] = self._end(self._jobs[job.id])
            else:
                self._give_back(job, action)

    def _begin(self, job: JobView, start: Start) -> None:
        nodes = tuple(sorted({slot.node for slot in start.slots}))
        self._starts.setdefault(job.id, (self._now, start.width, nodes))
        begun = replace(
            job,
            state=JobState.RUNNING,
            slots=start.slots,
            width=start.width,
            started_at=self._now,
            yielding=None,
            returns=None,
            reserved_at=None,
        )
        self._jobs[job.id] = begun
        self._ends[job.id] = self._end(begun)

    def _give_back(self, job: JobView, action: Resize | Preempt) -> None:
        """At once: what it costs is small beside what is foreseen."""
        width = action.width if isinstance(action, Resize) else 0
        self._jobs[job.id] = _stopped(self._worked(job), width, self._now)
        self._ends.pop(job.id, None)

    def _worked(self, job: JobView) -> JobView:
        """With what it has done since it started."""
        training, began = job.training, job.started_at
        if training is None or training.left is None or began is None or not training.epoch_s:
            return job
        total_s = max(1e-9, _believed_s(job, began))
        left = training.left * max(0.0, 1 - (self._now - max(began, self._first.now)) / total_s)
        return replace(job, training=replace(training, left=left))

    def _next_moment(self, plan: Plan) -> float | None:
        """None: nothing will ever happen."""
        moments = [end for end in self._ends.values() if end < ENDLESS]
        moments += [job.not_before for job in self._jobs.values() if job.not_before is not None]
        moments += [at for job in self._jobs.values() if job.slots and (at := may_yield_from(job)) is not None]
        if any(verdict.code in FOR_A_WHILE for verdict in plan.verdicts.values()):
            moments.append(self._now + LOOK_AGAIN_S)
        return min((moment for moment in moments if moment > self._now), default=None)

    def _go_on_to(self, moment: float) -> None:
        self._now = moment
        ended = {job for job, end in self._ends.items() if end <= moment}
        for job in ended:
            del self._jobs[job], self._ends[job]
        for job, view in self._jobs.items():
            if ended.intersection(view.waits_for):
                self._jobs[job] = replace(view, waits_for=tuple(one for one in view.waits_for if one not in ended))


def _settled(job: JobView, now: float) -> JobView:
    """Whoever was asked to give its room back has done so; what drains is gone."""
    if job.yielding is not None and job.slots:
        return _stopped(job, job.yielding, now)
    if any(slot.is_draining for slot in job.slots):
        slots = tuple(slot for slot in job.slots if not slot.is_draining)
        return replace(job, slots=slots, width=len(slots)) if slots else _stopped(job, 0, now)
    return replace(job, state=JobState.RUNNING) if job.state is JobState.STARTING else job


def _stopped(job: JobView, width: int, now: float) -> JobView:
    """It lines up again, for this width; 0: for whatever it gets."""
    ran_s = 0.0 if job.started_at is None else max(0.0, now - job.started_at)
    return replace(
        job,
        state=JobState.QUEUED,
        slots=(),
        width=0,
        started_at=None,
        yielding=None,
        returns=width or None,
        used_s=job.used_s + ran_s,
        lined_up_at=now,
    )
