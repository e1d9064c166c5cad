"""A real store, a hand-moved clock and an engine that says what we tell it to."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from specs import spec
from swell.controller import Controller
from swell.controller.cycle import Cycled
from swell.controller.reporting import Reporting
from swell.engines.workers.launches import render_launches
from swell.model.assignment import Assignment
from swell.model.cluster import Device, Node
from swell.model.job import Array, AttemptId, Dimension, Role
from swell.model.launch import GpuSeen, Launch, Observation, RunSeen, TaskSeen
from swell.model.quantity import IndexSet
from swell.model.reason import Reason
from swell.model.resources import Resources
from swell.model.training import Checkpoint, Control, Report, TrainingRecord
from swell.store import JobRecord, NewJob, Store, open_store

T = TypeVar("T")

REPORTING = Reporting("http://127.0.0.1:1", lambda _: "secret", "/checkpoints")
NODE = Node("a", 4000, 8192, tuple(Device(f"g{n}", 1024, "m") for n in range(4)))


class Clock:
    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    def busy(self) -> float:
        return 0.0


class ScriptedEngine:
    """Says what the test put in, remembers what it was asked."""

    def __init__(self) -> None:
        self.nodes: tuple[Node, ...] = (NODE,)
        self.tasks: list[TaskSeen] = []
        self.runs: dict[AttemptId, RunSeen] = {}
        self.silent: dict[str, float] = {}
        self.reports: list[Report] = []  #: that attempts which are over have left
        self.asked: list[tuple[object, ...]] = []
        self.assignments: dict[AttemptId, Assignment] = {}
        self.launches: dict[AttemptId, tuple[Launch, ...]] = {}

    def observe(self) -> Observation:
        tasks, self.tasks = tuple(self.tasks), []
        reports, self.reports = tuple(self.reports), []
        return Observation(self.nodes, tasks, tuple(self.runs.values()), self.silent, reports)

    def start(self, assignment: Assignment) -> None:
        attempt = assignment.attempt
        self.assignments[attempt] = assignment
        self.launches[attempt] = launches = render_launches(assignment)
        self.asked.append(("start", str(attempt), len(launches[0].lanes)))

    def stop(self, attempt: AttemptId, grace_s: float, generation: int, *, evicts: bool = False) -> None:
        self.asked.append(("evict" if evicts else "stop", str(attempt), grace_s))

    def forget(self, attempt: AttemptId) -> None:
        self.runs.pop(attempt, None)
        self.asked.append(("forget", str(attempt)))

    def discard(self, job: int) -> None:
        self.asked.append(("discard", job))

    def erase(self, attempt: AttemptId) -> None:
        self.asked.append(("erase", str(attempt)))

    def log_size(self, attempt: AttemptId, index: int) -> int | None:
        return None

    def read_log(self, attempt: AttemptId, index: int, offset: int, limit: int) -> tuple[int, bytes]:
        return offset, b""

    def log_offset_at(self, attempt: AttemptId, index: int, moment: float) -> int | None:
        return None


class Stage:
    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.engine = ScriptedEngine()
        self.folder = folder
        self.store: Store = open_store(folder / "swell.db", self.clock.now)
        self.told_of: list[int] = []  #: jobs whose end somebody wanted to know of
        self.cycles: list[Cycled] = []  #: what was told of every cycle
        self.controller = self._controller()

    def _controller(self, keep_s: float | None = None) -> Controller:
        def notify(record: JobRecord) -> None:
            self.told_of.append(record.id)

        how = {"keep_s": keep_s, "reporting": REPORTING, "notify": notify, "watch": self.cycles.append}
        controller = Controller(self.store, self.engine, self.clock, **how)  # type: ignore[arg-type]
        controller.load()
        return controller

    def restart(self) -> None:
        """As after kill -9: only the store is left."""
        self.store.close()
        self.store = open_store(self.folder / "swell.db", self.clock.now)
        self.engine.asked.clear()
        self.controller = self._controller()

    def submit(self, **changes: object) -> int:
        [record] = self.controller.submit([NewJob(spec(**changes), "me", {"A": "1"})]).result()
        return record.id

    def gang(self, tasks: int, gpus: int = 0) -> int:
        role = Role("worker", ("true",), Resources(1000, 0, gpus), tasks)
        return self.submit(roles=(role,), width_min=tasks, width_max=tasks)

    def array(self, text: str, at_once: int, **changes: object) -> int:
        indices = IndexSet.parse(text)
        return self.submit(array=Array(indices, at_once), width_max=at_once, **changes)

    def cycle(self, seconds: float = 1.0) -> None:
        self.clock.time += seconds
        self.controller.cycle()

    def elastic(self, low: int, high: int, **changes: object) -> int:
        """A job of one task with so many GPUs."""
        role = Role("worker", ("train",), Resources(100, 0, low), 1)
        shape = {"roles": (role,), "dimension": Dimension.GPUS, "width_min": low, "width_max": high}
        return self.submit(**{**shape, **changes})

    # -- what is seen ----------------------------------------------------------------------------------------

    def present(self, job: int) -> AttemptId:
        return AttemptId(job, max(1, self.job(job).attempts))

    def began(self, job: int, *indices: int) -> None:
        self.engine.tasks += [TaskSeen(self.present(job), i, "a", i, self.clock.time) for i in indices]

    def ended(self, job: int, index: int, code: int | None = 0, cause: str = "", problem: str = "") -> None:
        now = self.clock.time
        self.engine.tasks.append(TaskSeen(self.present(job), index, "a", index, now - 1, now, code, cause, problem))

    def never_ran(self, job: int, index: int, cause: str, problem: str) -> None:
        now = self.clock.time
        self.engine.tasks.append(TaskSeen(self.present(job), index, "a", index, now, now, None, cause, problem))

    def run(self, job: int, in_use: tuple[int, ...] = (), left: int = 0, revision: int = 1, done: bool = False) -> None:
        attempt = self.present(job)
        self.engine.runs[attempt] = RunSeen(attempt, "a", revision, in_use, left, done)

    def uses(self, job: int, memory_mib: int = 0, peak_mib: int = 0, quiet_s: float = 0.0) -> None:
        """What the driver tells of its present attempt."""
        attempt, seen = self.present(job), GpuSeen(memory_mib, peak_mib, quiet_s)
        self.engine.runs[attempt] = RunSeen(attempt, "a", 1, (0,), 0, False, gpu=seen)
        self.cycle()

    def is_in_trouble(self, job: int, trouble: str) -> None:
        """While it is being started."""
        attempt = self.present(job)
        self.engine.runs[attempt] = RunSeen(attempt, "a", 1, (), 0, False, trouble=trouble)
        self.cycle()

    def is_suspended(self, job: int, found: str) -> None:
        """By somebody else, in the cluster."""
        attempt = self.present(job)
        self.engine.runs[attempt] = RunSeen(attempt, "a", 1, (), 1, False, suspended=found)
        self.cycle(0.0)

    def begin(self, job: int, seconds: float = 0.0) -> None:
        """It is started, and all its tasks are seen."""
        self.cycle(seconds)
        self.began(job, *range(self.job(job).tasks_total))
        self.cycle(0.0)

    def finish(self, job: int, *codes: int | None, cause: str = "", seconds: float = 0.0) -> None:
        """Its ranks are seen to end with these codes, and nothing of it is left."""
        self.clock.time += seconds
        for rank, code in enumerate(codes):
            self.ended(job, rank, code, cause)
        self.run(job, done=True)
        self.cycle(0.0)

    # -- what is said and asked ------------------------------------------------------------------------------

    def done(self, intent: Future[T], seconds: float = 0.0) -> T:
        """Carried out in the next cycle."""
        self.cycle(seconds)
        return intent.result(timeout=0)

    def say(self, job: int, seconds: float = 0.0, rank: int = 0, attempt: int | None = None, **told: object) -> None:
        whose = self.present(job) if attempt is None else AttemptId(job, attempt)
        report = Report(whose, rank, **told)  # type: ignore[arg-type]
        self.clock.time += seconds
        self.done(self.controller.report(report))

    def saved(self, job: int, epochs: float, seconds: float = 0.0, path: str | None = None) -> None:
        """So many epochs are done and durable."""
        self.clock.time += seconds
        checkpoint = Checkpoint(epochs, path, self.clock.time, self.present(job).number)
        self.say(job, begun=int(epochs) + 1, epochs_done=epochs, checkpoint=checkpoint)

    def control(self, job: int) -> Control:
        return self.controller.control(self.present(job))

    def launch(self, job: int) -> Launch:
        """Of its present attempt, on its first node."""
        return self.engine.launches[self.present(job)][0]

    def assignment(self, job: int) -> Assignment:
        """Of its present attempt."""
        return self.engine.assignments[self.present(job)]

    def own(self, job: int) -> dict[str, str]:
        return dict(self.launch(job).own)

    def asked_to(self, word: str) -> list[tuple[object, ...]]:
        return [asked for asked in self.engine.asked if asked[0] == word]

    def training(self, job: int) -> TrainingRecord:
        found = self.job(job).training
        assert found is not None
        return found

    def job(self, job: int) -> JobRecord:
        return self.store.job(job)

    def why(self, job: int) -> Reason:
        found = self.controller.reason(self.job(job))
        assert found is not None
        return found

    def details(self, job: int, kind: str) -> list[dict[str, object]]:
        """Of its events of one kind."""
        return [event.detail for event in self.store.events(job=job) if event.kind == kind]

    def states(self, *jobs: int) -> list[str]:
        return [str(self.job(job).state) for job in jobs]

    def kinds(self, job: int) -> list[str]:
        return [event.kind for event in self.store.events(job=job)]
