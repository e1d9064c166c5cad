"""What happens to a workload, from its first submission to its last end?

The controller, the store in memory and the planner are the real ones. A cycle follows whatever the planner should hear
of at once: a submission, an end, a deadline; reports wait for the next one, at most `tick_s`. With `pace_s` a cycle is
not sooner than so long after the last one, as a server that is busy has it. With `round_s` there is
a cycle at every multiple of it and at no other time, as published simulators have it; then cycles follow each other
until nothing changes any more, so what a round decides is done in that round.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from math import inf

from swell.controller import Controller
from swell.controller.reporting import Reporting
from swell.engines.simulated import Behavior, Saving, SimulatedEngine, Timeline
from swell.engines.simulated.timeline import BEGIN
from swell.model.job import AttemptId, Dimension, JobId, JobSpec, ResizeMode, Role
from swell.model.plan import Plan, Snapshot
from swell.planner.policies import DEFAULT_POLICY, POLICIES, check_of
from swell.sim.knowledge import Knowledge, Oracle, Promise
from swell.sim.workload import SimCluster, SimJob, Workload
from swell.store import JobRecord, NewJob
from swell.store.memory import MemoryStore

REPORTING = Reporting("http://127.0.0.1:1", lambda _: "simulated", "/checkpoints")
CYCLES_MAX = 100  # at one moment; a plan that is still changing things then never ends
RIGID = frozenset({"fifo", "backfill", "srtf", "tiresias", "kube-default"})  # policies that give what was asked for
RESIZE_MODES = {
    Saving.AT_ONCE: ResizeMode.IMMEDIATE,
    Saving.WHEN_ASKED: ResizeMode.IMMEDIATE,
    Saving.EPOCHS: ResizeMode.EITHER,
    Saving.NEVER: ResizeMode.NEVER,
}


@dataclass(frozen=True)
class Settings:
    """How a workload is simulated."""

    policy: str = DEFAULT_POLICY
    knowledge: Knowledge = Knowledge.BLANK
    saving: Saving = Saving.WHEN_ASKED
    shares_curves: bool = True  #: between jobs of one user and script, if speeds are not known anyway
    restart_s: float = 30.0  #: from the start of a job's processes to training
    save_s: float = 2.0  #: from being asked to the end, where jobs save when asked
    tick_s: float = 60.0  #: how long a report waits for a cycle at the most
    pace_s: float = 0.0  #: between two cycles there is at least so long, whatever happens
    round_s: float | None = None  #: decide at every multiple of this alone; None: whenever something happens
    longest_s: float = inf  #: it is over then, whatever happens


@dataclass(frozen=True)
class JobResult:
    """What became of one job; moments in seconds since the beginning."""

    name: str
    user: str
    submit_s: float
    start_s: float | None  #: None: it never ran
    end_s: float | None  #: None: it has not ended
    state: str
    restarts: int
    gpu_s: float
    lost_gpu_s: float
    alone_s: float  #: on an empty cluster, at its best width
    fair_s: float  #: on its equal share of the cluster: as many GPUs as there are for each job that is there
    problem: str | None = None  #: why it has not ended when nothing can happen any more; None: it has

    @property
    def completion_s(self) -> float | None:
        return None if self.end_s is None else self.end_s - self.submit_s


@dataclass(frozen=True)
class Result:
    jobs: tuple[JobResult, ...]
    widths: tuple[tuple[float, int, int], ...]  #: moment, job, GPUs it holds from then on
    cycles: int
    plan_s: tuple[float, ...] = field(default=(), compare=False)  #: CPU time of each decision, if it was measured


class Simulation:
    def __init__(
        self,
        workload: Workload,
        cluster: SimCluster,
        settings: Settings | None = None,
        *,
        busy: Callable[[], float] = lambda: 0.0,
        progress: Callable[[int, int], None] = lambda *_: None,
    ) -> None:
        """`busy`: CPU time of this thread, to measure decisions; it does not change what is decided."""
        self.workload = workload
        self.cluster = cluster
        self.settings = settings or Settings()
        self.timeline = Timeline()
        self.engine = self._make_engine()
        self.store = MemoryStore(self.timeline.now)
        self._busy = busy
        self._progress = progress
        self._plan_s: list[float] = []
        self._cycles = 0
        self.is_out_of_time = False  #: something would still have happened
        self._is_urgent = False
        self._widths: list[tuple[float, int, int]] = []
        self._held: dict[AttemptId, tuple[float, int]] = {}
        self._gpu_s: dict[JobId, float] = {}
        self._ids: dict[JobId, SimJob] = {}
        self._ended = 0
        self.controller = self._controller()
        self.engine.server = self.controller
        self.engine.watch = self._note_width
        for job in workload.jobs:
            self.timeline.at(BEGIN + job.submit_s, lambda job=job: self._submit(job))  # type: ignore[misc]

    def _make_engine(self) -> SimulatedEngine:
        return SimulatedEngine(self.timeline, self.cluster.nodes)

    def _controller(self) -> Controller:
        settings = self.settings
        self._oracle = Oracle(self.cluster, self.engine, settings.restart_s, settings.saving)
        plan: Callable[[Snapshot], Plan] = POLICIES[settings.policy]
        if settings.knowledge is Knowledge.KNOWN:
            plan = self._oracle.tells(plan)
        elif settings.saving in (Saving.AT_ONCE, Saving.WHEN_ASKED):
            plan = Promise().tells(plan)
        self._plan = plan
        controller = Controller(
            self.store,
            self.engine,
            self.timeline,
            keep_s=None,
            reporting=REPORTING,
            plan=self._timed(plan),
            check=check_of(settings.policy),
        )
        controller.load()
        return controller

    def _timed(self, plan: Callable[[Snapshot], Plan]) -> Callable[[Snapshot], Plan]:
        def timed(snapshot: Snapshot) -> Plan:
            began = self._busy()
            found = plan(snapshot)
            self._plan_s.append(self._busy() - began)
            return found

        return timed

    # -- what happens ----------------------------------------------------------------------------------------

    def _submit(self, job: SimJob) -> None:
        [record] = self.controller.submit([NewJob(self._spec(job), job.user, {})]).result()
        self._ids[record.id] = job
        self.engine.add(record.id, self._behavior(job))
        self._oracle.add(record.id, job)
        self._is_urgent = True

    def _spec(self, job: SimJob) -> JobSpec:
        low, high = (job.width, job.width) if self.settings.policy in RIGID else (job.width_min, job.width_max)
        high = max(low, min(high, self.cluster.gpus)) if job.per_task.gpus else high
        return JobSpec(
            name=job.script or job.name,
            roles=(Role("worker", ("train",), job.per_task, low),),
            dimension=Dimension.TASKS,
            width_min=low,
            width_max=high,
            array=None,
            priority=job.priority,
            time_limit_s=None,
            grace_s=30.0,
            workdir="/",
            env=(),
            umask=0o022,
            epochs=job.epochs,
            estimate_s=job.estimate_s,
            resize=RESIZE_MODES[self._saving(job)],
            has_own_curve=not (job.script and self._shares_curves),
        )

    @property
    def _shares_curves(self) -> bool:
        return self.settings.shares_curves and self.settings.knowledge is Knowledge.BLANK

    def _saving(self, job: SimJob) -> Saving:
        return self.settings.saving if job.resumes else Saving.NEVER

    def _behavior(self, job: SimJob) -> Behavior:
        return Behavior(
            job.speed,
            job.epochs,
            self._saving(job),
            restart_s=self.settings.restart_s,
            save_s=self.settings.save_s,
            reports=job.resumes,
            whole_seconds=job.whole_seconds,
            gang=job.gang,
            gang_size=job.gang_size,
        )

    def _note_width(self, attempt: AttemptId, width: int) -> None:
        now = self.timeline.now()
        self._widths.append((now - BEGIN, attempt.job, width))
        since, held = self._held.pop(attempt, (now, 0))
        self._gpu_s[attempt.job] = self._gpu_s.get(attempt.job, 0.0) + held * (now - since)
        if width:
            self._held[attempt] = now, width

    # -- time ------------------------------------------------------------------------------------------------

    def run(self) -> Result:
        tick = BEGIN - self.settings.pace_s
        while (moment := self._next_moment(tick)) is not None:
            if moment - BEGIN > self.settings.longest_s:
                self.is_out_of_time = True
                break
            self.timeline.advance(moment)
            if self._is_due(moment, tick):
                self._settle()
                tick = moment
        return self._result()

    def _next_moment(self, last: float) -> float | None:
        """When something happens, or a cycle is due; None: nothing ever will."""
        happens = self.timeline.next_moment
        if happens is None and not self._is_anybody_there:
            return None
        round_s = self.settings.round_s
        if round_s is not None:
            following = BEGIN + ((self.timeline.now() - BEGIN) // round_s + 1) * round_s
            return self._unless_stuck(happens, following)
        soonest, due = last + self.settings.pace_s, self.controller.next_due()
        if self._is_awaited:
            due = soonest if due is None else min(due, soonest)
        moments = [at for at in (happens, None if due is None else max(due, soonest)) if at is not None]
        latest = max(soonest, last + self.settings.tick_s)
        return self._unless_stuck(happens, min([*moments, latest]) if moments else None)

    @property
    def _is_awaited(self) -> bool:
        """Has something happened that waits for its cycle?"""
        return self._is_urgent or self.engine.has_news

    def _unless_stuck(self, happens: float | None, moment: float | None) -> float | None:
        """Nothing runs, nobody comes and the last cycle started nobody: so it will stay."""
        is_over = not self.engine.runs and not self._is_awaited
        return None if happens is None and is_over and self.controller.next_due() is None else moment

    @property
    def _is_anybody_there(self) -> bool:
        return bool(self.engine.runs) or bool(self.store.active())

    def _is_due(self, moment: float, last: float) -> bool:
        if self.settings.round_s is not None:
            return (moment - BEGIN) % self.settings.round_s == 0
        if moment - last < self.settings.pace_s:
            return False
        due = self.controller.next_due()
        is_deadline = due is not None and due <= moment
        return self._is_awaited or is_deadline or moment - last >= self.settings.tick_s

    def _settle(self) -> None:
        """Cycles, until what was decided at this moment is done."""
        for _ in range(CYCLES_MAX):
            self._is_urgent = False
            self._cycle()
            self._cycles += 1
            self.timeline.advance(self.timeline.now())
            if not self.engine.has_news and not self._is_urgent:
                break
        else:
            raise AssertionError(f"the plan still changes after {CYCLES_MAX} cycles at one moment")
        self._progress(self._count_ended(), len(self.workload.jobs))

    def _cycle(self) -> None:
        self.controller.cycle()

    def _count_ended(self) -> int:
        return len(self._ids) - len(self.store.active())

    # -- what came of it -------------------------------------------------------------------------------------

    def _result(self) -> Result:
        records = [self.store.job(job) for job in self._ids]
        crowd = Presence([(one.submitted_at, one.ended_at or self.timeline.now()) for one in records])
        jobs = tuple(self._job_result(one, self._ids[one.id], crowd) for one in records)
        return Result(jobs, tuple(self._widths), self._cycles, tuple(self._plan_s))

    def _job_result(self, record: JobRecord, job: SimJob, crowd: Presence) -> JobResult:
        restart_s = self.settings.restart_s
        there = crowd.mean(record.submitted_at, record.ended_at or self.timeline.now())
        return JobResult(
            job.name,
            job.user,
            record.submitted_at - BEGIN,
            None if record.started_at is None else record.started_at - BEGIN,
            None if record.ended_at is None else record.ended_at - BEGIN,
            str(record.state),
            max(0, record.attempts - 1),
            self._gpu_s.get(record.id, 0.0),
            record.lost_gpu_seconds,
            job.alone_s(self.cluster, restart_s),
            job.shared_s(self.cluster, restart_s, there),
            self._problem(record),
        )

    def _problem(self, record: JobRecord) -> str | None:
        reason = None if record.ended_at is not None else self.controller.reason(record)
        return None if reason is None else f"{reason.code}: {reason.message}"


class Presence:
    """How many jobs are there at each moment?"""

    def __init__(self, stays: list[tuple[float, float]]) -> None:
        self._moments = sorted({moment for stay in stays for moment in stay})
        change = Counter(begin for begin, _ in stays)
        change.subtract(end for _, end in stays)
        self._there = list(accumulate(change[moment] for moment in self._moments))  # from each moment on
        spans = (later - earlier for earlier, later in pairwise(self._moments))
        self._sums = [0.0, *accumulate(there * span for there, span in zip(self._there, spans, strict=False))]

    def mean(self, begin: float, end: float) -> float:
        """Of one stay, whose own two moments are among those known."""
        first, last = bisect_left(self._moments, begin), bisect_left(self._moments, end)
        return (self._sums[last] - self._sums[first]) / (end - begin) if end > begin else 1.0


def simulate(workload: Workload, cluster: SimCluster, settings: Settings | None = None) -> Result:
    return Simulation(workload, cluster, settings).run()
