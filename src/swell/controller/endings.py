"""What does a task's end say of its job?

Most ends speak for themselves: an exit code. Others are no fault of the job, and it comes back by itself: its machine
was restarted or lost, its node put it out, or no node would take it. What somebody deleted in the cluster is cancelled,
as they meant it.
"""

from __future__ import annotations

from dataclasses import replace

from swell.controller.livejob import LiveJob
from swell.controller.world import World
from swell.controller.yielding import line_up, may_retry, pause_s, retry_later, survives_restart
from swell.model.job import JobState
from swell.model.launch import (
    CAUSE_DELETED,
    CAUSE_EVICTED,
    CAUSE_IMAGE,
    CAUSE_KEEPER,
    CAUSE_MEMORY,
    CAUSE_NODE_LOST,
    CAUSE_NOT_PLACED,
    CAUSE_POD_LOST,
    CAUSE_REBOOT,
    CAUSE_START,
    CAUSE_TIME_LIMIT,
    TaskSeen,
)
from swell.model.reason import Code, Evidence
from swell.store import Changes, EventRecord

#: Why the rest of a gang is stopped; in other cases a task has failed.
IN_WORDS = {
    CAUSE_DELETED: "its {problem} was deleted by somebody else",
    CAUSE_EVICTED: "task {index} was evicted from {node}: {problem}",
    CAUSE_IMAGE: "the image of task {index} cannot be used: {problem}",
    CAUSE_MEMORY: "task {index} ran out of memory",
    CAUSE_NODE_LOST: "task {index} was lost on {node}: {problem}",
    CAUSE_POD_LOST: "task {index} was lost on {node}: {problem}",
    CAUSE_NOT_PLACED: "task {index} could not be placed on {node}: {problem}",
}


def end_in_words(task: TaskSeen) -> str:
    words = IN_WORDS.get(task.cause, "task {index} failed")
    return words.format(index=task.index, node=task.node, problem=task.problem or "nobody said why")


def why_to_stop(job: LiveJob) -> TaskSeen | None:
    """The task whose end is the end of the others, too; None: they may go on."""
    return job.progress.deleted or (job.progress.refusal if job.shape.is_array else job.progress.failure)


def outcome_of_return(world: World, job: LiveJob, now: float) -> str | None:
    """How the attempt of a gang has ended, if the job comes back, and when; None: it has failed."""
    cause = job.progress.failure.cause if job.progress.failure is not None else ""
    if survives_restart(job) or cause in (CAUSE_EVICTED, CAUSE_NODE_LOST, CAUSE_POD_LOST):
        return cause
    if job.progress.failure is not None and cause == CAUSE_NOT_PLACED:
        _place_later(world, job, job.progress.failure, now)
        return cause
    if may_retry(job):
        retry_later(world, job, now)
        return "failed"
    return None


def has_more_to_do(job: LiveJob) -> bool:
    """Is there work of an array for a new attempt? What was stopped is, if that was our doing and not its object's."""
    were_stopped_by_us = bool(job.progress.stopped) and job.state is JobState.STOPPING
    return job.unfinished > 0 or were_stopped_by_us or job.may_try_again


def line_up_again(world: World, job: LiveJob, changes: Changes, now: float, heard_at: float) -> None:
    """An array that gave all its room back, found none, or has failed tasks to try again: a new attempt's work."""
    assert job.attempt is not None
    attempt, refusal, failure = job.attempt, job.progress.refusal, job.progress.failure
    tried_again = job.put_back()
    outcome = CAUSE_NOT_PLACED if refusal is not None else "failed" if tried_again else "yielded"
    job.set_attempt(replace(attempt, slots=(), ended_at=now, outcome=outcome), changes)
    job.count_run_time(now)
    job.attempt = job.progress.refusal = None
    job.progress.finished_on.clear()
    job.progress.gpu = {}
    line_up(job, now)
    if refusal is not None:
        _place_later(world, job, refusal, heard_at)
    elif tried_again:
        job.record = replace(job.record, retry_at=heard_at + pause_s(max(job.progress.tries.values())))
        world.timed.add(job.id)
    job.write(changes)
    detail: dict[str, object] = {"attempt": job.attempts, "left": job.unfinished}
    if refusal is not None:
        detail |= {"outcome": outcome, "problem": refusal.problem}
    elif tried_again and failure is not None:
        detail |= {"outcome": outcome, "tasks": tried_again, "exit_code": failure.exit_code}
    changes.events.append(EventRecord("Yielded" if outcome == "yielded" else "Retrying", job.id, detail=detail))


def _place_later(world: World, job: LiveJob, refusal: TaskSeen, now: float) -> None:
    """It did nothing wrong, so its retries are left alone; but a node that refuses is not asked all the time."""
    times = job.record.unplaced + 1
    job.record = replace(job.record, unplaced=times, problem=refusal.problem, retry_at=now + pause_s(times))
    world.timed.add(job.id)


def success_of(job: LiveJob) -> tuple[Code | None, Evidence]:
    """What is said of a job whose tasks all ended with 0. To stop early is a job's right, also right after a resume;
    but one that lacks epochs says so, because a script may have been told wrongly how many are left."""
    training = None if job.shape.is_array else job.training
    if training is None or job.attempt is None or not training.lacks_epochs:
        return None, {}
    began_with, done = job.attempt.resume.epochs_done, training.epochs_done
    trained = None if training.only_saves else max(0.0, done - began_with)
    evidence: Evidence = {"job": job.id, "done": done, "total": training.epochs_total, "trained": trained}
    return Code.ENDED_EARLY, evidence


def failure_reason(job: LiveJob, task: TaskSeen) -> tuple[Code, Evidence]:
    evidence: Evidence = {"job": job.id, "rank": task.index, "exit_code": task.exit_code, "node": task.node}
    if task.cause == CAUSE_TIME_LIMIT:
        return Code.TIME_LIMIT, {**evidence, "limit_s": job.shape.time_limit_s}
    if task.cause == CAUSE_REBOOT:
        return Code.MACHINE_RESTARTED, evidence
    if task.cause == CAUSE_START:
        return Code.START_FAILED, {**evidence, "problem": task.problem}
    if task.cause == CAUSE_IMAGE:
        return Code.IMAGE_UNAVAILABLE, {**evidence, "problem": task.problem}
    if task.cause == CAUSE_MEMORY:
        used: Evidence = {} if task.used_mib is None else {"used_mib": task.used_mib}
        return Code.OUT_OF_MEMORY, {**evidence, "memory_mib": _memory_mib(job, task), **used}
    if task.cause == CAUSE_KEEPER:
        return Code.KEEPER_LOST, evidence
    failed = job.progress.failed if job.shape.is_array else 1
    said: Evidence = {"problem": task.problem} if task.exit_code is None and task.problem else {}
    return Code.TASK_FAILED, {**evidence, "failed": failed, **said}


def _memory_mib(job: LiveJob, task: TaskSeen) -> int | None:
    """What the task had asked for; None: it named nothing."""
    given = (slot.resources.memory_mib for slot in job.slots if slot.number == task.lane)
    return next(given, 0) or None
