"""What do we know of a job that has not ended?

Its terms, which never change; its record, which is what the store has of it; and the progress of its tasks. A new
column of the job is a field of `JobStatus` (`store/records.py`), with its column in `store/tables.py` and a migration:
what is read and written follows from the fields.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from swell.controller.curves import ScriptKey, script_of
from swell.controller.progress import Progress
from swell.model.attempt import Asked, Stopping
from swell.model.cluster import NodeId
from swell.model.job import After, AttemptId, ExitRule, IdlePolicy, JobId, JobState, Overrun, ResizeMode
from swell.model.plan import JobView, Shape, Slot, held_slots
from swell.model.reason import Code, Evidence
from swell.model.training import RankPosition, SharedCurve, Training, TrainingRecord
from swell.store import AttemptRecord, Changes, JobRecord, JobStatus


@dataclass(frozen=True, slots=True)
class Terms:
    """What of a job's spec the loop needs all the time; commands, folders and environments stay in the store."""

    priority: int
    preempts: bool
    grace_s: float
    kind: str  #: of the object it was written as; empty: in our own notation
    resize: ResizeMode
    estimate_s: float | None  #: None: no guess
    epochs: int | None  #: None: only the job itself knows
    retries: int  #: of an array: of each index
    retries_together: int | None  #: of an array: of all indices; None: no limit beside that of each
    exit_rules: tuple[ExitRule, ...]  #: which failures are treated otherwise
    notifies: str  #: "end", "error", or nobody
    on_overrun: Overrun
    idle: IdlePolicy | None  #: None: its GPUs may idle
    script: ScriptKey | None  #: jobs with the same one share a curve; None: it shares none

    @classmethod
    def of(cls, record: JobRecord) -> Terms:
        spec = record.spec
        has_own_retries = bool(record.manifest) and spec.array is not None  # its object's controller does that
        return cls(
            priority=record.priority,
            preempts=spec.preempts,
            grace_s=spec.grace_s,
            kind=spec.kind,
            resize=spec.resize,
            estimate_s=spec.estimate_s,
            epochs=spec.epochs,
            retries=0 if has_own_retries else spec.retries,
            retries_together=spec.retries_together,
            exit_rules=() if has_own_retries else spec.exit_rules,
            notifies="" if spec.notify is None else "error" if spec.notify.only_on_error else "end",
            on_overrun=spec.on_overrun,
            idle=spec.idle,
            script=script_of(spec, record.owner),
        )


