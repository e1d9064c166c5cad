"""What may somebody ask of a job, and what does that change?

An intent is carried out by the loop, between what was seen and the plan: it looks at the world as it is, refuses
before it changes anything, and is durable when its future is done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from swell.controller.livejob import LiveJob
from swell.controller.observe import Effect
from swell.controller.training import fold_report
from swell.controller.watching import learn
from swell.controller.world import World
from swell.controller.yielding import ask, can_stop_now, go_back_to_checkpoint, is_trained, stop
from swell.errors import Conflict, NotFound, Rejected
from swell.model.job import JobId, JobState, ResizeMode
from swell.model.reason import Code
from swell.model.training import Report
from swell.store import Changes, EventRecord, JobRecord, TaskRecord

T = TypeVar("T")
Tasks = Callable[[JobId], list[TaskRecord]]  # of a job, in all its attempts


@dataclass(slots=True)
class Turn:
    """One cycle's sheet."""

    world: World
    changes: Changes
    now: float
    effects: list[Effect] = field(default_factory=list)
    restarts_s: list[float] = field(default_factory=list)  #: what the start of jobs that began to train has cost
    plan_s: float = 0.0  #: CPU time
    origin: str = ""  #: from where the intent under way was asked


Intent = Callable[[Turn], T]


def asked_from(origin: str, intent: Intent[T]) -> Intent[T]:
    """Its events say from where."""

    def with_origin(turn: Turn) -> T:
        turn.origin = origin
        return intent(turn)

    return with_origin


def report(told: Report) -> Intent[None]:
    def intent(turn: Turn) -> None:
        restart_s = fold_report(turn.world, told, turn.changes, turn.now)
        turn.restarts_s += [] if restart_s is None else [restart_s]
        job = turn.world.jobs[told.attempt.job]
        learn(turn.world, job, turn.changes, turn.now)
        if job.state is not JobState.STOPPING and _is_at_its_end(job, told):
            cause = "it is ready to stop" if job.asked is None else job.asked.cause
            turn.effects += stop(job, turn.changes, cause, None)

    return intent


def _is_at_its_end(job: LiveJob, told: Report) -> bool:
    """Is it to be stopped where it is? Of several ranks rank 0 speaks for all: what it has reported is all there is."""
    if told.is_ready and told.rank == 0:
        return True
    return told.is_deaf and told.checkpoint is not None and job.asked is not None and not is_trained(job)


def hold(job_id: JobId, by: str) -> Intent[None]:
    def intent(turn: Turn) -> None:
        job = _live(turn, job_id)
        if job.record.held_by is not None:
            return
        if job.attempt is not None and not job.shape.is_array:  # an array's tasks run to their end, and no other begins
            instead = (
                f"wait for it, or end it with: swell cancel {job.id}; swell requeue {job.id} starts it again later"
            )
            _refuse_unless_it_resumes(job, "holding", instead)
        job.record = replace(job.record, held_by=by)
        _note(turn, job, "HoldRequested", by)

    return intent


def release(job_id: JobId, by: str) -> Intent[None]:
    def intent(turn: Turn) -> None:
        job = _live(turn, job_id)
        if job.record.held_by is None:
            raise Conflict(f"job {job.id} is not held; it is {job.state}")
        job.record, job.suspended = replace(job.record, held_by=None), ""
        _note(turn, job, "Released", by)

    return intent


def give_up(jobs: Sequence[JobId], by: str) -> Intent[None]:
    """Those that have begun meanwhile are left alone."""

    def intent(turn: Turn) -> None:
        for job in filter(None, map(turn.world.jobs.get, jobs)):
            if job.attempts == 0 and job.cancel_by is None:
                job.cancel_by = by
                turn.changes.set_job(job.id, cancel_requested_by=by)
                _note(turn, job, "CancelRequested", by)

    return intent


def requeue(job_id: JobId, by: str, *, is_now: bool, read: Callable[[JobId], JobRecord], tasks: Tasks) -> Intent[None]:
    def intent(turn: Turn) -> None:
        job = turn.world.jobs.get(job_id)
        if job is None:
            _take_back(turn, read(job_id), by, read, tasks)
        elif job.attempt is None:
            raise Conflict(f"job {job.id} is {job.state}: it has not started, so there is nothing to start again")
        elif job.shape.is_array:
            raise Conflict(
                f"job {job.id} is an array that has not ended, and its tasks cannot be started again before it has; "
                f"wait for it, or end it with: swell cancel {job.id}; "
                f"then swell requeue {job.id} runs what has not succeeded"
            )
        else:
            if not is_now:
                _refuse_unless_it_resumes(job, "requeueing", f"stop it at once with: swell requeue --now {job.id}")
            when = ResizeMode.IMMEDIATE if is_now else job.mode
            cause = f"requeued by {by}"
            turn.effects += ask(turn.world, job, turn.changes, turn.now, width=0, when=when, cause=cause)
            _note(turn, job, "RequeueRequested", by)

    return intent


