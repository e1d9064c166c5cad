"""How does a job give its room back, and what is lost by it?

It is asked (`ask`): at a checkpoint it learns after which epoch to stop, and it has until the deadline; immediate
ones are sent SIGTERM at once. Ranks agree without talking: the epoch lies above every one that any of them is
known to have begun, far enough that each of them hears of it before. A job that can save at any step is asked to stop
at a step, in the same way: its ranks are asked where they are (`Asked.tells_step`), and when all have said so, a step
is chosen that none of them can reach before it hears of it. Until then, and should a rank be silent, the end of the
epoch counts. When all its processes have been seen to end it
lines up again (`come_back`) and goes on from the last checkpoint it reported. What was done after that checkpoint
is lost, and counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from swell.controller.livejob import LiveJob
from swell.controller.world import World
from swell.model.attempt import Asked, Failure, Stopping
from swell.model.job import AttemptId, ExitAction, JobState, ResizeMode
from swell.model.launch import (
    CAUSE_NOT_PLACED,
    CAUSE_REBOOT,
    CAUSE_STOPPED,
    CAUSE_TIME_LIMIT,
)
from swell.model.reason import Code, Evidence
from swell.model.training import STEP_S_MIN, Checkpoint, RankPosition
from swell.model.usage import gpu_seconds
from swell.store import Changes, EventRecord
from swell.throughput import predict

NEWS_S = 1.0  # within this every rank has heard what it was asked; they ask with a long poll
EPOCH_VARIES = 0.25  # an epoch may end sooner than was measured, by this part of it; then ranks stop at different ones
RETRY_S_MAX = 60.0
UNASKED_S_MIN = 30.0  # between two starts of a job that yields though nobody asked it to: each is stored for good
RESERVED_EXTRA_S = 60.0  # a reservation outlives the deadline of those who make room


@dataclass(frozen=True, slots=True)
class Stop:
    attempt: AttemptId
    grace_s: float
    evicts: bool = False  #: as far as PodDisruptionBudgets allow it


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
    evicts: bool = False,
) -> list[Stop]:
    """Ask it to give its room back; asking again changes nothing, unless it is to be at once now."""
    if job.attempt is None or job.state is JobState.STOPPING:
        return []
    if job.asked is not None and when is not ResizeMode.IMMEDIATE:
        return []
    can_stop = when is ResizeMode.AT_CHECKPOINT and job.progress.can_stop_at_step
    is_alone = can_stop and job.progress.positions[0].ranks == 1
    asked = Asked(
        width=width,
        when=when,
        cause=cause,
        at=now,
        deadline_at=None if deadline_s is None else now + deadline_s,
        room_for=room_for,
        stop_after_epoch=_stop_after(job, now) if when is ResizeMode.AT_CHECKPOINT else None,
        tells_step=can_stop and not is_alone,
        stop_at_step=(0, 0) if is_alone else None,
    )
    job.set_attempt(replace(job.attempt, asked=asked), changes)
    world.timed.add(job.id)
    detail = {"width": width, "when": str(when), "cause": cause, "room_for": room_for}
    changes.events.append(EventRecord("AskedToYield", job.id, detail=detail))
    _reserve(world, room_for, changes, now, now + (deadline_s or job.terms.grace_s) + RESERVED_EXTRA_S)
    return [] if when is ResizeMode.AT_CHECKPOINT else stop(job, changes, cause, None, evicts=evicts)


def _reserve(world: World, holder: int | None, changes: Changes, now: float, until: float) -> None:
    """Of its priority nobody who lines up from now on gets before the one that room is made for.

    Not an array: it would have to give its lanes back as soon as it has started and stands in line as before.
    """
    waiting = None if holder is None else world.jobs.get(holder)
    if waiting is None or waiting.shape.is_array:
        return
    if until > (waiting.record.reserved_until or 0.0):
        since = now if waiting.record.reserved_at is None else waiting.record.reserved_at
        waiting.record = replace(waiting.record, reserved_at=since, reserved_until=until)
        world.timed.add(waiting.id)
        waiting.write(changes)


def _stop_after(job: LiveJob, now: float) -> int:
    """An epoch that no rank has finished; with several ranks one that none can finish before it hears of it.

    That is the present one, if enough of it is still to come, else a later one.

    Every attempt does at least one, however often it is asked: a job that is resized all the time gets somewhere.
    """
    assert job.attempt is not None
    done = max(job.attempt.resume.epochs_done, job.training.epochs_done if job.training else 0.0)
    begun = max([int(done) + 1, *job.progress.begun.values()])
    if len(job.progress.begun) <= 1 and job.record.tasks_total == 1:
        return begun
    measured = job.training.epoch_s() if job.training else ()
    nodes = len({slot.node for slot in job.slots}) or 1
    epoch_s = predict(measured, job.attempt.width, nodes) if measured else NEWS_S
    if _epoch_left_s(job, begun, epoch_s, now) > max(NEWS_S, EPOCH_VARIES * epoch_s):
        return begun
    return begun + max(1, math.ceil(NEWS_S / max(epoch_s, 0.001)))


def _epoch_left_s(job: LiveJob, number: int, epoch_s: float, now: float) -> float:
    """Until a rank finishes the epoch that the furthest of them is in; 0: nobody said when it began."""
    began_at = job.progress.epoch_at if max(job.progress.begun.values(), default=0) == number else None
    return 0.0 if began_at is None else began_at + epoch_s - now


def _agree_on_step(job: LiveJob, changes: Changes, now: float) -> None:
    """Choose the step at which all ranks stop, as soon as all have said where they are since they were asked."""
    asked = job.asked
    if asked is None or job.attempt is None or not asked.tells_step or asked.stop_at_step is not None:
        return
    if job.progress.can_stop_at_step and all(one.was_asked for one in job.progress.positions.values()):
        far = _step_for_all(list(job.progress.positions.values()), now)
        asked = replace(asked, stop_at_step=_within_its_epoch(job, far))
        job.set_attempt(replace(job.attempt, asked=asked), changes)


def _step_for_all(positions: list[RankPosition], now: float) -> tuple[int, int]:
    """A step that no rank can reach before it hears of it."""
    epoch, step = max((one.epoch, one.step_by(now)) for one in positions)
    quickest_s = max(STEP_S_MIN, min(one.step_s for one in positions))
    return epoch, step + math.ceil(NEWS_S / quickest_s) + 1


def _within_its_epoch(job: LiveJob, far: tuple[int, int]) -> tuple[int, int]:
    """The same step, where its epoch ends before it: of a later epoch. At the end of its own not all ranks might have
    heard of it, and those that have would stop there alone."""
    told = job.training.told_steps if job.training else None
    if told is None or job.attempt is None or told.width != job.attempt.width:
        return far
    (epoch, step), steps = far, max(1, round(told.steps))
    done_before = job.attempt.resume.epochs_done - epoch
    here = steps if done_before <= 0 else max(1, round(steps * (1.0 - done_before)))  # of the epoch that it resumed in
    if step < here:
        return far
    return epoch + 1 + (step - here) // steps, (step - here) % steps


def stop(
    job: LiveJob,
    changes: Changes,
    cause: str,
    grace_s: float | None,
    failure: Failure | None = None,
    *,
    evicts: bool = False,
) -> list[Stop]:
    """Send the present attempt SIGTERM, and after the grace SIGKILL; `grace_s` None: the grace of the job's spec.

    `failure`: what the job fails with when all its processes have ended; None: how its tasks end tells.
    """
    assert job.attempt is not None
    grace = job.terms.grace_s if grace_s is None else grace_s
    stopping = Stopping(cause, grace, job.cancel_by, failure, evicts)
    job.set_attempt(replace(job.attempt, stopping=stopping), changes)
    told: Evidence = {} if failure is None else failure.evidence
    job.become(JobState.STOPPING, Code.STOPPING, {"cause": cause, "grace_s": grace, **told})
    job.write(changes)
    changes.events.append(EventRecord("Stopping", job.id, detail={"cause": cause, "grace_s": grace}))
    return [Stop(job.attempt_id, grace, evicts)]


# -- what is due ---------------------------------------------------------------------------------------------


def see_to_what_is_due(world: World, changes: Changes, now: float) -> list[Stop]:
    """Deadlines that have passed, reservations that have run out."""
    stops: list[Stop] = []
    for job_id in sorted(world.timed):
        job = world.jobs.get(job_id)
        if job is None or (next_due(job) is None and job.asked is None):
            world.timed.discard(job_id)
            continue
        if job.record.reserved_until is not None and job.record.reserved_until <= now:
            job.drop_reservation()
            job.write(changes)
        if job.record.retry_at is not None and job.record.retry_at <= now:
            job.record = replace(job.record, retry_at=None)
            job.write(changes)
        _agree_on_step(job, changes, now)
        stops += _overdue(job, changes, now)
    return stops


def next_due(job: LiveJob) -> float | None:
    """When something is to be done about it without an event; None: never."""
    moments = [at for at in (_deadline_at(job), job.record.reserved_until, job.record.retry_at) if at is not None]
    return min(moments, default=None)


def _deadline_at(job: LiveJob) -> float | None:
    """Until when it may take to give its room back; None: as long as it takes. Nobody is stopped after the last epoch:
    started again, it would find nothing to do."""
    if job.asked is None or job.state is JobState.STOPPING or is_trained(job):
        return None
    return job.asked.deadline_at


def _overdue(job: LiveJob, changes: Changes, now: float) -> list[Stop]:
    asked, deadline_at = job.asked, _deadline_at(job)
    if asked is None or deadline_at is None or deadline_at > now:
        return []
    return stop(job, changes, f"{asked.cause}; it made no checkpoint within {deadline_at - asked.at:.0f} s", None)


def is_trained(job: LiveJob) -> bool:
    """Has it done all its epochs? Then it ends by itself."""
    return job.training is not None and job.training.is_complete


def can_stop_now(job: LiveJob) -> bool:
    """Can it be stopped now without losing its work?"""
    if job.shape.is_array or job.mode is ResizeMode.NEVER:
        return False
    if job.mode is ResizeMode.IMMEDIATE or job.progress.can_stop_at_step:
        return True
    return job.training is not None and job.training.checkpoint is not None


def hasten(job: LiveJob, changes: Changes, now: float) -> None:
    """Some ranks have yielded: the others have their grace to do so too."""
    asked = job.asked
    if asked is None or job.attempt is None:
        return
    by = now + job.terms.grace_s
    if asked.deadline_at is None or asked.deadline_at > by:
        job.set_attempt(replace(job.attempt, asked=replace(asked, deadline_at=by)), changes)


# -- when all its processes have ended -----------------------------------------------------------------------


def has_yielded(job: LiveJob) -> bool:
    """Did the attempt end because it was asked to, with work left? Its exit code alone does not tell: torchrun, for
    one, ends with 1 when its ranks end with 75."""
    assert job.attempt is not None
    if job.progress.failure is not None and job.progress.failure.cause == CAUSE_TIME_LIMIT:
        return False  # its time is over, however orderly it left
    said_so = _has_said_so(job)
    stopped_by_us = (
        job.progress.failure is None or job.progress.failure.cause == CAUSE_STOPPED
    )  # none: before any rank had begun
    if job.asked is None:
        has_left = job.progress.yielded > 0 or (said_so and not job.has_only_succeeded)  # somebody else sent it SIGTERM
        return has_left and _has_checkpoint_of_this_attempt(job)  # without, it would do that for ever
    if job.has_only_succeeded:
        return said_so or _has_epochs_left(job)
    return stopped_by_us or said_so or job.progress.yielded > 0


def _has_said_so(job: LiveJob) -> bool:
    """Has the attempt reported that it ends because it was asked to?"""
    return job.training is not None and job.training.yielded == job.attempts


def _has_epochs_left(job: LiveJob) -> bool:
    training = job.training
    return training is not None and training.epochs_total is not None and training.epochs_done < training.epochs_total


def may_retry(job: LiveJob) -> bool:
    """A failure of its own, and patience left. A wrong command or image or a time limit fails the same way again."""
    failure = job.progress.failure
    if failure is not None and job.progress.fails_for_good(failure):
        return False
    return is_ignored(job) or job.record.failures < job.terms.retries


def is_ignored(job: LiveJob) -> bool:
    """Does the job say that its failure does not count?"""
    failure = job.progress.failure
    return failure is not None and job.progress.action_for(failure) is ExitAction.IGNORE


def survives_restart(job: LiveJob) -> bool:
    """Its machine was restarted under it: no fault of its own, and it can go on."""
    if job.progress.failure is None or job.progress.failure.cause != CAUSE_REBOOT:
        return False
    return job.mode is ResizeMode.IMMEDIATE or (job.training is not None and job.training.checkpoint is not None)


def come_back(world: World, job: LiveJob, changes: Changes, ended_at: float, outcome: str) -> None:
    """The attempt is over, the job is not: it lines up again, or is held."""
    assert job.attempt is not None
    asked, attempt = job.asked, job.attempt
    _count_what_was_saved_last(job, ended_at)
    lost_s = lost_time_s(job, ended_at)
    lost = gpu_seconds(job.slots, world.gpus, lost_s)
    job.wound_down_s = max(0.0, ended_at - (job.durable_at or ended_at)) if not lost_s else 0.0
    to_width = asked.width if asked is not None and outcome == "yielded" else None
    ran_s = job.count_run_time(ended_at)
    job.record = replace(
        job.record,
        lost_gpu_seconds=job.record.lost_gpu_seconds + lost,
        used_s=job.record.used_s + ran_s,
        resizes=job.record.resizes + (to_width is not None and to_width > 0),
        preemptions=job.record.preemptions + (to_width == 0),
    )
    go_back_to_checkpoint(job)
    job.set_attempt(replace(attempt, slots=(), ended_at=ended_at, outcome=outcome, lost_s=lost_s), changes)
    number, failure = job.attempts, job.progress.failure
    job.start_over()
    job.returns = asked.width if asked is not None and asked.width and outcome == "yielded" else None
    line_up(job, ended_at)
    if outcome == "yielded" and asked is None:
        _start_no_more_often(world, job, (attempt.started_at or ended_at) + UNASKED_S_MIN, ended_at)
    job.write(changes)
    detail: dict[str, object] = {"attempt": number, "width": attempt.width, "outcome": outcome}
    detail |= {"lost_gpu_seconds": round(lost, 3)}
    if asked is not None:
        detail |= {"cause": asked.cause, "to_width": asked.width, "room_for": asked.room_for}
    if outcome == "failed" and failure is not None:
        detail |= {"exit_code": failure.exit_code}
    if failure is not None and failure.problem:
        detail |= {"problem": failure.problem}
    changes.events.append(EventRecord("Yielded" if outcome == "yielded" else "Retrying", job.id, detail=detail))


def _start_no_more_often(world: World, job: LiveJob, at: float, now: float) -> None:
    if at > now:
        job.record = replace(job.record, retry_at=at)
        world.timed.add(job.id)


def line_up(job: LiveJob, now: float) -> None:
    """Without an attempt: it waits, or is held."""
    if job.record.held_by:
        job.become(JobState.HELD, Code.HELD, held_evidence(job))
    else:
        job.become(JobState.QUEUED, Code.NOT_YET_PLANNED, {})
    job.record = replace(job.record, queued_at=now)


def held_evidence(job: LiveJob) -> Evidence:
    evidence: Evidence = {"by": job.record.held_by, "job": job.id}
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
    """Longer each time; what does not count as a retry waits all the same."""
    counts = not is_ignored(job)
    times = job.record.failures + counts
    job.record = replace(job.record, failures=times, retry_at=now + pause_s(times if counts else job.attempts))
    world.timed.add(job.id)


def pause_s(times: int) -> float:
    """Before it is tried again, after so many times: 1, 2, 4 … seconds."""
    return min(RETRY_S_MAX, 2.0 ** min(times - 1, 10))  # of thousands of times a float would not take the power


def lost_time_s(job: LiveJob, ended_at: float) -> float:
    """How much of the attempt's work must be done again; none when it ended at its checkpoint."""
    if job.durable_at is None or _was_never_whole(job):
        return 0.0
    left_in_order = job.progress.yielded > 0 or job.has_only_succeeded or _has_said_so(job)
    if left_in_order and (_is_all_durable(job) or not _has_trained(job)):
        return 0.0
    return max(0.0, ended_at - job.durable_at)


def _was_never_whole(job: LiveJob) -> bool:
    """Did a gang wait in vain for a rank that found no place? Then the others have done nothing either."""
    return job.progress.failure is not None and job.progress.failure.cause == CAUSE_NOT_PLACED and not job.has_begun


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
