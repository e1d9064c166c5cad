"""What follows from what was seen?

Facts go into the world and, in the same breath, into the changes to be stored. The results are effects for
`apply.py`: stop this attempt, forget that one. Nothing is decided that a fact does not imply.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from swell.controller.endings import end_in_words, failure_reason, outcome_of_return, why_to_stop
from swell.controller.livejob import LiveJob
from swell.controller.watching import failure_of, judge, note_use
from swell.controller.world import World, task_record, with_slots
from swell.controller.yielding import Stop, ask, come_back, has_yielded, hasten, held_evidence, line_up, stop
from swell.model.job import AttemptId, JobId, JobState, ResizeMode
from swell.model.launch import Observation, RunSeen, TaskSeen
from swell.model.reason import Code, Evidence
from swell.store import Changes, EventRecord

BY_KUBECTL = "kubectl"  # who asks of us what is done to objects behind our back
HOLDING = (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)


@dataclass(frozen=True, slots=True)
class Forget:
    attempt: AttemptId


@dataclass(frozen=True, slots=True)
class Discard:
    """It was cancelled; what was made for it is of no use to anybody."""

    job: JobId


Effect = Stop | Forget | Discard


def fold(world: World, seen: Observation, changes: Changes, now: float) -> list[Effect]:
    """Bring the world up to what was seen and asked."""
    touched = world.take_asked()
    for task in seen.tasks:
        if _fold_task(world, task, changes):
            touched.add(task.attempt.job)
    for run in seen.runs:
        if _fold_run(world, run, changes, now):
            touched.add(run.attempt.job)
    effects: list[Effect] = []
    while touched:
        for job_id in sorted(touched & world.jobs.keys()):
            effects += _settle(world, world.jobs[job_id], changes, now)
        touched = world.take_asked()  # one that ended lets others follow
    for told in {run.attempt for run in seen.runs}:
        if (job := _present(world, told)) is not None:
            _show_trouble(job, changes)
    _note_silence(world, seen.silent_s, changes)
    return effects


def _present(world: World, attempt: AttemptId) -> LiveJob | None:
    job = world.jobs.get(attempt.job)
    return job if job is not None and job.attempt is not None and job.attempts == attempt.number else None


def _fold_task(world: World, task: TaskSeen, changes: Changes) -> bool:
    job = _present(world, task.attempt)
    if job is None or not job.count(task):
        return False
    changes.tasks.append(task_record(task))
    if job.started_at is None and task.has_run:
        job.started_at = task.started_at
    assert job.attempt is not None
    if job.attempt.started_at is None and task.has_run:
        job.set_attempt(replace(job.attempt, started_at=task.started_at), changes)
    return True


def _fold_run(world: World, run: RunSeen, changes: Changes, now: float) -> bool:
    """Which lanes are empty for good, and whether the worker is through with it."""
    job = _present(world, run.attempt)
    if job is None or job.attempt is None or run.node in job.finished_on:
        return False
    if run.tensorboard:
        job.tensorboard = run.tensorboard
    job.trouble[run.node] = run.trouble
    is_news = any([note_use(job, run), _note_suspension(job, run, changes)])
    if run.is_finished:
        job.finished_on.add(run.node)
        return True
    if not job.shape.is_array or run.revision != job.attempt.revision:
        return is_news
    in_use = set(run.in_use)
    kept = tuple(slot for slot in job.slots if slot.number in in_use or (run.left > 0 and not slot.is_draining))
    if kept != job.slots:
        job.set_attempt(with_slots(job.attempt, kept, job.emptied_at(now)), changes)
        return True
    return is_news


def _note_suspension(job: LiveJob, run: RunSeen, changes: Changes) -> bool:
    """Whoever suspends its object wants it to wait, and has ended its tasks by that; False when it is no news."""
    if not run.suspended or job.suspended:
        return False
    job.suspended = run.suspended
    job.held_by = job.held_by or BY_KUBECTL
    changes.events.append(EventRecord("HoldRequested", job.id, BY_KUBECTL, detail={"object": run.suspended}))
    return True


def _settle(world: World, job: LiveJob, changes: Changes, now: float) -> list[Effect]:
    """The state that the facts imply."""
    if job.state in HOLDING and job.attempt is not None:
        if job.finished_on.issuperset(job.nodes):
            return _conclude(world, job, changes, now)
        return _go_on(world, job, changes, now)
    if job.cancel_by is not None:
        end(world, job, changes, now, JobState.CANCELLED, Code.CANCELLED, {"by": job.cancel_by})
        return [Discard(job.id)] if job.attempts else []
    if job.doomed_by is not None:
        evidence: Evidence = {"after": job.doomed_by[0], "state": job.doomed_by[1]}
        end(world, job, changes, now, JobState.CANCELLED, Code.DEPENDENCY_FAILED, evidence)
    elif job.held_by is not None and job.state is JobState.QUEUED:
        job.state, job.reason = JobState.HELD, Code.HELD
        job.drop_reservation()
        job.evidence = held_evidence(job)
        job.write(changes)
        changes.events.append(EventRecord("Held", job.id, job.held_by))
    elif job.held_by is None and job.state is JobState.HELD:
        line_up(job, now)
        job.write(changes)
    return []


def _go_on(world: World, job: LiveJob, changes: Changes, now: float) -> list[Effect]:
    effects: list[Effect] = []
    if job.state is JobState.STARTING and job.has_begun:
        job.state, job.reason, job.evidence = JobState.RUNNING, None, {}
        job.unplaced, job.problem = 0, ""
        assert job.attempt is not None
        detail: dict[str, object] = {"attempt": job.attempts, "width": job.attempt.width}
        detail |= {"tensorboard": job.tensorboard} if job.tensorboard else {}
        changes.events.append(EventRecord("Running", job.id, detail=detail))
        _show_trouble(job, changes)
    if job.state is not JobState.STOPPING:
        if job.cancel_by is not None:
            effects += stop(job, changes, f"cancelled by {job.cancel_by}", job.cancel_grace_s)
        elif job.shape.is_array and not job.slots and job.unfinished > 0:  # also what was lost while it ran
            effects += stop(job, changes, "its room went to jobs before it; the rest of it waits", None)
        elif job.asked is not None and _is_leaving(job):
            hasten(job, changes, now)
        elif (task := why_to_stop(job)) is not None:
            effects += stop(job, changes, end_in_words(task), None)
        elif job.suspended:
            cause = f"its {job.suspended} was suspended by somebody else"
            effects += ask(world, job, changes, now, width=0, when=ResizeMode.IMMEDIATE, cause=cause)
        elif job.held_by is not None:
            effects += ask(world, job, changes, now, width=0, when=job.mode, cause=f"held by {job.held_by}")
        else:
            effects += judge(world, job, changes, now)
    elif job.cancel_by is not None and _is_more_urgent(job):
        effects += stop(job, changes, f"cancelled by {job.cancel_by}", job.cancel_grace_s)
    job.write(changes)
    return effects


def _is_leaving(job: LiveJob) -> bool:
    """Have some ranks ended as asked, and none in another way?"""
    return job.succeeded + job.yielded > 0 and job.failed == job.yielded


def _is_more_urgent(job: LiveJob) -> bool:
    """Was a job that is being stopped anyway now cancelled, or cancelled again with less patience?"""
    given, asked = job.evidence.get("grace_s"), job.cancel_grace_s
    return job.evidence.get("cancelled") is None or (asked is not None and isinstance(given, float) and asked < given)


def _conclude(world: World, job: LiveJob, changes: Changes, now: float) -> list[Effect]:
    """Every process of it is gone and every end is known."""
    attempt = job.attempt_id
    heard_at, now = now, job.emptied_at(now)
    is_yielded = not job.shape.is_array and has_yielded(job)
    if job.has_only_succeeded and not is_yielded:
        end(world, job, changes, now, JobState.SUCCEEDED, None, {})
    elif job.cancel_by is not None:
        end(world, job, changes, now, JobState.CANCELLED, Code.CANCELLED, {"by": job.cancel_by})
        return [Forget(attempt), Discard(job.id)]
    elif job.deleted is not None:
        evidence: Evidence = {"job": job.id, "object": job.deleted.problem}
        end(world, job, changes, now, JobState.CANCELLED, Code.OBJECT_DELETED, evidence)
    elif (failure := failure_of(job)) is not None:
        end(world, job, changes, now, JobState.FAILED, *failure)
    elif job.shape.is_array and job.unfinished > 0:
        _line_up_again(job, changes, now)
    elif is_yielded:
        come_back(world, job, changes, now, "yielded")
    elif not job.shape.is_array and (outcome := outcome_of_return(world, job, heard_at)) is not None:
        come_back(world, job, changes, now, outcome)
    else:
        assert job.failure is not None, f"job {job.id} ended without success and without a failed task"
        end(world, job, changes, now, JobState.FAILED, *failure_reason(job, job.failure))
    return [Forget(attempt)]


def _line_up_again(job: LiveJob, changes: Changes, now: float) -> None:
    """An array that gave all its room back: what it has not begun is a new attempt's work."""
    assert job.attempt is not None
    job.set_attempt(replace(job.attempt, slots=(), ended_at=now, outcome="yielded"), changes)
    job.attempt = None
    job.running = 0
    job.ended = {index: True for index, has_ended in job.ended.items() if has_ended}
    job.begun_now.clear()
    job.finished_on.clear()
    job.gpu = {}
    line_up(job, now)
    job.write(changes)
    changes.events.append(EventRecord("Yielded", job.id, detail={"attempt": job.attempts, "left": job.unfinished}))


