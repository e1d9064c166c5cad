"""What does the planner know of the simulated jobs' speed?

Nothing but what they report (`blank`), or everything (`known`): then each job's view says how long an epoch takes at
every width and how much is left. Published policies assume the second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum

from swell.engines.simulated import Saving, SimulatedEngine
from swell.engines.simulated.behavior import Placement
from swell.engines.simulated.engine import SimulatedRun
from swell.model.job import JobId
from swell.model.plan import JobView, Plan, Snapshot
from swell.model.training import Training
from swell.sim.workload import SimCluster, SimJob, compact, widths

Timings = tuple[tuple[int, int, float], ...]  #: width, nodes → seconds for one epoch


class Knowledge(StrEnum):
    BLANK = "blank"
    KNOWN = "known"


class Oracle:
    """Tells a policy the truth about jobs."""

    def __init__(self, cluster: SimCluster, engine: SimulatedEngine, restart_s: float, saving: Saving) -> None:
        self._cluster = cluster
        self._engine = engine
        self._restart_s = restart_s
        self._saving = saving
        self._jobs: dict[JobId, SimJob] = {}
        self._curves: dict[tuple[int, int, int, int], Timings] = {}

    def add(self, job: JobId, simulated: SimJob) -> None:
        self._jobs[job] = simulated

    def tells(self, plan: Callable[[Snapshot], Plan]) -> Callable[[Snapshot], Plan]:
        """The policy, with what it knows."""
        return lambda snapshot: plan(self.told(snapshot))

    def told(self, snapshot: Snapshot) -> Snapshot:
        runs = {attempt.job: run for attempt, run in self._engine.runs.items()}
        jobs = tuple(self._view(job, snapshot.now, runs.get(job.id)) for job in snapshot.jobs)
        return replace(snapshot, jobs=jobs)

    def _view(self, view: JobView, now: float, run: SimulatedRun | None) -> JobView:
        job = self._jobs.get(view.id)
        if job is None or not job.resumes:
            return view
        done = _durable(view, job) if run is None else run.progress(now)
        known = view.training or Training()
        is_safe = view.slots and self._saving is not Saving.EPOCHS
        training = replace(
            known,
            left=max(0.0, job.epochs - done),
            counted_at=None,
            lengths=1.0,
            left_error=0.0,
            epoch_s=self._timings(job, int(done), run),
            restart_s=self._restart_s,
            checkpoint_at=now if is_safe else known.checkpoint_at,
        )
        return view.knowing(training)

    def _timings(self, job: SimJob, done: int, run: SimulatedRun | None) -> Timings:
        """By width on as few nodes as possible, and where it runs, if that is on more."""
        compact_ones = self._curve(job, done)
        if run is None or not run.placement or len(run.placement) == len(self._compact(sum(run.placement))):
            return compact_ones
        here = sum(run.placement), len(run.placement), self._mean_s(job, run.placement, done)
        return tuple(sorted((*compact_ones, here)))

    def _compact(self, width: int) -> Placement:
        return compact(width, self._cluster.gpus_per_node)

    def _curve(self, job: SimJob, done: int) -> Timings:
        """Mean seconds of the epochs that are left, by width, on as few nodes as possible."""
        key = id(job.speed), done, job.width_min, job.width_max
        if key not in self._curves:
            high = min(job.width_max, max(1, self._cluster.gpus))
            placements = [self._compact(width) for width in widths(job.width_min, high)]
            self._curves[key] = tuple((sum(one), len(one), self._mean_s(job, one, done)) for one in placements)
        return self._curves[key]

    def _mean_s(self, job: SimJob, placement: Placement, done: int) -> float:
        done = min(done, job.epochs - 1)
        return job.left_s(placement, float(done)) / (job.epochs - done)


def _durable(view: JobView, job: SimJob) -> float:
    left = None if view.training is None else view.training.left
    return 0.0 if left is None else job.epochs - left


class Promise:
    """Tells a policy that jobs which save when they are asked lose nothing."""

    def tells(self, plan: Callable[[Snapshot], Plan]) -> Callable[[Snapshot], Plan]:
        return lambda snapshot: plan(replace(snapshot, jobs=tuple(_safe(job, snapshot.now) for job in snapshot.jobs)))


def _safe(job: JobView, now: float) -> JobView:
    if job.training is None or not job.slots:
        return job
    return job.knowing(replace(job.training, checkpoint_at=now))
