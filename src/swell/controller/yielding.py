"""How does a job give its room back, and what is lost by it?

It is asked (`ask`): at a checkpoint it learns after which epoch to stop, and it has until the deadline; immediate
ones are sent SIGTERM at once. Ranks agree without talking: the epoch lies above every one that any of them is
known to have begun, far enough that each of them hears of it before. When all its processes have been seen to end it
lines up again (`come_back`) and goes on from the last checkpoint it reported. What was done after that checkpoint
is lost, and counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from swell.controller.livejob import LiveJob
from swell.controller.world import World
from swell.model.job import AttemptId, JobState, ResizeMode
from swell.model.launch import (
    CAUSE_IMAGE,
    CAUSE_NOT_PLACED,
    CAUSE_REBOOT,
    CAUSE_START,
    CAUSE_STOPPED,
    CAUSE_TIME_LIMIT,
)
from swell.model.reason import Code, Evidence
from swell.model.training import Asked, Checkpoint
from swell.model.usage import gpu_seconds
from swell.store import Changes, EventRecord
from swell.throughput import predict

NEWS_S = 1.0  # within this every rank has heard what it was asked; they ask with a long poll
RETRY_S_MAX = 60.0
RESERVED_EXTRA_S = 60.0  # a reservation outlives the deadline of those who make room


@dataclass(frozen=True, slots=True)
class Stop:
    attempt: AttemptId
    grace_s: float


def ask(
    world: World,
    job: LiveJob,
    changes: Changes,
    now: float,
    *,
    width: int,
    when: ResizeMode,
    cause: str,
    deadline_s: float | None = None,
    room_for: int | None = None,
) -> list[Stop]:
    """Ask it to give its room back; asking again changes nothing, unless it is to be at once now."""
    if job.attempt is None or job.state is JobState.STOPPING:
        return []
    if job.asked is not None and when is not ResizeMode.IMMEDIATE:
        return []
    asked = Asked(
        width=width,
        when=when,
        cause=cause,
        at=now,
        deadline_at=None if deadline_s is None else now + deadline_s,
        room_for=room_for,
        stop_after_epoch=_stop_after(job) if when is ResizeMode.AT_CHECKPOINT else None,
    )
    job.set_attempt(replace(job.attempt, asked=asked), changes)
    world.timed.add(job.id)
    detail = {"width": width, "when": str(when), "cause": cause, "room_for": room_for}
    changes.events.append(EventRecord("AskedToYield", job.id, detail=detail))
    _reserve(world, room_for, changes, now, now + (deadline_s or job.grace_s) + RESERVED_EXTRA_S)
    return [] if when is ResizeMode.AT_CHECKPOINT else stop(job, changes, cause, None)


def _reserve(world: World, holder: int | None, changes: Changes, now: float, until: float) -> None:
    """Of its priority nobody who lines up from now on gets before the one that room is made for.

    Not an array: it would have to give its lanes back as soon as it has started and stands in line as before.
    """
    waiting = None if holder is None else world.jobs.get(holder)
    if waiting is None or waiting.shape.is_array:
        return
    if until > (waiting.reserved_until or 0.0):
        waiting.reserved_at = now if waiting.reserved_at is None else waiting.reserved_at
        waiting.reserved_until = until
        world.timed.add(waiting.id)
        waiting.write(changes)


def _stop_after(job: LiveJob) -> int:
    """An epoch that no rank has finished; with several ranks one that none can finish before it hears of it.

    Every attempt does at least one, however often it is asked: a job that is resized all the time gets somewhere.
    """
    assert job.attempt is not None
    done = max(job.attempt.resume.epochs_done, job.training.epochs_done if job.training else 0.0)
    begun = max([int(done) + 1, *job.begun.values()])
    if len(job.begun) <= 1 and job.tasks_total == 1:
        return begun
    measured = job.training.epoch_s() if job.training else ()
    epoch_s = predict(measured, job.attempt.width) if measured else NEWS_S
    return begun + max(1, math.ceil(NEWS_S / max(epoch_s, 0.001)))


def stop(job: LiveJob, changes: Changes, cause: str, grace_s: float | None) -> list[Stop]:
    """SIGTERM, grace, SIGKILL."""
    grace = job.grace_s if grace_s is None else grace_s
    job.state, job.reason = JobState.STOPPING, Code.STOPPING
    job.evidence = {"cause": cause, "grace_s": grace, "cancelled": job.cancel_by}
    job.write(changes)
    changes.events.append(EventRecord("Stopping", job.id, detail={"cause": cause, "grace_s": grace}))
    return [Stop(job.attempt_id, grace)]


# -- what is due ---------------------------------------------------------------------------------------------


def see_to_what_is_due(world: World, changes: Changes, now: float) -> list[Stop]:
    """Deadlines that have passed, reservations that have run out."""
    stops: list[Stop] = []
    for job_id in sorted(world.timed):
        job = world.jobs.get(job_id)
        if job is None or (next_due(job) is None and job.asked is None):
            world.timed.discard(job_id)
            continue
        if job.reserved_until is not None and job.reserved_until <= now:
            job.drop_reservation()
            job.write(changes)
        if job.retry_at is not None and job.retry_at <= now:
            job.retry_at = None
            job.write(changes)
        stops += _overdue(job, changes, now)
    return stops


def next_due(job: LiveJob) -> float | None:
    """When something is to be done about it without an event; None: never."""
    asked = job.asked
    deadline_at = asked.deadline_at if asked is not None and job.state is not JobState.STOPPING else None
    moments = [at for at in (deadline_at, job.reserved_until, job.retry_at) if at is not None]
    return min(moments, default=None)


def _overdue(job: LiveJob, changes: Changes, now: float) -> list[Stop]:
    asked = job.asked
    if asked is None or asked.deadline_at is None or asked.deadline_at > now or job.state is JobState.STOPPING:
        return []
    return stop(job, changes, f"{asked.cause}; it made no checkpoint within {asked.deadline_at - asked.at:.0f} s", None)


def resumes(job: LiveJob) -> bool:
    """Can it be stopped now without losing its work?"""
    if job.shape.is_array or job.mode is ResizeMode.NEVER:
        return False
    return job.mode is ResizeMode.IMMEDIATE or (job.training is not None and job.training.checkpoint is not None)


def hasten(job: LiveJob, changes: Changes, now: float) -> None:
    """Some ranks have yielded: the others have their grace to do so too."""
    asked = job.asked
    if asked is None or job.attempt is None:
        return
    by = now + job.grace_s
    if asked.deadline_at is None or asked.deadline_at > by:
        job.set_attempt(replace(job.attempt, asked=replace(asked, deadline_at=by)), changes)


# -- when all its processes have ended -----------------------------------------------------------------------


def has_yielded(job: LiveJob) -> bool:
    """Did the attempt end because it was asked to, with work left? Its exit code alone does not tell: torchrun, for
    one, ends with 1 when its ranks end with 75."""
    assert job.attempt is not None
    if job.failure is not None and job.failure.cause == CAUSE_TIME_LIMIT:
        return False  # its time is over, however orderly it left
    said_so = _has_said_so(job)
    stopped_by_us = job.failure is None or job.failure.cause == CAUSE_STOPPED  # none: before any rank had begun
    if job.asked is None:
        has_left = job.yielded > 0 or (said_so and not job.has_only_succeeded)  # somebody else sent it SIGTERM
        return has_left and _has_checkpoint_of_this_attempt(job)  # without, it would do that for ever
    if job.has_only_succeeded:
        return said_so or _has_epochs_left(job)
    return stopped_by_us or said_so or job.yielded > 0


def _has_said_so(job: LiveJob) -> bool:
    """Has the attempt reported that it ends because it was asked to?"""
    return job.training is not None and job.training.yielded == job.attempts


def _has_epochs_left(job: LiveJob) -> bool:
    training = job.training
    return training is not None and training.epochs_total is not None and training.epochs_done < training.epochs_total


def may_retry(job: LiveJob) -> bool:
    """A failure of its own, and patience left. A wrong command or image or a time limit fails the same way again."""
    cause = job.failure.cause if job.failure else ""
    return cause not in (CAUSE_START, CAUSE_IMAGE, CAUSE_TIME_LIMIT) and job.failures < job.retries


def survives_restart(job: LiveJob) -> bool:
    """Its machine was restarted under it: no fault of its own, and it can go on."""
    if job.failure is None or job.failure.cause != CAUSE_REBOOT:
        return False
    return job.mode is ResizeMode.IMMEDIATE or (job.training is not None and job.training.checkpoint is not None)


def come_back(world: World, job: LiveJob, changes: Changes, ended_at: float, outcome: str) -> None:
    """The attempt is over, the job is not: it lines up again, or is held."""
    assert job.attempt is not None
    asked, attempt = job.asked, job.attempt
    _count_what_was_saved_last(job, ended_at)
    lost_s = lost_time_s(job, ended_at)
    lost = gpu_seconds(job.slots, world.gpus, lost_s)
    job.lost_gpu_seconds += lost
    job.wound_down_s = max(0.0, ended_at - (job.durable_at or ended_at)) if not lost_s else 0.0
    job.used_s += max(0.0, ended_at - (attempt.started_at or ended_at))
    if asked is not None and outcome == "yielded":
        job.resizes += asked.width > 0
        job.preemptions += asked.width == 0
    go_back_to_checkpoint(job)
    job.set_attempt(replace(attempt, slots=(), ended_at=ended_at, outcome=outcome, lost_s=lost_s), changes)
    number, failure = job.attempts, job.failure
    job.start_over()
    line_up(job, ended_at)
    job.write(changes)
    detail: dict[str, object] = {"attempt": number, "width": attempt.width, "outcome": outcome}
    detail |= {"lost_gpu_seconds": round(lost, 3)}
    if asked is not None:
        detail |= {"cause": asked.cause, "to_width": asked.width}
    if outcome == "failed" and failure is not None:
        detail |= {"exit_code": failure.exit_code}
    if failure is not None and failure.problem:
        detail |= {"problem": failure.problem}
    changes.events.append(EventRecord("Yielded" if outcome == "yielded" else "Retrying", job.id, detail=detail))


def line_up(job: LiveJob, now: float) -> None:
    """Without an attempt: it waits, or is held."""
    job.state = JobState.HELD if job.held_by else JobState.QUEUED
    job.reason = Code.HELD if job.held_by else Code.NOT_YET_PLANNED
    job.evidence = held_evidence(job) if job.held_by else {}
    job.queued_at = now


def held_evidence(job: LiveJob) -> Evidence:
    evidence: Evidence = {"by": job.held_by, "job": job.id}
    return {**evidence, "object": job.suspended} if job.suspended else evidence


def _count_what_was_saved_last(job: LiveJob, ended_at: float) -> None:
    """It saves an epoch after it has reported it; a process that ended in order has come past its save."""
    training = job.training
    if training is None or training.saves_later != job.attempts or not job.has_only_succeeded:
        return
    if training.checkpoint is None or training.checkpoint.epochs_done < training.epochs_done:
        saved = Checkpoint(training.epochs_done, None, ended_at, job.attempts)
        job.training = replace(training, checkpoint=saved)


def go_back_to_checkpoint(job: LiveJob) -> None:
    """What is not durable was not done."""
    if job.training is not None:
        durable = job.training.checkpoint.epochs_done if job.training.checkpoint else 0.0
        job.training = replace(job.training, epochs_done=durable, ends_at=None)


def retry_later(world: World, job: LiveJob, now: float) -> None:
    job.failures += 1
    job.retry_at = now + pause_s(job.failures)
    world.timed.add(job.id)


def pause_s(times: int) -> float:
    """Before it is tried again, after so many times: 1, 2, 4 … seconds."""
    return min(RETRY_S_MAX, 2.0 ** min(times - 1, 10))  # of thousands of times a float would not take the power


def lost_time_s(job: LiveJob, ended_at: float) -> float:
    """How much of the attempt's work must be done again; none when it ended at its checkpoint."""
    if job.durable_at is None or _was_never_whole(job):
        return 0.0
    left_in_order = job.yielded > 0 or job.has_only_succeeded or _has_said_so(job)
    if left_in_order and (_is_all_durable(job) or not _has_trained(job)):
        return 0.0
    return max(0.0, ended_at - job.durable_at)


def _was_never_whole(job: LiveJob) -> bool:
    """Did a gang wait in vain for a rank that found no place? Then the others have done nothing either."""
    return job.failure is not None and job.failure.cause == CAUSE_NOT_PLACED and not job.has_begun


def _has_checkpoint_of_this_attempt(job: LiveJob) -> bool:
    checkpoint = None if job.training is None else job.training.checkpoint
    return checkpoint is not None and checkpoint.attempt == job.attempts


def _is_all_durable(job: LiveJob) -> bool:
    training = job.training
    if training is None or training.checkpoint is None:
        return False
    return _has_checkpoint_of_this_attempt(job) and training.checkpoint.epochs_done >= training.epochs_done


def _has_trained(job: LiveJob) -> bool:
    """Did it finish any epoch in this attempt?"""
    assert job.attempt is not None
    return job.training is not None and job.training.epochs_done > job.attempt.resume.epochs_done