def end(
    world: World,
    job: LiveJob,
    changes: Changes,
    now: float,
    state: JobState,
    code: Code | None,
    evidence: Evidence,
) -> None:
    """The end is recorded, and the job leaves the world."""
    job.state, job.reason, job.evidence = state, code, evidence
    if job.attempt is not None:
        job.set_attempt(replace(job.attempt, slots=(), ended_at=now, outcome=str(state)), changes)
    job.running = 0
    job.write(changes)
    exit_code = 0 if state is JobState.SUCCEEDED else job.failure.exit_code if job.failure else None
    changes.set_job(job.id, ended_at=now, exit_code=exit_code, width=0)
    ran_s = None if job.started_at is None else round(max(0.0, now - job.started_at), 3)
    detail = {
        "state": str(state),
        "exit_code": exit_code,
        "reason": None if code is None else str(code),
        "ran_s": ran_s,
    }
    changes.events.append(EventRecord("Ended", job.id, detail=detail))
    if job.notifies == "end" or (job.notifies == "error" and state is not JobState.SUCCEEDED):
        changes.set_job(job.id, notice_due=1)
    del world.jobs[job.id]
    _let_follow(world, job.id, state)


def _let_follow(world: World, ended: JobId, state: JobState) -> None:
    """Those that wait for it may go, or never will."""
    for follower in world.followers.pop(ended, ()):
        job = world.jobs.get(follower)
        if job is not None:
            job.let_follow(ended, state)
            world.asked.add(follower)


