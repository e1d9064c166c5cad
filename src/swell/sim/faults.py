"""Do the promises of the controller hold when everything around it fails?

A small workload is simulated while nodes vanish and come back, reports are lost, told twice or late, calls of the
engine fail before or after they have done what they were asked, or are done later although they failed, the engine
says that something was started or stopped which was not, facts are told again, and the server dies between writing a
decision down and carrying it out. After every cycle the promises are checked (`FaultySimulation.judge`):
those of the list of invariants that concern the server. Who may read what, and what the in-job library costs, are not
simulated; other tests hold those. Everything follows from one seed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from swell.engines.simulated import JobServer, Saving, SimulatedEngine, Timeline
from swell.engines.simulated.behavior import Table
from swell.engines.simulated.timeline import BEGIN
from swell.errors import SwellError, Unavailable
from swell.model.assignment import Assignment
from swell.model.cluster import Node
from swell.model.job import AttemptId, JobId, JobState
from swell.model.launch import CAUSE_NODE_LOST, Observation, TaskSeen
from swell.model.training import Control, Report
from swell.sim.simulation import Result, Settings, Simulation
from swell.sim.workload import SimCluster, SimJob, Workload

RETRY_S = 2.0  # after a cycle that failed, as the server's loop does
LATE_S_MAX = 90.0  # after which the engine does what it said it had done, or finds out that it never did
TROUBLE_S = 1500.0  # then nothing more goes wrong, and everything must come right
LOOKED_AT_AGAIN = 0.1  # part of the plans that are made again in another order
ATTEMPTS_MAX = 60  # of one job; more would be a job that is moved about without end


class ServerDied(Exception):
    """The process is gone; only the store is left."""


class FaultyServer:
    """Reports get lost, arrive twice or late."""

    def __init__(self, server: JobServer, timeline: Timeline, chance: random.Random) -> None:
        self._server = server
        self._timeline = timeline
        self._chance = chance

    def report(self, told: Report) -> None:
        fate = self._chance.random() if self._timeline.now() < BEGIN + TROUBLE_S else 1.0
        if fate < 0.1:
            return
        if fate < 0.2:
            late = self._timeline.now() + self._chance.uniform(1, 90)
            self._timeline.at(late, lambda: self._tell(told))
            return
        if fate < 0.3:
            self._tell(told)
        self._tell(told)

    def _tell(self, told: Report) -> None:
        try:
            self._server.report(told)
        except SwellError:
            return  # whoever reports to a server that is ending hears so, and goes on

    def control(self, attempt: AttemptId) -> Control:
        try:
            return self._server.control(attempt)
        except SwellError:
            return Control()


class FaultyEngine(SimulatedEngine):
    """Calls fail, before or after they have had their effect, or have it later; the engine says that it has done what
    it has not; facts are told again."""

    def __init__(self, timeline: Timeline, nodes: tuple[Node, ...], chance: random.Random) -> None:
        super().__init__(timeline, nodes)
        self._clock = timeline
        self._chance = chance
        self._told: tuple[TaskSeen, ...] = ()
        self.faults: Counter[str] = Counter()  #: what has gone wrong so far

    def _is_trouble(self, kind: str, part: float) -> bool:
        found = self._clock.now() < BEGIN + TROUBLE_S and self._chance.random() < part
        self.faults[kind] += found
        return found

    def start(self, assignment: Assignment) -> None:
        if self._is_trouble("said, never done", 0.03):
            self._later_by(lambda: self._admit_never_begun(assignment))
            return
        self._fails(lambda: super(FaultyEngine, self).start(assignment))

    def stop(self, attempt: AttemptId, grace_s: float, generation: int, *, evicts: bool = False) -> None:
        self._fails(lambda: super(FaultyEngine, self).stop(attempt, grace_s, generation, evicts=evicts))

    def _fails(self, act: Callable[[], None]) -> None:
        if self._is_trouble("died", 0.03):
            raise ServerDied
        if self._is_trouble("not done", 0.05):
            raise Unavailable("the engine does not answer")
        if self._is_trouble("done after the error", 0.04):
            self._later_by(act)
            raise Unavailable("the engine does not answer yet")
        if self._is_trouble("said, done late", 0.05):
            self._later_by(act)
            return
        act()
        if self._is_trouble("done, not heard", 0.05):
            raise Unavailable("the engine has done it, and nobody heard")

    def _later_by(self, act: Callable[[], None]) -> None:
        self._clock.at(self._clock.now() + self._chance.uniform(1, LATE_S_MAX), act)

    def _admit_never_begun(self, assignment: Assignment) -> None:
        """What it said was started never was; it finds that out, and says so."""
        attempt = assignment.attempt
        if attempt not in self._runs and attempt not in self._over and attempt not in self._forgotten:
            super().start(assignment)
            self._end(self._runs[attempt], None, CAUSE_NODE_LOST, "its tasks never began")

    def observe(self) -> Observation:
        if self._is_trouble("not seen", 0.03):
            raise Unavailable("nothing can be seen")
        seen = super().observe()
        if self._is_trouble("told again", 0.2):
            seen = replace(seen, tasks=(*self._told, *seen.tasks))
        self._told = seen.tasks
        return seen


class FaultySimulation(Simulation):
    """One seed's worth of trouble."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311  which faults come when, no secret
        self._looks = random.Random(seed)  # noqa: S311  which plans are made again; changes nothing of what happens
        self._resumed: dict[JobId, tuple[AttemptId, float]] = {}  #: what each went on from last
        saving = self._chance.choice([Saving.AT_ONCE, Saving.WHEN_ASKED, Saving.EPOCHS])
        super().__init__(_workload(self._chance), SimCluster.of(2, 2), Settings(saving=saving, tick_s=30.0))
        self.engine.server = FaultyServer(self.controller, self.timeline, self._chance)
        for node in self.cluster.nodes:
            self._plan_outage(node.id)

    def _make_engine(self) -> SimulatedEngine:
        return FaultyEngine(self.timeline, self.cluster.nodes, self._chance)

    def _plan_outage(self, node: str) -> None:
        if self._chance.random() < 0.5:
            lost = BEGIN + self._chance.uniform(0, 1000)
            self.timeline.at(lost, lambda: self.engine.lose(node))
            self.timeline.at(lost + self._chance.uniform(10, 400), lambda: self.engine.bring_back(node))

    def _cycle(self) -> None:
        try:
            super()._cycle()
        except ServerDied:
            self._restart()
        except SwellError:
            self.timeline.at(self.timeline.now() + RETRY_S, self._look_again)
        else:
            self.judge()

    def _restart(self) -> None:
        """A new process, with nothing but the store; whatever runs goes on meanwhile."""
        while True:
            try:
                self.controller = self._controller()
            except (ServerDied, SwellError):
                continue
            break
        for job, simulated in self._ids.items():
            self._oracle.add(job, simulated)
        self.engine.server = FaultyServer(self.controller, self.timeline, self._chance)
        self._look_again()

    def _look_again(self) -> None:
        self._is_urgent = True

    # -- the promises ----------------------------------------------------------------------------------------

    def judge(self) -> None:
        """Raises `AssertionError` for a promise that is broken."""
        runs = list(self.engine.runs.values())
        devices = [device for run in runs for slot in run.assignment.slots for device in slot.devices]
        assert len(devices) == len(set(devices)), "a device is used by two jobs at once"
        promised = [device for one in self.store.open_attempts() for slot in one.slots for device in slot.devices]
        assert len(promised) == len(set(promised)), "a device is promised to two jobs at once"
        jobs = [run.attempt.job for run in runs]
        assert len(jobs) == len(set(jobs)), "a job runs twice at once"
        for run in runs:
            assert len(run.assignment.slots) == run.assignment.tasks, f"job {run.attempt.job} runs with half its tasks"
            self._judge_resumption(run.attempt, run.assignment)
        for record in self.store.active():
            assert record.attempts <= ATTEMPTS_MAX, f"job {record.id} was started {record.attempts} times"
            is_told = record.reason_code is not None or record.state is not JobState.QUEUED
            assert is_told, f"job {record.id} waits, and nobody says why"
        if self._looks.random() < LOOKED_AT_AGAIN:
            self._judge_plan()

    def _judge_plan(self) -> None:
        """The same snapshot gives the same plan, in whatever order its jobs and nodes come."""
        snapshot, plan = self.controller.made
        jobs, nodes = list(snapshot.jobs), list(snapshot.nodes)
        self._looks.shuffle(jobs)
        self._looks.shuffle(nodes)
        again = self._plan(replace(snapshot, jobs=tuple(jobs), nodes=tuple(nodes)))
        assert (again.actions, dict(again.verdicts)) == (plan.actions, dict(plan.verdicts)), (
            "the order changes the plan"
        )

    def _judge_resumption(self, attempt: AttemptId, assignment: Assignment) -> None:
        """It goes on from a checkpoint that was reported, and from none that is older than another one."""
        told = dict(assignment.own).get("SWELL_CHECKPOINT", "")
        began = float(told.rpartition("/")[2]) if told else 0.0
        earlier = self._resumed.get(attempt.job, (attempt, began))
        assert began >= earlier[1], f"attempt {attempt} goes on from {began:g}, {earlier[0]} from {earlier[1]:g}"
        self._resumed[attempt.job] = attempt, began

    def run(self) -> Result:
        result = super().run()
        unfinished = [job.name for job in result.jobs if job.state != "succeeded"]
        assert len(result.jobs) == len(self.workload.jobs), "a job that was accepted is lost"
        assert not unfinished, f"jobs that never ended: {unfinished}"
        assert not self.engine.runs, "something runs that nobody knows of"
        assert not self.store.open_attempts(), "an attempt is open although its job has ended"
        return result


def _workload(chance: random.Random) -> Workload:
    speed = Table({(1, 1): 60.0, (1, 2): 32.0, (2, 2): 40.0, (2, 4): 22.0})
    jobs = []
    for n in range(5):
        low = chance.randint(1, 2)
        jobs.append(
            SimJob(
                f"job-{n}",
                chance.uniform(0, 600),
                speed,
                epochs=chance.randint(1, 6),
                width=low,
                width_min=low,
                width_max=chance.randint(low, 4),
                priority=chance.choice([0, 0, 5]),
                user=f"user-{n % 2}",
            )
        )
    return Workload("faults", tuple(sorted(jobs, key=lambda job: job.submit_s)))


def check_seed(seed: int) -> Result:
    """Raises `AssertionError` that names the seed."""
    try:
        return FaultySimulation(seed).run()
    except AssertionError as broken:
        raise AssertionError(f"seed {seed}: {broken}") from broken
