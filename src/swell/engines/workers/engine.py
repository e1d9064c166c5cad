"""What should each worker run, and what has it said?

A worker's sync carries its report and is answered with the desired set when that is newer than what the worker
has. Workers repeat everything to a server they have not spoken to before, so nothing here needs to be durable.
Until `open` is called (the controller is still loading) no worker is answered: an empty desired set would
stop every task.
"""

from __future__ import annotations

import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from swell.engines import SILENCE_S
from swell.engines.logfolder import LogFolder
from swell.engines.workers.backends import BackendNotes
from swell.engines.workers.dealing import ArrayDeal
from swell.engines.workers.desired import DesiredLaunches
from swell.engines.workers.launches import render_launches
from swell.engines.workers.received_logs import ReceivedLogs
from swell.engines.workers.registry import WORKERS_MAX, WorkerRegistry, digest_of
from swell.engines.workers.rendezvous import needs_rendezvous, rendezvous_of, unreachable_host
from swell.engines.workers.report import DesiredSet, WorkerReport
from swell.errors import Conflict, Unavailable
from swell.model.assignment import Assignment
from swell.model.cluster import BackendJob, Node, NodeId
from swell.model.job import AttemptId, JobId
from swell.model.launch import (
    CAUSE_NODE_LOST,
    CAUSE_START,
    MARGIN_S,
    Launch,
    Observation,
    Rendezvous,
    RunSeen,
    TaskSeen,
)
from swell.model.quantity import IndexSet

BEGUN = re.compile(r"begun\.([0-9]{1,10})\.[0-9]{1,18}", re.ASCII)  # as `worker/tasks.py` writes it


def keeper_pid(root: Path, attempt: AttemptId, index: int) -> int | None:
    """None: it has not begun, or is not kept on this machine."""
    begun = sorted(path.name for path in (root / str(attempt) / str(index)).glob("begun.*"))
    known = [found for name in begun if (found := BEGUN.fullmatch(name))]
    return int(known[0][1]) if known else None


CLOCKS_APART_S = 60.0  # a worker's clock counts as right within this; a request may take that long to arrive
LATE_LOGS_MAX = 10_000  # launches on lost machines whose logs are still taken if the machine comes back


RUNS_MAX = 8  # of a set of indices; to look through more for each of many tasks takes longer than to make a set


@lru_cache(maxsize=8)
def _members(indices: str) -> IndexSet | frozenset[int]:
    found = IndexSet.parse(indices)
    return found if len(found.runs) <= RUNS_MAX else frozenset(found)


@dataclass(slots=True)
class _Worker:
    node: Node
    heard_at: float
    gpu_utilization: float | None
    lease_s: float | None  #: None: it holds none, and is never given up
    ahead_s: float = 0.0  #: of its clock before ours, if that is more than requests take


@dataclass(frozen=True, slots=True)
class _LateLogs:
    """Of a launch on a machine that was given up: what its tasks wrote meanwhile is taken when it comes back."""

    indices: str
    digest: str  #: of the key of the worker that had it


def _lost_tasks(launch: Launch, now: float, problem: str) -> list[TaskSeen]:
    """Every rank of a gang that has not ended is lost. What an array had begun is simply not done yet."""
    if launch.is_array:
        return []
    ended = (now, now, None, CAUSE_NODE_LOST, problem)
    return [TaskSeen(launch.attempt, rank, launch.node, rank, *ended) for rank in IndexSet.parse(launch.indices)]


def by_our_clock(task: TaskSeen, ahead_s: float) -> TaskSeen:
    ended_at = None if task.ended_at is None else max(0.0, task.ended_at - ahead_s)
    return replace(task, started_at=max(0.0, task.started_at - ahead_s), ended_at=ended_at)