def _show_trouble(job: LiveJob, changes: Changes) -> None:
    """What keeps a job from starting, or from going on, is part of its reason; told again, it is no news."""
    trouble = "; ".join(dict.fromkeys(text for text in job.trouble.values() if text))
    if trouble == job.evidence.get("trouble", ""):
        return
    if job.state is JobState.STARTING:
        job.evidence = {"nodes": ", ".join(job.nodes)}
        job.evidence |= {"trouble": trouble} if trouble else {}
        job.write(changes)
    elif job.state is JobState.RUNNING and job.reason is not Code.WORKER_UNREACHABLE:
        _note_trouble_of_running(job, trouble, changes)
        job.write(changes)


def _note_trouble_of_running(job: LiveJob, trouble: str, changes: Changes) -> None:
    """Numbers in it go on changing; an Event is worth only that it began."""
    if trouble and job.reason is None:
        changes.events.append(EventRecord("TaskTrouble", job.id, detail={"trouble": trouble}))
    job.reason = Code.TASK_TROUBLE if trouble else None
    job.evidence = {"job": job.id, "trouble": trouble} if trouble else {}


def _note_silence(world: World, silent_s: dict[str, float], changes: Changes) -> None:
    """A job on a machine nobody hears of says so; it goes back to normal by itself."""
    if not silent_s and not world.silent:
        return
    world.silent = bool(silent_s)
    for job in world.jobs.values():
        if job.state is not JobState.RUNNING:
            continue
        lost = next((slot.node for slot in job.slots if slot.node in silent_s), None)
        if (lost is not None) == (job.reason is Code.WORKER_UNREACHABLE):
            continue
        job.reason = None if lost is None else Code.WORKER_UNREACHABLE
        job.evidence = {} if lost is None else {"node": lost, "silent_s": round(silent_s[lost])}
        job.write(changes)
        kind = "WorkerFound" if lost is None else "WorkerLost"
        changes.events.append(EventRecord(kind, job.id, detail=dict(job.evidence)))
        _show_trouble(job, changes)