@dataclass(slots=True)
class LiveJob:
    """A job that has not ended. `#:` lines hold at the end of every cycle."""

    id: JobId
    owner: str
    shape: Shape
    terms: Terms
    record: JobStatus  #: counts of tasks and the width are those of the last `write`; `progress` has the present ones
    progress: Progress
    training: TrainingRecord | None = None  #: None: it has reported nothing
    attempt: AttemptRecord | None = None  #: the present one; None while queued
    cancel_by: str | None = None  #: None: nobody asked
    cancel_grace_s: float | None = None  #: None: the spec's
    after: tuple[After, ...] = ()  #: jobs that must end first; those that have are gone from here
    returns: int | None = None  #: the width it gave its room back for; None: it lines up for another reason
    doomed_by: tuple[JobId, str] | None = None  #: a job it was to follow, and how that ended; None: none did wrong
    suspended: str = ""  #: its object, which somebody suspended and by that asked so; empty: nobody did
    tensorboard: str = ""  #: of the present attempt; empty: nowhere to be looked at
    trouble: dict[NodeId, str] = field(default_factory=dict)  #: of the present attempt, as its nodes told last
    wound_down_s: float = 0.0  #: of the attempt before: from its last durable moment to its end
    _view: JobView | None = None

    @classmethod
    def of(cls, record: JobRecord, shape: Shape) -> LiveJob:
        """The job as the store has it, without its attempt and tasks."""
        terms, status = Terms.of(record), JobStatus.of(record)
        return cls(
            id=record.id,
            owner=record.owner,
            shape=shape,
            terms=terms,
            record=replace(status, queued_at=record.submitted_at if status.queued_at is None else status.queued_at),
            progress=Progress(shape.is_array, terms.retries, terms.exit_rules),
            training=record.training,
            cancel_by=record.cancel_requested_by,
            cancel_grace_s=record.cancel_grace_s,
            after=record.spec.after if record.attempts == 0 else (),  # one that has begun follows nobody any more
        )

    @property
    def state(self) -> JobState:
        return self.record.state

    @property
    def attempts(self) -> int:
        return self.record.attempts

    @property
    def attempt_id(self) -> AttemptId:
        return AttemptId(self.id, self.record.attempts)

    @property
    def slots(self) -> tuple[Slot, ...]:
        return () if self.attempt is None else self.attempt.slots

    @property
    def held(self) -> tuple[Slot, ...]:
        """Its slots without those whose tasks have ended before the others: their room is free."""
        return () if self.attempt is None else held_slots(self.attempt.slots)

    @property
    def mode(self) -> ResizeMode:
        """How its width may change now."""
        return self.terms.resize.of(has_checkpoint=self.training is not None and self.training.checkpoint is not None)

    @property
    def asked(self) -> Asked | None:
        """What its present attempt was asked to give back; None: nothing."""
        return None if self.attempt is None else self.attempt.asked

    @property
    def stopping(self) -> Stopping | None:
        """How its present attempt is being stopped; None: it is not. Never None while the state is `stopping`."""
        return None if self.attempt is None else self.attempt.stopping

    @property
    def durable_at(self) -> float | None:
        """Until when the work of the present attempt is safe; None: it has not begun any."""
        checkpoint = None if self.training is None else self.training.checkpoint
        if checkpoint is not None and checkpoint.attempt == self.record.attempts:
            return checkpoint.at
        return self.progress.began_at or (None if self.attempt is None else self.attempt.started_at)

    def view(self, curve: SharedCurve | None) -> JobView:
        """The job as the planner sees it: the same object as long as nothing has changed, its `curve` included."""
        if self._view is None or self._view.curve is not curve:
            record = self.record
            mib = record.gpu_memory_mib  # what it was seen to need takes the place of what it asked for
            self._view = JobView(
                id=self.id,
                shape=self.shape if mib is None else self.shape.with_shares(mib),
                priority=self.terms.priority,
                state=record.state,
                slots=tuple(replace(slot, resources=slot.resources.with_share(mib)) for slot in self.held),
                started_at=self.attempt.created_at if self.attempt else None,
                unfinished=self.unfinished,
                width=self.attempt.width if self.attempt else 0,
                used_s=record.used_s,
                mode=self.mode,
                is_at_once=self.terms.resize is ResizeMode.EITHER,
                training=self._training_for_planner(),
                estimate_s=self.terms.estimate_s,
                yielding=self.asked.width if self.asked else None,
                wanted=record.wanted_width,
                returns=None if self.attempt else self.returns,
                lined_up_at=self.queued_at,
                reserved_at=record.reserved_at,
                waits_for=tuple(after.job for after in self.after),
                not_before=record.retry_at,
                user=self.owner,
                is_held=self.shape.is_array and record.held_by is not None,
                ended_on=frozenset(self.progress.finished_on if self.shape.is_array else ()),
                preempts=self.terms.preempts,
                problem=record.problem,
                curve=curve,
            )
        return self._view

    @property
    def queued_at(self) -> float:
        """When it last began to wait."""
        assert self.record.queued_at is not None
        return self.record.queued_at

    def _training_for_planner(self) -> Training | None:
        if self.training is None:
            return None
        counted_at = None if self.progress.began_at is None else self.durable_at
        saves_at_steps = self.progress.can_stop_at_step
        return replace(self.training.for_planner(), counted_at=counted_at, saves_at_steps=saves_at_steps)

    def note_position(self, rank: int, position: RankPosition) -> None:
        """A rank that can stop at any step says where it is."""
        self.progress.positions[rank] = position
        self._view = None

    def write(self, changes: Changes) -> None:
        """Note the present values for the store; always all of them, so that many jobs are one statement."""
        self._view = None
        progress = self.progress
        self.record = replace(
            self.record,
            width=0 if self.attempt is None else self.attempt.width,
            tasks_running=progress.running,
            tasks_succeeded=progress.succeeded,
            tasks_failed=progress.failed,
            tasks_stopped=len(progress.stopped),
        )
        training = None if self.training is None else self.training.to_document()
        changes.set_job(self.id, **self.record.columns(), training=training)

    def set_attempt(self, attempt: AttemptRecord, changes: Changes) -> None:
        self.attempt = attempt
        self._view = None
        changes.attempts.append(attempt)

    def become(self, state: JobState, code: Code | None, evidence: Evidence) -> None:
        """Take a state, with the reason for it; `code` None: all is well."""
        self.record = replace(self.record, state=state, reason_code=code, reason_evidence=evidence)

    def count_run_time(self, ended_at: float) -> float:
        """Of the present attempt, which ends: what its record gets, and what its limit may count."""
        began = self.record.running_since
        ran_s = 0.0 if began is None else max(0.0, ended_at - began)
        self.record = replace(self.record, ran_s=self.record.ran_s + ran_s, running_since=None)
        return ran_s

    def drop_reservation(self) -> None:
        self.record = replace(self.record, reserved_at=None, reserved_until=None)

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
        self.progress = Progress(self.shape.is_array, self.terms.retries, self.terms.exit_rules)

    @property
    def may_try_again(self) -> bool:
        """Of an array: has an index failed that is to have another try?"""
        allowed = self.terms.retries_together
        return bool(self.progress.again) and (allowed is None or self.record.failures + self.progress.failed <= allowed)

    def put_back(self) -> int:
        """An array's attempt is over: put back what failed and has tries left (so many), and what we stopped."""
        again = self.progress.again if self.may_try_again else set()
        self.record = replace(self.record, failures=self.record.failures + len(again))
        self.progress.put_back(again)
        return len(again)

    def emptied_at(self, now: float) -> float:
        """When the latest task of the present attempt ended, not when we heard of it; now, if none has."""
        assert self.attempt is not None
        return self.progress.emptied_at(now, since=self.attempt.created_at)

    @property
    def has_begun(self) -> bool:
        """Of a gang every rank, of an array any task."""
        begun = self.progress.begun_now
        return bool(begun) if self.shape.is_array else len(begun) >= len(self.slots)

    @property
    def unfinished(self) -> int:
        progress = self.progress
        return self.record.tasks_total - progress.succeeded - progress.failed - len(progress.stopped)

    @property
    def has_only_succeeded(self) -> bool:
        return self.progress.succeeded + self.progress.left_out == self.record.tasks_total
