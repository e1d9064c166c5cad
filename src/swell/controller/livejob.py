"""What do we know of a job that has not ended?"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from swell.model.cluster import NodeId
from swell.model.job import EXIT_YIELDED, After, AttemptId, IdlePolicy, JobId, JobState, Overrun, ResizeMode
from swell.model.launch import CAUSE_DELETED, CAUSE_STOPPED, GpuSeen, TaskSeen
from swell.model.plan import JobView, Shape, Slot
from swell.model.reason import Code, Evidence
from swell.model.training import Asked, TrainingRecord
from swell.store import AttemptRecord, Changes, JobRecord


@dataclass(slots=True)
class LiveJob:
    """A job that has not ended. `#:` lines hold at the end of every cycle."""

    id: JobId
    owner: str
    shape: Shape
    priority: int
    grace_s: float
    tasks_total: int
    kind: str = ""  #: of the object it was written as; empty: in our own notation
    state: JobState = JobState.QUEUED
    reason: Code | None = Code.NOT_YET_PLANNED
    evidence: Evidence = field(default_factory=dict)
    cancel_by: str | None = None  #: None: nobody asked
    cancel_grace_s: float | None = None  #: None: the spec's
    attempt: AttemptRecord | None = None  #: the present one; None while queued
    attempts: int = 0
    started_at: float | None = None
    ended: dict[int, bool] = field(default_factory=dict)  #: index → has ended; absent: not begun
    begun_now: set[int] = field(default_factory=set)  #: tasks seen in the present attempt
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    last_end: float | None = None  #: of its tasks; None: none has ended
    failure: TaskSeen | None = None  #: the task that tells why it failed
    deleted: TaskSeen | None = None  #: a task whose object somebody else deleted; None: nobody did
    refusal: TaskSeen | None = None  #: of an array: that its present attempt found no place; None: nobody said so
    finished_on: set[str] = field(default_factory=set)  #: nodes that have nothing of it any more
    nodes: tuple[str, ...] = ()
    resize: ResizeMode = ResizeMode.AT_CHECKPOINT
    estimate_s: float | None = None  #: None: no guess
    epochs: int | None = None  #: by its spec; None: only the job itself knows
    retries: int = 0
    after: tuple[After, ...] = ()  #: jobs that must end first; those that have are gone from here
    training: TrainingRecord | None = None  #: None: it has reported nothing
    lost_gpu_seconds: float = 0.0
    resizes: int = 0
    preemptions: int = 0
    failures: int = 0
    unplaced: int = 0  #: attempts in a row that could not be placed
    problem: str = ""  #: why not, in the words of who refused
    used_s: float = 0.0  #: of attempts that have ended
    held_by: str | None = None  #: None: nobody asked that it wait
    suspended: str = ""  #: its object, which somebody suspended and by that asked so; empty: nobody did
    wanted_width: int | None = None  #: None: the planner's choice
    queued_at: float = 0.0  #: when it last began to wait
    reserved_at: float | None = None  #: None: no room is being made for it
    reserved_until: float | None = None  #: None: as above
    retry_at: float | None = None  #: None: at once
    begun: dict[int, int] = field(default_factory=dict)  #: rank → epochs begun, as said in the present attempt
    began_at: float | None = None  #: when the present attempt began to train; None: it has not
    wound_down_s: float = 0.0  #: of the attempt before: from its last durable moment to its end
    yielded: int = 0  #: tasks that ended with the code for it
    doomed_by: tuple[JobId, str] | None = None  #: a job it was to follow, and how that ended; None: none did wrong
    notifies: str = ""  #: "end", "error", or nobody
    tensorboard: str = ""  #: of the present attempt; empty: nowhere to be looked at
    trouble: dict[NodeId, str] = field(default_factory=dict)  #: of the present attempt, as its nodes told last
    on_overrun: Overrun = Overrun.WARN
    idle: IdlePolicy | None = None  #: None: its GPUs may idle
    gpu: dict[NodeId, GpuSeen] = field(default_factory=dict)  #: of the present attempt, where measured; never changed
    gpu_memory_mib: int | None = None  #: what it was seen to need on a GPU it shares; None: what its spec says
    gpu_peak_mib: int | None = None  #: the most it was seen to use on one GPU; None: not measured
    _view: JobView | None = None

    @classmethod
    def of(cls, record: JobRecord, shape: Shape) -> LiveJob:
        """As the store has it, without its attempt and tasks."""
        spec = record.spec
        return cls(
            id=record.id,
            owner=record.owner,
            shape=shape,
            priority=record.priority,
            grace_s=spec.grace_s,
            tasks_total=record.tasks_total,
            kind=spec.kind,
            state=record.state,
            reason=record.reason_code,
            evidence=record.reason_evidence,
            cancel_by=record.cancel_requested_by,
            cancel_grace_s=record.cancel_grace_s,
            attempts=record.attempts,
            started_at=record.started_at,
            nodes=record.nodes,
            resize=spec.resize,
            estimate_s=spec.estimate_s,
            epochs=spec.epochs,
            retries=spec.retries,
            after=spec.after if record.attempts == 0 else (),  # it has begun, so nothing stands before it any more
            training=record.training,
            lost_gpu_seconds=record.lost_gpu_seconds,
            resizes=record.resizes,
            preemptions=record.preemptions,
            failures=record.failures,
            used_s=record.used_s,
            held_by=record.held_by,
            wanted_width=record.wanted_width,
            queued_at=record.submitted_at if record.queued_at is None else record.queued_at,
            reserved_at=record.reserved_at,
            reserved_until=record.reserved_until,
            retry_at=record.retry_at,
            notifies="" if spec.notify is None else "error" if spec.notify.only_on_error else "end",
            on_overrun=spec.on_overrun,
            idle=spec.idle,
            gpu_memory_mib=record.gpu_memory_mib,
            gpu_peak_mib=record.gpu_peak_mib,
            unplaced=record.unplaced,
            problem=record.problem,
        )

    @property
    def attempt_id(self) -> AttemptId:
        return AttemptId(self.id, self.attempts)

    @property
    def slots(self) -> tuple[Slot, ...]:
        return () if self.attempt is None else self.attempt.slots

    @property
    def mode(self) -> ResizeMode:
        """How its width may change now."""
        return self.resize.of(has_checkpoint=self.training is not None and self.training.checkpoint is not None)

    @property
    def asked(self) -> Asked | None:
        return None if self.attempt is None else self.attempt.asked

    @property
    def durable_at(self) -> float | None:
        """Until when the work of the present attempt is safe; None: it has not begun any."""
        checkpoint = None if self.training is None else self.training.checkpoint
        if checkpoint is not None and checkpoint.attempt == self.attempts:
            return checkpoint.at
        return self.began_at or (None if self.attempt is None else self.attempt.started_at)

    def view(self) -> JobView:
        """The same object as long as nothing has changed."""
        if self._view is None:
            mib = self.gpu_memory_mib  # what it was seen to need takes the place of what it asked for
            self._view = JobView(
                id=self.id,
                shape=self.shape if mib is None else self.shape.with_shares(mib),
                priority=self.priority,
                state=self.state,
                slots=tuple(replace(slot, resources=slot.resources.with_share(mib)) for slot in self.slots),
                started_at=self.attempt.created_at if self.attempt else None,
                unfinished=self.unfinished,
                width=self.attempt.width if self.attempt else 0,
                used_s=self.used_s,
                mode=self.mode,
                training=None if self.training is None else self.training.for_planner(),
                estimate_s=self.estimate_s,
                yielding=self.asked.width if self.asked else None,
                wanted=self.wanted_width,
                lined_up_at=self.queued_at,
                reserved_at=self.reserved_at,
                waits_for=tuple(after.job for after in self.after),
                not_before=self.retry_at,
                user=self.owner,
                problem=self.problem,
            )
        return self._view

    def write(self, changes: Changes) -> None:
        """Note the present values for the store; always all of them, so that many jobs are one statement."""
        self._view = None
        changes.set_job(
            self.id,
            state=str(self.state),
            reason_code=None if self.reason is None else str(self.reason),
            reason_evidence=self.evidence,
            started_at=self.started_at,
            attempts=self.attempts,
            width=self.attempt.width if self.attempt is not None else 0,
            tasks_total=self.tasks_total,
            tasks_running=self.running,
            tasks_succeeded=self.succeeded,
            tasks_failed=self.failed,
            nodes=self.nodes,
            training=None if self.training is None else self.training.to_document(),
            lost_gpu_seconds=self.lost_gpu_seconds,
            resizes=self.resizes,
            preemptions=self.preemptions,
            failures=self.failures,
            used_s=self.used_s,
            held_by=self.held_by,
            wanted_width=self.wanted_width,
            queued_at=self.queued_at,
            reserved_at=self.reserved_at,
            reserved_until=self.reserved_until,
            retry_at=self.retry_at,
            gpu_memory_mib=self.gpu_memory_mib,
            gpu_peak_mib=self.gpu_peak_mib,
            unplaced=self.unplaced,
            problem=self.problem,
        )

    def set_attempt(self, attempt: AttemptRecord, changes: Changes) -> None:
        self.attempt = attempt
        self._view = None
        changes.attempts.append(attempt)

    def drop_reservation(self) -> None:
        self.reserved_at = self.reserved_until = None

    def let_follow(self, ended: JobId, state: JobState) -> None:
        """A job it waits for has ended."""
        self._view = None
        for after in self.after:
            if after.job == ended and not after.on_any_end and state is not JobState.SUCCEEDED:
                self.doomed_by = ended, str(state)
        self.after = tuple(after for after in self.after if after.job != ended)

    def start_over(self) -> None:
        """Nothing of an attempt that has ended counts for the next one of a gang."""
        self.attempt = None
        self.ended.clear()
        self.begun_now.clear()
        self.finished_on.clear()
        self.begun.clear()
        self.gpu = {}
        self.running = self.succeeded = self.failed = self.yielded = 0
        self.last_end = self.failure = self.deleted = self.began_at = None

    def count(self, task: TaskSeen) -> bool:
        """Take a sighting into account; False when it says nothing new."""
        before = self.ended.get(task.index)
        if before or (before is False and task.ended_at is None):
            return False
        if task.ended_at is None:
            self.running += 1
        else:
            self.running -= before is False
            self.last_end = max(self.last_end or 0.0, task.ended_at)
            if task.exit_code == 0 and not task.cause:
                self.succeeded += 1
            else:
                self.failed += 1
                self.yielded += task.exit_code == EXIT_YIELDED
                self.failure = self._worse(task)
                self.deleted = task if task.cause == CAUSE_DELETED else self.deleted
        self.ended[task.index] = task.ended_at is not None
        if task.has_run or self.shape.is_array:
            self.begun_now.add(task.index)
        return True

    def _worse(self, task: TaskSeen) -> TaskSeen:
        """Not those we stopped: of an array the lowest index that failed by itself, of a gang the first."""
        known = self.failure
        if known is None:
            return task
        if self.shape.is_array:
            return min(known, task, key=lambda seen: (seen.cause == CAUSE_STOPPED, seen.index))
        return min(known, task, key=_blame)

    def emptied_at(self, now: float) -> float:
        """When the latest task of the present attempt ended, not when we heard of it; now, if none has."""
        assert self.attempt is not None
        if self.last_end is None or self.last_end < self.attempt.created_at:  # an array's may be of an earlier attempt
            return now
        return min(now, self.last_end)

    @property
    def has_begun(self) -> bool:
        """Of a gang every rank, of an array any task."""
        return bool(self.begun_now) if self.shape.is_array else len(self.begun_now) >= len(self.slots)

    @property
    def unfinished(self) -> int:
        return self.tasks_total - self.succeeded - self.failed

    @property
    def has_only_succeeded(self) -> bool:
        return self.succeeded == self.tasks_total


def _blame(seen: TaskSeen) -> tuple[bool, bool, float, int]:
    return seen.cause == CAUSE_STOPPED, seen.exit_code == EXIT_YIELDED, seen.ended_at or 0.0, seen.index