class WorkersEngine:
    """Thread-safe: the API calls `sync`, the controller everything else."""

    def __init__(
        self,
        tasks_folder: Path,
        *,
        wake: Callable[[], None],
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ):
        self._logs = LogFolder(tasks_folder)
        self._tasks_folder = tasks_folder
        self._wake = wake  #: the controller should look
        self._monotonic = monotonic
        self._now = now
        self._registry = WorkerRegistry(tasks_folder / ".workers.json")
        self._backends = BackendNotes(tasks_folder / ".worker-backends")
        self._received = ReceivedLogs(tasks_folder)
        self._opened_at = monotonic()
        self._given_up: set[tuple[AttemptId, NodeId]] = set()  #: launches on machines that are lost
        self._late_logs: dict[tuple[AttemptId, NodeId], _LateLogs] = {}  #: of those, also when they are forgotten
        self._mutex = threading.Lock()
        self._is_open = False
        self._desired = DesiredLaunches()
        self._workers: dict[NodeId, _Worker] = {}
        self._departed: dict[NodeId, str] = {}  #: digests of the keys of workers that have left, the latest last
        self._tasks: list[TaskSeen] = []
        self._runs: dict[tuple[AttemptId, NodeId], RunSeen] = {}
        self._gangs: dict[AttemptId, Assignment] = {}  #: on several machines
        self._rendezvous: dict[AttemptId, Rendezvous] = {}  #: of those whose workers have agreed
        self._deals: dict[AttemptId, ArrayDeal] = {}  #: of arrays on several machines
        self.on_desired: Callable[[Collection[NodeId]], None] = lambda _: None  #: long polls of these should look

    # -- the controller's side (Engine) --------------------------------------------------------------------

    def open(self, generation: int) -> None:
        with self._mutex:
            self._is_open = True
            self._opened_at = self._monotonic()
            self._desired.open(generation)

    def observe(self) -> Observation:
        with self._mutex:
            self._give_up_lost()
            tasks, self._tasks = self._tasks, []
            silences = {**self._unheard(), **self._silences()}
            silent = {node: seconds for node, seconds in silences.items() if seconds > SILENCE_S}
            nodes = tuple(
                replace(worker.node, is_reachable=node not in silent) for node, worker in sorted(self._workers.items())
            )
            return Observation(nodes, tuple(tasks), tuple(map(self._as_seen, self._runs.values())), silent)

    def is_own(self, node: NodeId) -> bool:
        """Is this the worker of the server's own machine, which the server started?"""
        with self._mutex:
            worker = self._workers.get(node)
            return worker is not None and worker.lease_s is None

    def silences(self) -> dict[NodeId, float]:
        """Seconds since each worker was last heard of; also of one with launches that this server has not met yet."""
        with self._mutex:
            return {**self._unheard(), **self._silences()}

    def gpu_utilizations(self) -> dict[NodeId, float]:
        """Of the GPUs of each node in reach, where it is measured. It never rests, so nobody is woken for it."""
        with self._mutex:
            silent = self._silences()
            told = {node: worker.gpu_utilization for node, worker in self._workers.items() if silent[node] <= SILENCE_S}
        return {node: ratio for node, ratio in told.items() if ratio is not None}

    def unreadable_objects(self) -> dict[str, int]:
        """Workers are ours: what one says that cannot be read is refused to it."""
        return {}

    def _unheard(self) -> dict[NodeId, float]:
        """Of machines that have launches, and have not spoken since this server started."""
        waited = self._monotonic() - self._opened_at
        nodes = [node for node in self._desired.nodes() if node not in self._workers]
        return {node: waited for node in nodes if self._wanted_on(node)}

    def _give_up_lost(self) -> None:
        """A machine whose lease ended a while ago runs nothing of ours any more: its worker has stopped all tasks."""
        for node, silent_s in {**self._unheard(), **self._silences()}.items():
            lease_s = self._lease_s(node)
            if lease_s and silent_s > lease_s + MARGIN_S:
                self._give_up(node, f"its machine {node} has not been heard of for {silent_s:.0f} s")

    def _lease_s(self, node: NodeId) -> float:
        """0: it holds none. A machine that is not registered is the server's own, of before there were others."""
        worker = self._workers.get(node)
        return (worker.lease_s if worker is not None else self._registry.lease_s(node)) or 0.0

    def _give_up(self, node: NodeId, problem: str) -> None:
        given_up: list[AttemptId] = []
        for launch in self._wanted_on(node):
            self._take_late_logs(launch)
            self._given_up.add((launch.attempt, node))
            self._desired.note_change(node)  # if it comes back, it is told so
            self._tasks += _lost_tasks(launch, self._now(), problem)
            self._runs[launch.attempt, node] = RunSeen(launch.attempt, node, launch.revision, (), 0, True)
            if (deal := self._deals.get(launch.attempt)) is not None:
                deal.lose(node)
                given_up.append(launch.attempt)
        for attempt in given_up:
            if self._deals[attempt].deal():
                self._hand_out(attempt, self._deals[attempt])
        self._workers.pop(node, None)
        self._release(node)

    def _take_late_logs(self, launch: Launch) -> None:
        """Not of an array: its tasks are done once more in the same attempt, and their logs are then those."""
        digest = self._registry.digest(launch.node)
        if digest and not launch.is_array:
            self._late_logs[launch.attempt, launch.node] = _LateLogs(launch.indices, digest)
        if len(self._late_logs) > LATE_LOGS_MAX:
            del self._late_logs[next(iter(self._late_logs))]

    def _release(self, node: NodeId) -> None:
        """Its name is free again, once nothing is left of what it was to run: until then its lease must be known."""
        if node not in self._workers and not self._desired.on(node):
            self._registry.release(node)

    def declare_lost(self, node: NodeId, problem: str) -> None:
        """Whoever has started that worker's machine knows that it is gone: its lease is not waited for."""
        with self._mutex:
            self._give_up(node, problem)
        self._registry.save()
        self._tell_waiting()
        self._wake()

    def _silences(self) -> dict[NodeId, float]:
        now = self._monotonic()
        return {node: now - worker.heard_at for node, worker in self._workers.items()}

    def start(self, assignment: Assignment) -> None:
        with self._mutex:
            if needs_rendezvous(assignment):
                self._gangs[assignment.attempt] = assignment
            for launch in render_launches(assignment, self._rendezvous.get(assignment.attempt)):
                self._desired.put(launch)
            if assignment.is_array and len(assignment.nodes) > 1:
                self._seat(assignment)
        self._tell_waiting()

    def _tell_waiting(self) -> None:
        """Long polls of workers whose launches have changed are answered."""
        with self._mutex:
            changed = self._desired.take_changed()
        if changed:
            self.on_desired(changed)

    def _seat(self, assignment: Assignment) -> None:
        deal = self._deals.setdefault(assignment.attempt, ArrayDeal(IndexSet.parse(assignment.indices)))
        working = [slot.node for slot in assignment.slots if not slot.is_draining]
        deal.seat({node: working.count(node) for node in assignment.nodes})
        deal.deal()
        self._hand_out(assignment.attempt, deal)

    def _hand_out(self, attempt: AttemptId, deal: ArrayDeal) -> None:
        for node in deal.nodes:
            launch = self._desired.get(attempt, node)
            dealt = replace(launch, is_dealt=True, indices=deal.grant(node), may_get_more=deal.is_open)
            if dealt != launch:
                self._desired.put(dealt)

    def _deal_on(self, report: WorkerReport, runs: list[RunSeen]) -> None:
        """Arrays go on with what this worker says of them."""
        begun: defaultdict[AttemptId, list[int]] = defaultdict(list)
        for task in report.tasks:
            begun[task.attempt].append(task.index)
        for attempt, deal in self._deals.items():
            deal.begun(begun.get(attempt, ()))
            for run in runs:
                if run.attempt == attempt and run.revision == self._desired.get(attempt, run.node).revision:
                    deal.told(run.node, run.held, run.left)
            if any(run.attempt == attempt for run in runs) and deal.deal():
                self._hand_out(attempt, deal)

    def _as_seen(self, run: RunSeen) -> RunSeen:
        """There is more for a worker to do than it holds, as long as its array is dealt."""
        deal = self._deals.get(run.attempt)
        return replace(run, left=max(1, run.left)) if deal is not None and deal.is_open else run

    def _settle_rendezvous(self, attempt: AttemptId) -> None:
        """Tell every worker of a gang where its ranks meet, once all have taken their parts on."""
        assignment = self._gangs.get(attempt)
        if assignment is None or attempt in self._rendezvous:
            return
        ports = {node: run.port for (whose, node), run in self._runs.items() if whose == attempt and run.port}
        addresses = {node: worker.node.address for node, worker in self._workers.items()}
        found = rendezvous_of(assignment, ports=ports, addresses=addresses)
        if found is None:
            return
        problem = unreachable_host([self._workers[node].node for node in assignment.nodes])
        if problem:
            self._refuse_gang(attempt, problem)
            return
        self._rendezvous[attempt] = found
        for launch in self._desired.of(attempt):
            self._desired.put(replace(launch, rendezvous=found))

    def _refuse_gang(self, attempt: AttemptId, problem: str) -> None:
        """None of its ranks has begun, and none will."""
        at = self._now()
        for launch in self._desired.of(attempt):
            ended = (at, at, 125, CAUSE_START, problem)
            ranks = IndexSet.parse(launch.indices)
            self._tasks += [TaskSeen(attempt, rank, launch.node, rank, *ended) for rank in ranks]

    def stop(self, attempt: AttemptId, grace_s: float, generation: int, *, evicts: bool = False) -> None:
        with self._mutex:
            for launch in self._desired.of(attempt):
                if not (launch.is_stopping and launch.grace_s <= grace_s):
                    self._desired.put(launch.stopped(grace_s=grace_s, generation=generation))
        self._tell_waiting()

    def forget(self, attempt: AttemptId) -> None:
        """The worker learns it with its next request; until then it keeps an ended run in memory."""
        with self._mutex:
            for launch in self._desired.remove(attempt):
                self._runs.pop((attempt, launch.node), None)
                if (attempt, launch.node) in self._given_up:
                    self._given_up.discard((attempt, launch.node))
                    self._release(launch.node)
            self._gangs.pop(attempt, None)
            self._rendezvous.pop(attempt, None)
            self._deals.pop(attempt, None)

    def discard(self, job: JobId) -> None:
        """Nothing but logs and checkpoints is left of it."""

    def erase(self, attempt: AttemptId) -> None:
        with self._mutex:
            self._late_logs = {key: late for key, late in self._late_logs.items() if key[0] != attempt}
        self._logs.erase(attempt)

    def log_size(self, attempt: AttemptId, index: int) -> int | None:
        return self._logs.size(attempt, index)

    def read_log(self, attempt: AttemptId, index: int, offset: int, limit: int) -> tuple[int, bytes]:
        return self._logs.read(attempt, index, offset, limit)

    def log_offset_at(self, attempt: AttemptId, index: int, moment: float) -> int | None:
        return self._logs.offset_at(attempt, index, moment)

    def keeper(self, attempt: AttemptId, index: int) -> int | None:
        """The process that keeps a task of this machine; None: there is none."""
        return keeper_pid(self._tasks_folder, attempt, index)

    # -- the workers' side ---------------------------------------------------------------------------------

    def sync(self, report: WorkerReport) -> None:
        report = replace(report, tasks=self._own_tasks(report))
        with self._mutex:
            if not self._is_open:
                raise Unavailable("the server is still loading; sync again in a moment")
            if self._has_departed(report):
                return
            self._registry.claim(report.node.id, report.registration)
            known, offered = self._workers.get(report.node.id), report.offered
            is_news = known is None or known.node != offered
            if is_news:
                self._backends.note(offered.id, offered.backend)
            lease_s = None if report.terms is None else report.terms.lease_s
            ahead_s = self._ahead_s(report, known)
            self._workers[offered.id] = _Worker(offered, self._monotonic(), report.gpu_utilization, lease_s, ahead_s)
            wanted = [run for run in report.runs if self._is_wanted(run.attempt, run.node)]
            changed = [run for run in wanted if self._runs.get((run.attempt, run.node)) != run]
            told = [task for task in report.tasks if self._is_wanted(task.attempt, task.node)]
            self._tasks += [by_our_clock(task, ahead_s) for task in told] if ahead_s else told
            self._runs.update({(run.attempt, run.node): run for run in changed})
            for attempt in {run.attempt for run in changed}:
                self._settle_rendezvous(attempt)
            self._deal_on(report, wanted)
        self._registry.save()
        self._tell_waiting()
        if is_news or changed or report.tasks:
            self._wake()

    def _has_departed(self, report: WorkerReport) -> bool:
        """A report that a worker sent before its farewell may come after it; one that stays is a worker come back."""
        if self._departed.get(report.node.id) != report.registration.digest:
            return False
        if report.terms is not None and report.terms.is_leaving:
            return True
        del self._departed[report.node.id]
        return False

    def is_quickly_taken(self, report: WorkerReport) -> bool:
        """False: it is of a new worker, which goes to the disk, or of an array that is dealt, which may be large."""
        with self._mutex:
            is_known = report.node.id in self._workers and self._registry.has(report.node.id, report.registration)
            return is_known and not any(run.attempt in self._deals for run in report.runs)

    def _ahead_s(self, report: WorkerReport, known: _Worker | None) -> float:
        """It stays what it was while that is about right, so that a time is the same each time it is told."""
        if report.now is None:
            return 0.0
        before, ahead_s = 0.0 if known is None else known.ahead_s, report.now - self._now()
        return before if abs(ahead_s - before) <= CLOCKS_APART_S else ahead_s

    def _own_tasks(self, report: WorkerReport) -> tuple[TaskSeen, ...]:
        """Those that its launches have: what a worker says of others counts for nothing."""
        with self._mutex:
            indices = {one: self._indices(one, report.node.id) for one in {task.attempt for task in report.tasks}}
        return tuple(task for task in report.tasks if task.index in _members(indices[task.attempt]))

    def _indices(self, attempt: AttemptId, node: NodeId) -> str:
        """Of the tasks that may run there. Of an array that is dealt all: what was asked back may have begun before."""
        if not self._is_wanted(attempt, node):
            return ""
        deal = self._deals.get(attempt)
        return self._desired.get(attempt, node).indices if deal is None else str(deal.indices)

    def _is_wanted(self, attempt: AttemptId, node: NodeId) -> bool:
        return self._desired.has(attempt, node) and (attempt, node) not in self._given_up

    def _wanted_on(self, node: NodeId) -> list[Launch]:
        return [launch for launch in self._desired.on(node) if (launch.attempt, node) not in self._given_up]

    def backends(self, nodes: Iterable[NodeId]) -> dict[NodeId, BackendJob]:
        """What the workers there ran in, also of those that have left; without those that nothing is known of."""
        with self._mutex:
            return self._backends.of(nodes)

    def came_among(self, workers: set[str]) -> tuple[str, ...]:
        """Those of a pool's workers that were nodes at some time, sorted."""
        with self._mutex:
            return self._backends.came_among(workers)

    def check_identity(self, node: NodeId, key: str) -> None:
        """Raises `Conflict` where this is not the worker that has the name."""
        with self._mutex:
            if not self._registry.is_holder(node, digest_of(key)):
                raise Conflict(f"this is not the worker that is called {node[:100]!r} here; sync first")

    def may_read_environment(self, node: NodeId, digest: str) -> bool:
        """A worker is told the environments of its own launches."""
        with self._mutex:
            return any(launch.environment == digest for launch in self._desired.on(node))

    def has_files(self, node: NodeId, folder: str | None = None) -> bool:
        """Has a launch of this worker files, and that folder, if one is named?"""
        with self._mutex:
            found = [launch.files for launch in self._desired.on(node)]
            return any(files is not None and folder in (None, files.folder) for files in found)

    def running(self, attempt: AttemptId, node: NodeId) -> Launch | None:
        with self._mutex:
            return self._desired.get(attempt, node) if self._is_wanted(attempt, node) else None

    def write_log(self, node: NodeId, attempt: AttemptId, index: int, offset: int, data: bytes) -> int | None:
        """How far we have it; None: it is not the log of a task that this worker runs."""
        with self._mutex:
            indices = self._indices(attempt, node) or self._late_indices(attempt, node)
        if index not in _members(indices):
            return None
        return self._received.write(attempt, index, offset, data)

    def _late_indices(self, attempt: AttemptId, node: NodeId) -> str:
        """Of tasks that this very worker ran before its machine was given up."""
        late = self._late_logs.get((attempt, node))
        return late.indices if late is not None and self._registry.is_holder(node, late.digest) else ""

    def leave(self, node: NodeId) -> None:
        """It has nothing left to do and goes. What it is still wanted for is given up at once: it runs none of it."""
        with self._mutex:
            self._departed.pop(node, None)
            self._departed[node] = self._registry.digest(node)
            if len(self._departed) > WORKERS_MAX:
                del self._departed[next(iter(self._departed))]
            self._give_up(node, f"the worker {node} has left")
        self._registry.save()
        self._tell_waiting()
        self._wake()

    def answer(self, node: NodeId, version: int) -> DesiredSet | None:
        """None: nothing newer than the version the worker has."""
        with self._mutex:
            newest = self._desired.version(node)
            return DesiredSet(newest, tuple(self._wanted_on(node))) if self._is_open and version < newest else None
