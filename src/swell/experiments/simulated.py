"""The simulator as a cluster: what would each policy make of these gangs?

The real controller and planner in virtual time (`swell.sim`), so a run takes seconds. Under `kube-default`, which is
what the contender `default` means here, every rank is a job of its own that waits for its siblings, as for
Kubernetes' own scheduler; under the other policies a gang is one job. Gangs that are submitted at once arrive within
a second, and their pods are created side by side, as controllers do.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from swell.engines.simulated.behavior import Table
from swell.engines.simulated.timeline import BEGIN
from swell.experiments.events import EventKind, RunEvent
from swell.experiments.experiment import ClusterWanted, ContenderWanted, Experiment
from swell.experiments.figures import Capacity, RunEnd, RunFacts
from swell.experiments.measure import GangAsked
from swell.experiments.stuck import describe_waiting
from swell.experiments.too_large import refuse_too_large
from swell.model.job import AttemptId, JobId
from swell.model.resources import Resources
from swell.sim.clogging import POD_BY_POD, rigid_job
from swell.sim.simulation import Settings, Simulation
from swell.sim.traces.plain import SCALING_EXPONENT
from swell.sim.workload import SimCluster, SimJob, Workload

Progress = Callable[[int, int], None]  #: gangs that have ended, all gangs
EPOCHS = 20
RESTART_S = 30.0  # of a job that can be resized: until it trains again


@dataclass(frozen=True, slots=True)
class SimulatedPod:
    """Which rank of which gang a simulated job is; a job that is a gang has all of them."""

    gang: str
    rank: int | None


class SimulatedCluster:
    def __init__(self, wanted: ClusterWanted) -> None:
        self._wanted = wanted
        self.capacity = Capacity(wanted.nodes, wanted.nodes * wanted.cpus * 1000, wanted.nodes * wanted.gpus)

    def check(self, experiment: Experiment) -> None:
        """It is always clean, and it has every policy."""
        nodes = SimCluster.of(self._wanted.nodes, self._wanted.gpus, cpus=self._wanted.cpus).nodes
        refuse_too_large(experiment, [Resources(node.cpus_milli, node.memory_mib, len(node.devices)) for node in nodes])

    def describe(self) -> dict[str, Any]:
        nodes = [
            {"name": f"n{n:03}", "cpus": self._wanted.cpus, "gpus": self._wanted.gpus}
            for n in range(self._wanted.nodes)
        ]
        return {"nodes": nodes, "topology": {"kind": "simulator", "nodes": self._wanted.nodes}}

    def versions(self) -> dict[str, str]:
        """Those of Swell, which are told anyway."""
        return {}

    def close(self) -> None:
        """Nothing is held."""

    def contender_files(self) -> dict[str, bytes]:
        """Policies are configured by their names."""
        return {}

    def clean_up(self) -> None:
        """Every simulation has a cluster of its own."""

    def run(
        self,
        contender: ContenderWanted,
        gangs: Sequence[GangAsked],
        repeat: int,
        experiment: Experiment,
        progress: Progress,
    ) -> tuple[RunFacts, tuple[RunEvent, ...]]:
        chance = random.Random(f"{experiment.seed}/{repeat}")  # noqa: S311  an order, no secret
        pods = as_jobs(contender.policy, gangs, chance)
        is_elastic = any(job.width_max > job.width for job, _ in pods)
        simulation = Simulation(
            Workload("experiment", tuple(job for job, _ in pods)),
            SimCluster.of(self._wanted.nodes, self._wanted.gpus, cpus=self._wanted.cpus),
            Settings(
                policy=contender.policy,
                restart_s=RESTART_S if is_elastic else 0.0,
                longest_s=experiment.longest_s,
            ),
            progress=lambda done, total: progress(done * len(gangs) // max(1, total), len(gangs)),
        )
        seen = _Observer(simulation, {job.name: pod for job, pod in pods})
        simulation.run()
        submitted = [gang for gang in gangs if gang.submit_s <= experiment.longest_s]
        events = (*(RunEvent(gang.submit_s, EventKind.SUBMITTED, gang.name) for gang in submitted), *seen.events())
        waiting = describe_waiting(gangs, events)
        last = max((event.at for event in events), default=0.0)
        given_up = last + experiment.stuck_s
        if not waiting:
            end, watched_s = RunEnd.COMPLETE, last
        elif simulation.is_out_of_time or given_up > experiment.longest_s:
            end, watched_s = RunEnd.OUT_OF_TIME, experiment.longest_s
        else:
            end, watched_s = RunEnd.STUCK, given_up
        facts = RunFacts(
            contender.name,
            repeat,
            end,
            watched_s,
            tuple(gangs),
            self.capacity,
            waiting,
        )
        return facts, events


def as_jobs(policy: str, gangs: Sequence[GangAsked], chance: random.Random) -> list[tuple[SimJob, SimulatedPod]]:
    """In the order in which they arrive."""
    found: list[tuple[SimJob, SimulatedPod]] = []
    for moment in sorted({gang.submit_s for gang in gangs}):
        together = [gang for gang in gangs if gang.submit_s == moment]
        found += _pods(together, chance) if policy == POD_BY_POD else _whole(together)
    return found


def _pods(gangs: Sequence[GangAsked], chance: random.Random) -> list[tuple[SimJob, SimulatedPod]]:
    pods = [(gang, rank) for gang in gangs for rank in range(gang.size)]
    chance.shuffle(pods)
    return [
        (
            rigid_job(
                f"{gang.name}-{rank}",
                gang.submit_s + number / len(pods),
                1,
                duration_s=gang.duration_s,
                per_task=_needs(gang),
                gang=gang.name,
                gang_size=gang.size,
            ),
            SimulatedPod(gang.name, rank),
        )
        for number, (gang, rank) in enumerate(pods)
    ]


def _whole(gangs: Sequence[GangAsked]) -> list[tuple[SimJob, SimulatedPod]]:
    return [
        (_job(gang, gang.submit_s + number / len(gangs)), SimulatedPod(gang.name, None))
        for number, gang in enumerate(gangs)
    ]


def _job(gang: GangAsked, at: float) -> SimJob:
    if not gang.size_max:
        return rigid_job(gang.name, at, gang.size, duration_s=gang.duration_s, per_task=_needs(gang))
    one_s = gang.duration_s * gang.size**SCALING_EXPONENT / EPOCHS
    speeds = {(1, n): one_s / n**SCALING_EXPONENT for n in range(1, gang.size_max + 1)}
    return SimJob(gang.name, at, Table(speeds), EPOCHS, gang.size, gang.size, gang.size_max, per_task=_needs(gang))


def _needs(gang: GangAsked) -> Resources:
    return Resources(gang.cpus_milli, gang.memory_mib, gang.gpus)


class _Observer:
    """Hears of every start and end of an attempt, beside the simulation itself."""

    def __init__(self, simulation: Simulation, pods: dict[str, SimulatedPod]) -> None:
        self._simulation = simulation
        self._pods = pods
        self._events: list[RunEvent] = []
        self._of: dict[AttemptId, list[RunEvent]] = {}
        self._last: dict[JobId, list[int]] = {}  #: where the ends of its last attempt stand
        self._heard = simulation.engine.watch
        simulation.engine.watch = self._watch

    def _watch(self, attempt: AttemptId, width: int) -> None:
        self._heard(attempt, width)
        at = round(self._simulation.timeline.now() - BEGIN, 6)
        self._begin(attempt, at) if width else self._end(attempt, at)

    def _begin(self, attempt: AttemptId, at: float) -> None:
        assignment = self._simulation.engine.runs[attempt].assignment
        pod = self._pods[assignment.name]
        ranks = [(pod.rank if pod.rank is not None else slot.number, slot.node) for slot in assignment.slots]
        self._of[attempt] = [RunEvent(at, EventKind.BOUND, pod.gang, rank, str(node)) for rank, node in ranks]
        for bound in self._of[attempt]:
            for kind in (EventKind.CREATED, EventKind.BOUND, EventKind.RUNNING):
                node = bound.node if kind is EventKind.BOUND else ""
                self._events.append(RunEvent(at, kind, bound.gang, bound.rank, node))

    def _end(self, attempt: AttemptId, at: float) -> None:
        first = len(self._events)
        for bound in self._of.pop(attempt, []):
            self._events.append(RunEvent(at, EventKind.RELEASED, bound.gang, bound.rank))
        self._last[attempt.job] = list(range(first, len(self._events)))

    def events(self) -> list[RunEvent]:
        """A job that has ended did so with its last attempt; attempts before that were stopped."""
        found = list(self._events)
        for job, places in self._last.items():
            if self._simulation.store.job(job).ended_at is None:
                continue
            for place in places:
                event = found[place]
                found[place] = RunEvent(event.at, EventKind.SUCCEEDED, event.gang, event.rank)
        return found