def _take_back(turn: Turn, record: JobRecord, by: str, read: Callable[[JobId], JobRecord], tasks: Tasks) -> None:
    """One that has failed or was cancelled gets another life: its retries again, and all of its time.

    Of an array what has succeeded stays done.
    """
    if record.state is JobState.SUCCEEDED:
        raise Conflict(f"job {record.id} has succeeded; submit it again to run it once more")
    if record.spec.array is not None and record.manifest:
        raise Conflict(
            f"job {record.id} is an array: its Kubernetes Job has finished and cannot start more tasks; "
            "submit the missing tasks as a new job"
        )
    if record.attempts == 0:
        _refuse_if_doomed(turn, record, read)
    turn.changes.set_job(record.id, ended_at=None, exit_code=None, cancel_requested_by=None, cancel_grace_s=None)
    job = turn.world.add(replace(record, first_attempt=record.attempts + 1))
    if job.shape.is_array:
        turn.world.restore(job, None, tasks(job.id))
    job.become(JobState.QUEUED, Code.NOT_YET_PLANNED, {})
    job.cancel_by = job.cancel_grace_s = None
    job.drop_reservation()
    anew = replace(job.record, held_by=None, retry_at=None, queued_at=turn.now)
    job.record = replace(anew, failures=0, used_s=0.0, unplaced=0, problem="")
    job.after = tuple(after for after in job.after if after.job in turn.world.jobs)
    go_back_to_checkpoint(job)
    turn.world.asked.discard(job.id)
    _note(turn, job, "Requeued", by)


def _refuse_if_doomed(turn: Turn, record: JobRecord, read: Callable[[JobId], JobRecord]) -> None:
    """It still is to follow others: taken back without them, it would be cancelled again by the next restart."""
    for after in record.spec.after:
        if after.on_any_end or after.job in turn.world.jobs:
            continue
        try:
            state = read(after.job).state
            ended = "was cancelled" if state is JobState.CANCELLED else str(state)
        except NotFound:
            ended = "was deleted"
        if ended != JobState.SUCCEEDED:
            raise Conflict(
                f"job {record.id} depends on job {after.job}, which {ended}; "
                f"requeue job {after.job} first (swell requeue {after.job}), or submit the job without that dependency"
            )


def scale(
    job_id: JobId,
    width: int | None,
    by: str,
    *,
    is_now: bool,
    is_kept: bool = True,
    read: Callable[[JobId], JobRecord],
) -> Intent[None]:
    """`is_kept` False: from its next start on the width is the planner's choice again."""

    def intent(turn: Turn) -> None:
        job = _live(turn, job_id)
        shape = job.shape
        if shape.is_array:
            raise Rejected(f"job {job.id} is an array; how many of its tasks run at once is in its own spec")
        if width is not None and not shape.width_min <= width <= shape.width_max:
            span = f"{shape.width_min}..{shape.width_max}"
            raise Rejected(f"width {width} is outside job {job.id}'s range, {span}{_why_rigid(read(job.id))}")
        is_running_at = job.attempt.width if job.attempt is not None else None
        if width is not None and is_running_at not in (None, width) and not is_now:
            _refuse_unless_it_resumes(job, "resizing", f"stop and start it at once with: swell scale --now {job.id} N")
        job.record = replace(job.record, wanted_width=width if is_kept else job.record.wanted_width)
        _note(turn, job, "ScaleRequested", by, width=width)
        if is_now and width is not None and is_running_at not in (None, width):
            cause = f"scaled to {width} on request"
            turn.effects += ask(
                turn.world, job, turn.changes, turn.now, width=width, when=ResizeMode.IMMEDIATE, cause=cause
            )

    return intent


def _why_rigid(record: JobRecord) -> str:
    """What of its manifest has no effect, where it has but one width."""
    notes = record.spec.notes if record.width_min == record.width_max else ()
    return "".join(f"; {note}" for note in notes)


def _live(turn: Turn, job_id: JobId) -> LiveJob:
    job = turn.world.jobs.get(job_id)
    if job is None:
        raise Conflict(f"job {job_id} has ended")
    return job


def _refuse_unless_it_resumes(job: LiveJob, doing: str, instead: str) -> None:
    """Nothing is stopped whose work would be lost, unless somebody says so."""
    if not can_stop_now(job):
        why = "may not be resized (resize: never)" if job.mode is ResizeMode.NEVER else "has no checkpoint"
        raise Conflict(f"job {job.id} is running and {why}, so {doing} it would lose its work; {instead}")


def _note(turn: Turn, job: LiveJob, kind: str, by: str, **detail: object) -> None:
    job.write(turn.changes)
    turn.world.asked.add(job.id)
    turn.changes.events.append(EventRecord(kind, job.id, by, detail=dict(detail), origin=turn.origin))
