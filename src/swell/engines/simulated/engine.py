"""Where do the tasks of a simulation run?

The engine is told what every job is like (`Behavior`), and runs attempts on its timeline: tasks begin, epochs end,
reports are sent, processes end. It is asked and observed by the controller as any other engine.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from posixpath import basename
from typing import Protocol

from swell.engines.simulated.behavior import Behavior, Placement, Saving
from swell.engines.simulated.timeline import Timeline
from swell.model.assignment import Assignment
from swell.model.cluster import Node, NodeId
from swell.model.job import EXIT_YIELDED, AttemptId, JobId
from swell.model.launch import CAUSE_NODE_LOST, CAUSE_STOPPED, Observation, RunSeen, TaskSeen
from swell.model.training import Checkpoint, Control, Report

COUNTED_AFTER_S = 10.0  # of an epoch: then a job that counts its steps tells of them


class JobServer(Protocol):
    """What a job can say to the server, and ask."""

    def report(self, told: Report) -> object: ...

    def control(self, attempt: AttemptId) -> Control: ...


@dataclass
class SimulatedRun:
    """One attempt that runs."""

    assignment: Assignment
    behavior: Behavior
    placement: Placement
    began_at: float
    done: float  #: epochs, with the part of the present one that was done when it began
    since: float  #: when the present part of the epoch began; before that it does not train
    epoch_s: float = 0.0  #: of the whole present epoch
    is_training: bool = False
    is_leaving: bool = False
    epoch: int = 0  #: the number of the present one

    @property
    def attempt(self) -> AttemptId:
        return self.assignment.attempt

    @property
    def width(self) -> int:
        return sum(self.placement)

    def progress(self, now: float) -> float:
        """Epochs done, with the part of the present one."""
        if not self.is_training or not self.epoch_s:
            return self.done
        return min(self.done + max(0.0, now - self.since) / self.epoch_s, int(self.done) + 1.0)


class SimulatedEngine:
    """Nodes and attempts in virtual time."""

    def __init__(self, timeline: Timeline, nodes: tuple[Node, ...]) -> None:
        self._timeline = timeline
        self._nodes = nodes
        self._lost: dict[NodeId, float] = {}
        self._behaviors: dict[JobId, Behavior] = {}
        self._runs: dict[AttemptId, SimulatedRun] = {}
        self._over: dict[AttemptId, tuple[TaskSeen, ...]] = {}
        self._forgotten: set[AttemptId] = set()  # whose ends are recorded; they never begin again
        self._tasks: list[TaskSeen] = []
        self._gangs: defaultdict[str, set[AttemptId]] = defaultdict(set)
        self.server: JobServer | None = None  #: whom jobs report to; None: nobody listens
        self.has_news = False  #: an attempt has ended, or a node has come or gone, since the last look
        self.watch: Callable[[AttemptId, int], None] = lambda *_: None  #: told of every start and end

    def add(self, job: JobId, behavior: Behavior) -> None:
        self._behaviors[job] = behavior

    @property
    def runs(self) -> dict[AttemptId, SimulatedRun]:
        """What runs at the moment."""
        return self._runs

    # -- asked by the controller -----------------------------------------------------------------------------

    def observe(self) -> Observation:
        tasks, self._tasks = tuple(self._tasks), []
        self.has_news = False
        runs = tuple(_finished(attempt, node) for attempt, ended in self._over.items() for node in _nodes_of(ended))
        now = self._timeline.now()
        silent = {node: now - since for node, since in self._lost.items()}
        return Observation(self._nodes, tasks, runs, silent)

    def start(self, assignment: Assignment) -> None:
        attempt = assignment.attempt
        if attempt in self._forgotten:
            return
        if attempt in self._over:
            self._tasks += self._over[attempt]
        elif attempt in self._runs:
            self._tasks += _begun(self._runs[attempt])
        else:
            self._begin(assignment)

    def stop(self, attempt: AttemptId, grace_s: float, generation: int, *, evicts: bool = False) -> None:
        run = self._runs.get(attempt)
        if run is None or run.is_leaving:
            return
        run.is_leaving = True
        saving = run.behavior.saving
        if saving is Saving.AT_ONCE:
            self._leave(run)
        elif saving is Saving.WHEN_ASKED:
            self._later(run.behavior.save_s, run, self._leave)
        else:
            self._end(run, None, CAUSE_STOPPED)

    def forget(self, attempt: AttemptId) -> None:
        self._over.pop(attempt, None)
        self._forgotten.add(attempt)

    def discard(self, job: JobId) -> None:
        """Nothing was made for it elsewhere."""

    def erase(self, attempt: AttemptId) -> None:
        """There are no logs."""

    def log_size(self, attempt: AttemptId, index: int) -> int | None:
        return None

    def read_log(self, attempt: AttemptId, index: int, offset: int, limit: int) -> tuple[int, bytes]:
        return offset, b""

    def log_offset_at(self, attempt: AttemptId, index: int, moment: float) -> int | None:
        return None

    # -- the life of an attempt ------------------------------------------------------------------------------

    def _begin(self, assignment: Assignment) -> None:
        behavior, now = self._behaviors[assignment.attempt.job], self._timeline.now()
        run = SimulatedRun(assignment, behavior, _placement(assignment), now, _resumed(assignment), now)
        self._runs[run.attempt] = run
        self._tasks += _begun(run)
        self.watch(run.attempt, run.width)
        gang = self._gangs[behavior.gang] if behavior.gang else {run.attempt}
        gang.add(run.attempt)
        if len(gang) >= behavior.gang_size:
            for attempt in sorted(gang):
                self._later(behavior.restart_s, self._runs[attempt], self._train)

    def _train(self, run: SimulatedRun) -> None:
        if run.done >= run.behavior.epochs:  # all of it was saved, and nobody heard that it had ended
            self._end(run, run.behavior.exit_code)
            return
        run.is_training = True
        if run.behavior.reports:
            self._report(run, begun=int(run.done) + 1, epochs_total=float(run.behavior.epochs))
        self._next_epoch(run)

    def _next_epoch(self, run: SimulatedRun) -> None:
        behavior = run.behavior
        run.since = self._timeline.now()
        run.epoch = int(run.done)
        run.epoch_s = behavior.epoch_s(run.placement, run.epoch)
        left_s = (int(run.done) + 1 - run.done) * run.epoch_s
        self._later(float(round(left_s)) if behavior.whole_seconds else left_s, run, self._end_epoch)
        if _counts_steps(run) and left_s > COUNTED_AFTER_S:
            self._later(COUNTED_AFTER_S, run, self._tell_steps)

    def _end_epoch(self, run: SimulatedRun) -> None:
        was_whole = run.done == int(run.done)
        run.done = float(int(run.done) + 1)
        is_last = run.done >= run.behavior.epochs
        if run.behavior.reports:
            self._tell_epoch(run, was_whole=was_whole)
        if is_last:
            self._end(run, run.behavior.exit_code)
        elif not run.is_leaving and self._is_asked(run):
            run.is_leaving = True
            self._leave(run)
        else:
            self._next_epoch(run)

    def _tell_epoch(self, run: SimulatedRun, *, was_whole: bool) -> None:
        number = int(run.done)
        measured = ((number, run.epoch_s),) if was_whole else ()
        checkpoint = None if run.behavior.saving is Saving.NEVER else self._checkpoint(run, run.done)
        steps = _steps(run, run.epoch_s) if _counts_steps(run) else {}
        self._report(run, begun=number + 1, epochs_done=run.done, epochs=measured, checkpoint=checkpoint, **steps)

    def _tell_steps(self, run: SimulatedRun) -> None:
        """Long before the epoch has ended, how long it takes follows from them."""
        if run.is_training and not run.is_leaving:
            self._report(run, **_steps(run, COUNTED_AFTER_S))

    def _is_asked(self, run: SimulatedRun) -> bool:
        """Has it been asked to stop after this epoch, or one before?"""
        if self.server is None or not run.behavior.reports:
            return False
        after = self.server.control(run.attempt).stop_after_epoch
        return after is not None and run.done >= after

    def _leave(self, run: SimulatedRun) -> None:
        """It saves what it has done, and ends because it was asked to."""
        done = run.progress(self._timeline.now())
        if run.behavior.reports:
            self._report(run, epochs_done=done, checkpoint=self._checkpoint(run, done), is_yielding=True)
        self._end(run, EXIT_YIELDED)

    def _checkpoint(self, run: SimulatedRun, epochs: float) -> Checkpoint:
        """Its path says how far it is: that is what the next attempt goes on from."""
        return Checkpoint(epochs, repr(epochs), self._timeline.now(), run.attempt.number)

    def _end(self, run: SimulatedRun, exit_code: int | None, cause: str = "", problem: str = "") -> None:
        now = self._timeline.now()
        ended = tuple(
            replace(task, ended_at=now, exit_code=exit_code, cause=cause, problem=problem) for task in _begun(run)
        )
        del self._runs[run.attempt]
        self._gangs[run.behavior.gang].discard(run.attempt)
        self._over[run.attempt] = ended
        self._tasks += ended
        self.has_news = True
        self.watch(run.attempt, 0)

    def _report(self, run: SimulatedRun, **told: object) -> None:
        if self.server is not None:
            self.server.report(Report(run.attempt, 0, **told))  # type: ignore[arg-type]

    def _later(self, seconds: float, run: SimulatedRun, act: Callable[[SimulatedRun], None]) -> None:
        """Unless the attempt has ended meanwhile."""

        def due() -> None:
            if self._runs.get(run.attempt) is run:
                act(run)

        self._timeline.at(self._timeline.now() + seconds, due)

    # -- what happens to nodes -------------------------------------------------------------------------------

    def lose(self, node: NodeId) -> None:
        """The machine is gone, with everything on it."""
        for run in [run for run in self._runs.values() if node in run.assignment.nodes]:
            self._end(run, None, CAUSE_NODE_LOST, f"node {node} is gone")
        self._lost[node] = self._timeline.now()
        self._nodes = tuple(replace(one, is_reachable=False) if one.id == node else one for one in self._nodes)
        self.has_news = True

    def bring_back(self, node: NodeId) -> None:
        self._lost.pop(node, None)
        self._nodes = tuple(replace(one, is_reachable=True) if one.id == node else one for one in self._nodes)
        self.has_news = True


def _placement(assignment: Assignment) -> Placement:
    """GPUs on each node; tasks, where there are no GPUs."""
    found: Counter[str] = Counter()
    has_gpus = any(slot.resources.gpus for slot in assignment.slots)
    for slot in assignment.slots:
        found[slot.node] += len(slot.devices) if has_gpus else 1
    return tuple(number for number in found.values() if number)


def _counts_steps(run: SimulatedRun) -> bool:
    return run.behavior.reports and run.behavior.saving in (Saving.AT_ONCE, Saving.WHEN_ASKED)


def _steps(run: SimulatedRun, seconds: float) -> dict[str, object]:
    """Of the epoch under way, or the one that has just ended; told of a whole one it says the same as of a part."""
    per_epoch = run.behavior.speed.steps(run.placement, run.epoch)
    count = max(1, min(per_epoch, int(per_epoch * seconds / run.epoch_s)))
    return {"steps": (count, run.epoch_s * count / per_epoch), "steps_per_epoch": per_epoch}


def _resumed(assignment: Assignment) -> float:
    told = dict(assignment.own).get("SWELL_CHECKPOINT", "")
    return float(basename(told)) if told else 0.0


def _begun(run: SimulatedRun) -> tuple[TaskSeen, ...]:
    attempt = run.attempt
    return tuple(TaskSeen(attempt, slot.number, slot.node, slot.number, run.began_at) for slot in run.assignment.slots)


def _nodes_of(tasks: tuple[TaskSeen, ...]) -> tuple[NodeId, ...]:
    return tuple(dict.fromkeys(task.node for task in tasks))


def _finished(attempt: AttemptId, node: NodeId) -> RunSeen:
    return RunSeen(attempt, node, revision=1, in_use=(), left=0, is_finished=True)
