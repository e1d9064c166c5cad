"""What should each worker run, and what has it said?

A worker's sync carries its report and is answered with the desired set when that is newer than what the worker
has. Workers repeat everything to a server they have not spoken to before, so nothing here needs to be durable.
Until `open` is called (the controller is still loading) no worker is answered: an empty desired set would
stop every task.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from swell.engines.logfolder import LogFolder
from swell.engines.workers.keepers import keeper_pid
from swell.errors import Unavailable
from swell.model.cluster import Node, NodeId
from swell.model.job import AttemptId, JobId
from swell.model.launch import Launch, Observation, RunSeen, TaskSeen, parse_node, parse_run, parse_task

CHANGES_BITS = 20  # a version is the plan's generation and, below it, a count of the changes made under it
SILENCE_S = 60.0  # after this long a node is out of reach


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker says in one sync."""

    node: Node
    version: int  #: of the desired set it has applied
    tasks: tuple[TaskSeen, ...]
    runs: tuple[RunSeen, ...]
    gpu_utilization: float | None = None  #: of its GPUs lately, 0 to 1; None: not measured

    @classmethod
    def parse(cls, document: dict[str, Any]) -> Report:
        node = parse_node(document["node"])
        tasks = tuple(parse_task(task, node.id) for task in document["tasks"])
        runs = tuple(parse_run(run, node.id) for run in document["runs"])
        return cls(node, document["version"], tasks, runs, document.get("gpu_utilization"))


@dataclass(frozen=True, slots=True)
class Answer:
    """What the worker should converge to; None: what it has is still right."""

    version: int
    launches: tuple[Launch, ...] | None


@dataclass(slots=True)
class _Worker:
    node: Node
    heard_at: float
    gpu_utilization: float | None


class WorkersEngine:
    """Thread-safe: the API calls `sync`, the controller everything else."""

    def __init__(
        self, tasks_folder: Path, *, wake: Callable[[], None], monotonic: Callable[[], float] = time.monotonic
    ):
        self._logs = LogFolder(tasks_folder)
        self._tasks_folder = tasks_folder
        self._wake = wake  #: the controller should look
        self._monotonic = monotonic
        self._mutex = threading.Lock()
        self._is_open = False
        self._version = 0
        self._desired: dict[tuple[AttemptId, NodeId], Launch] = {}
        self._workers: dict[NodeId, _Worker] = {}
        self._tasks: list[TaskSeen] = []
        self._runs: dict[tuple[AttemptId, NodeId], RunSeen] = {}
        self.on_desired: Callable[[], None] = lambda: None  #: long polls should look

    # -- the controller's side (Engine) --------------------------------------------------------------------

    def open(self, generation: int) -> None:
        with self._mutex:
            self._is_open = True
            self._change(generation)
        self.on_desired()

    def observe(self) -> Observation:
        with self._mutex:
            tasks, self._tasks = self._tasks, []
            silent = {node: seconds for node, seconds in self._silences().items() if seconds > SILENCE_S}
            nodes = tuple(
                replace(worker.node, is_reachable=node not in silent) for node, worker in sorted(self._workers.items())
            )
            return Observation(nodes, tuple(tasks), tuple(self._runs.values()), silent)

    def silences(self) -> dict[NodeId, float]:
        """Seconds since each worker was last heard of; a worker that waits for its answer is silent, too."""
        with self._mutex:
            return self._silences()

    def gpu_utilizations(self) -> dict[NodeId, float]:
        """Of the GPUs of each node in reach, where it is measured. It never rests, so nobody is woken for it."""
        with self._mutex:
            silent = self._silences()
            told = {node: worker.gpu_utilization for node, worker in self._workers.items() if silent[node] <= SILENCE_S}
        return {node: ratio for node, ratio in told.items() if ratio is not None}

    def unreadable_objects(self) -> dict[str, int]:
        """Workers are ours: what one says that cannot be read is refused to it."""
        return {}

    def _silences(self) -> dict[NodeId, float]:
        now = self._monotonic()
        return {node: now - worker.heard_at for node, worker in self._workers.items()}

    def start(self, launches: tuple[Launch, ...]) -> None:
        with self._mutex:
            for launch in launches:
                self._desired[launch.attempt, launch.node] = launch
                self._change(launch.generation)
        self.on_desired()

    def stop(self, attempt: AttemptId, grace_s: float, generation: int) -> None:
        with self._mutex:
            for key, launch in self._desired.items():
                if key[0] == attempt and not (launch.is_stopping and launch.grace_s <= grace_s):
                    self._desired[key] = launch.stopped(grace_s=grace_s, generation=generation)
            self._change(generation)
        self.on_desired()

    def _change(self, generation: int) -> None:
        """Every change is a newer version. Generations are stored, so a restarted server never goes back."""
        self._version = max(self._version + 1, generation << CHANGES_BITS)

    def forget(self, attempt: AttemptId) -> None:
        """The worker learns it with the next change; until then it keeps an ended run in memory."""
        with self._mutex:
            for key in [key for key in self._desired if key[0] == attempt]:
                del self._desired[key]
                self._runs.pop(key, None)

    def discard(self, job: JobId) -> None:
        """Nothing but logs and checkpoints is left of it."""

    def erase(self, attempt: AttemptId) -> None:
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

    def sync(self, report: Report) -> None:
        with self._mutex:
            if not self._is_open:
                raise Unavailable("the server is still loading; sync again in a moment")
            known = self._workers.get(report.node.id)
            is_news = known is None or known.node != report.node
            self._workers[report.node.id] = _Worker(report.node, self._monotonic(), report.gpu_utilization)
            wanted = [run for run in report.runs if (run.attempt, run.node) in self._desired]
            changed = [run for run in wanted if self._runs.get((run.attempt, run.node)) != run]
            self._tasks += [task for task in report.tasks if (task.attempt, task.node) in self._desired]
            self._runs.update({(run.attempt, run.node): run for run in changed})
        if is_news or changed or report.tasks:
            self._wake()

    def answer(self, node: NodeId, version: int) -> Answer | None:
        """None: nothing newer than the version the worker has."""
        with self._mutex:
            if not self._is_open or version >= self._version:
                return None
            launches = tuple(launch for (_, place), launch in sorted(self._desired.items()) if place == node)
            return Answer(self._version, launches)
