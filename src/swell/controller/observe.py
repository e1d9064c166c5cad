"""What follows from what was seen?

Facts go into the world and, in the same breath, into the changes to be stored. The results are effects for
`apply.py`: stop this attempt, forget that one. Nothing is decided that a fact does not imply.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from swell.controller.endings import (
    end_in_words,
    failure_reason,
    has_more_to_do,
    line_up_again,
    outcome_of_return,
    success_of,
    why_to_stop,
)
from swell.controller.livejob import LiveJob
from swell.controller.unstorable import blaming
from swell.controller.watching import judge, note_use
from swell.controller.world import World, task_record, with_slots
from swell.controller.yielding import Stop, ask, come_back, has_yielded, hasten, held_evidence, line_up, stop
from swell.model.job import AttemptId, JobId, JobState, ResizeMode
from swell.model.launch import CAUSE_NOT_PLACED, Observation, RunSeen, TaskSeen
from swell.model.reason import Code, Evidence
from swell.store import Changes, EventRecord

BY_KUBECTL = "kubectl"  # who asks of us what is done to objects behind our back
MOMENT_MAX = 250e9  # seconds since 1970: in the year 9892, as far as calendars go
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
        with blaming(task.attempt.job):
            if _fold_task(world, task, changes):
                touched.add(task.attempt.job)
    for attempt, ranks in seen.emptied.items():
        if (job := _present(world, attempt)) is not None and not job.progress.emptied.issuperset(ranks):
            job.progress.emptied.update(ranks)
            touched.add(job.id)
    for run in seen.runs:
        with blaming(run.attempt.job):
            if _fold_run(world, run, changes, now):
                touched.add(run.attempt.job)
    effects: list[Effect] = []
    while touched:
        for job_id in sorted(touched & world.jobs.keys()):
            with blaming(job_id):
                effects += _settle(world, world.jobs[job_id], changes, now)
        touched = world.take_asked()  # one that ended lets others follow
    for told in {run.attempt for run in seen.runs}:
        if (job := _present(world, told)) is not None:
            with blaming(job.id):
                _show_trouble(job, changes)
    _note_silence(world, seen.silent_s, changes)
    return effects


def _present(world: World, attempt: AttemptId) -> LiveJob | None:
    job = world.jobs.get(attempt.job)
    return job if job is not None and job.attempt is not None and job.attempts == attempt.number else None


def _fold_task(world: World, task: TaskSeen, changes: Changes) -> bool:
    task = task.bounded()
    job = _present(world, task.attempt)
    if job is not None and job.shape.is_array and task.cause == CAUSE_NOT_PLACED:
        job.progress.refusal = task  # it is about the whole attempt: the index has not begun, and is still to be done
        return True
    if job is None or not job.progress.count(task):
        return False
    _refuse_impossible(task)
    changes.tasks.append(task_record(task))
    if job.record.started_at is None and task.has_run:
        job.record = replace(job.record, started_at=task.started_at)
    assert job.attempt is not None
    if job.attempt.started_at is None and task.has_run:
        job.set_attempt(replace(job.attempt, started_at=task.started_at), changes)
        job.record = replace(job.record, running_since=task.started_at)
    return True


def _refuse_impossible(task: TaskSeen) -> None:
    """What the store would keep and nobody could read again: a comparison with what is no number is false."""
    moments = (task.started_at, task.started_at if task.ended_at is None else task.ended_at)
    if not all(0 <= moment <= MOMENT_MAX for moment in moments):
        raise ValueError(f"task {task.index} began or ended at {moments}, which are no times")


def _fold_run(world: World, run: RunSeen, changes: Changes, now: float) -> bool:
    """Which lanes are empty for good, and whether the worker is through with it."""
    job = _present(world, run.attempt)
    if job is None or job.attempt is None or run.node in job.progress.finished_on:
        return False
    if run.tensorboard:
        job.tensorboard = run.tensorboard
    if run.is_finished and run.trouble not in (
        "",
        job.trouble.get(run.node),
    ):  # a job that ends has no reason that says it
        changes.events.append(EventRecord("TaskTrouble", job.id, detail={"trouble": run.trouble}))
    job.trouble[run.node] = run.trouble
    is_news = any([note_use(job, run), _note_suspension(job, run, changes)])
    if run.is_finished:
        job.progress.finished_on.add(run.node)
        if job.shape.is_array:  # it may go on on other nodes
            slots = tuple(slot for slot in job.slots if slot.node != run.node)
            job.set_attempt(with_slots(job.attempt, slots, job.emptied_at(now)), changes)
        return True
    if not job.shape.is_array or run.revision != job.attempt.revision:
        return is_news
    in_use = set(run.in_use)
    kept = tuple(
        slot
        for slot in job.slots
        if slot.node != run.node or slot.number in in_use or (run.left > 0 and not slot.is_draining)
    )
    if kept != job.slots:
        job.set_attempt(with_slots(job.attempt, kept, job.emptied_at(now)), changes)
        return True
    return is_news


def _note_suspension(job: LiveJob, run: RunSeen, changes: Changes) -> bool:
    """Whoever suspends its object wants it to wait, and has ended its tasks by that; False when it is no news."""
    if not run.suspended or job.suspended:
        return False
    job.suspended = run.suspended
    job.record = replace(job.record, held_by=job.record.held_by or BY_KUBECTL)
    changes.events.append(EventRecord("HoldRequested", job.id, BY_KUBECTL, detail={"object": run.suspended}))
    return True


def _settle(world: World, job: LiveJob, changes: Changes, now: float) -> list[Effect]:
    """The state that the facts imply."""
    if job.state in HOLDING and job.attempt is not None:
        if job.progress.finished_on.issuperset(job.record.nodes):
            return _conclude(world, job, changes, now)
        return _go_on(world, job, changes, now)
    if job.cancel_by is not None:
        end(world, job, changes, now, JobState.CANCELLED, Code.CANCELLED, {"by": job.cancel_by})
        return [Discard(job.id)] if job.attempts else []
    if job.doomed_by is not None:
        evidence: Evidence = {"after": job.doomed_by[0], "state": job.doomed_by[1]}
        end(world, job, changes, now, JobState.CANCELLED, Code.DEPENDENCY_FAILED, evidence)
    elif job.record.held_by is not None and job.state is JobState.QUEUED:
        job.become(JobState.HELD, Code.HELD, held_evidence(job))
        job.drop_reservation()
        job.write(changes)
        changes.events.append(EventRecord("Held", job.id, job.record.held_by))
    elif job.record.held_by is None and job.state is JobState.HELD:
        line_up(job, now)
        job.write(changes)
    return []


def _go_on(world: World, job: LiveJob, changes: Changes, now: float) -> list[Effect]:
    effects: list[Effect] = []
    if job.state is JobState.STARTING and job.has_begun:
        job.become(JobState.RUNNING, None, {})
        job.record = replace(job.record, unplaced=0, problem="")
        assert job.attempt is not None
        detail: dict[str, object] = {"attempt": job.attempts, "width": job.attempt.width}
        detail |= {"tensorboard": job.tensorboard} if job.tensorboard else {}
        changes.events.append(EventRecord("Running", job.id, detail=detail))
        _show_trouble(job, changes)
    if job.stopping is None:
        if job.cancel_by is not None:
            effects += stop(job, changes, f"cancelled by {job.cancel_by}", job.cancel_grace_s)
        elif job.shape.is_array and not job.slots and job.unfinished > 0:  # also what was lost while it ran
            why = f"held by {job.record.held_by}" if job.record.held_by else "jobs ahead of it took its resources"
            effects += stop(job, changes, f"{why}; its remaining tasks are queued", None)
        elif job.asked is not None and _is_leaving(job):
            hasten(job, changes, now)
        elif (task := why_to_stop(job)) is not None:
            effects += stop(job, changes, end_in_words(task), None)
        elif job.suspended:
            cause = f"its {job.suspended} was suspended by somebody else"
            effects += ask(world, job, changes, now, width=0, when=ResizeMode.IMMEDIATE, cause=cause)
        elif job.record.held_by is not None and not job.shape.is_array:  # of an array the plan drains the slots
            effects += ask(world, job, changes, now, width=0, when=job.mode, cause=f"held by {job.record.held_by}")
        else:
            effects += judge(world, job, changes, now)
    elif not job.stopping.is_as_urgent_as(cancelled_by=job.cancel_by, grace_s=job.cancel_grace_s):
        effects += stop(job, changes, f"cancelled by {job.cancel_by}", job.cancel_grace_s)
    _give_room_back(job, changes, now)
    job.write(changes)
    return effects


def _give_room_back(job: LiveJob, changes: Changes, now: float) -> None:
    """Ranks of a gang that have succeeded leave their room to others while the rest goes on.

    Not while the job is being stopped or resized: it would line up behind whoever took its room.
    """
    if job.attempt is None or job.state is not JobState.RUNNING or job.asked is not None or job.shape.is_array:
        return
    emptied = job.progress.emptied
    slots = tuple(replace(slot, is_empty=True) if slot.number in emptied else slot for slot in job.slots)
    is_left = any(not slot.is_empty for slot in slots)  # the last one goes with the attempt
    if slots != job.slots and is_left:
        job.set_attempt(with_slots(job.attempt, slots, job.emptied_at(now)), changes)


def _is_leaving(job: LiveJob) -> bool:
    """Have some ranks ended as asked, and none in another way?"""
    return (
        job.progress.succeeded + job.progress.yielded > 0
        and job.progress.failed + len(job.progress.stopped) == job.progress.yielded
    )


def _conclude(world: World, job: LiveJob, changes: Changes, now: float) -> list[Effect]:
    """Every process of it is gone and every end is known."""
    attempt = job.attempt_id
    heard_at, now = now, job.emptied_at(now)
    is_yielded = not job.shape.is_array and has_yielded(job)
    if job.has_only_succeeded and not is_yielded:
        end(world, job, changes, now, JobState.SUCCEEDED, *success_of(job))
    elif job.cancel_by is not None:
        end(world, job, changes, now, JobState.CANCELLED, Code.CANCELLED, {"by": job.cancel_by})
        return [Forget(attempt), Discard(job.id)]
    elif job.progress.deleted is not None:
        evidence: Evidence = {"job": job.id, "object": job.progress.deleted.problem}
        end(world, job, changes, now, JobState.CANCELLED, Code.OBJECT_DELETED, evidence)
    elif job.stopping is not None and (failure := job.stopping.failure) is not None:
        end(world, job, changes, now, JobState.FAILED, failure.code, failure.evidence)
    elif job.shape.is_array and has_more_to_do(job):
        line_up_again(world, job, changes, now, heard_at)
    elif is_yielded:
        come_back(world, job, changes, now, "yielded")
    elif not job.shape.is_array and (outcome := outcome_of_return(world, job, heard_at)) is not None:
        come_back(world, job, changes, now, outcome)
    else:
        assert job.progress.failure is not None, f"job {job.id} ended without success and without a failed task"
        end(world, job, changes, now, JobState.FAILED, *failure_reason(job, job.progress.failure))
    return [Forget(attempt)]


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
    job.become(state, code, evidence)
    if job.attempt is not None:
        job.set_attempt(replace(job.attempt, slots=(), ended_at=now, outcome=str(state)), changes)
    ran_s = job.count_run_time(now)
    job.record = replace(job.record, used_s=job.record.used_s + ran_s)
    job.progress.running = 0
    job.write(changes)
    exit_code = 0 if state is JobState.SUCCEEDED else job.progress.failure.exit_code if job.progress.failure else None
    changes.set_job(job.id, ended_at=now, exit_code=exit_code, width=0)
    detail = {
        "state": str(state),
        "exit_code": exit_code,
        "reason": None if code is None else str(code),
        "ran_s": None if job.record.started_at is None else round(job.record.ran_s, 3),
    }
    if job.terms.estimate_s is not None:
        detail |= {"estimate_s": job.terms.estimate_s, "used_s": round(job.record.used_s, 3)}
    changes.events.append(EventRecord("Ended", job.id, detail=detail))
    if job.terms.notifies == "end" or (job.terms.notifies == "error" and state is not JobState.SUCCEEDED):
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
    """Make what keeps a job from starting, or from going on, part of its reason; told again, it is no news."""
    trouble = "; ".join(dict.fromkeys(text for text in job.trouble.values() if text))
    if job.state is JobState.STARTING:
        told: Evidence = {"nodes": ", ".join(job.record.nodes), **({"trouble": trouble} if trouble else {})}
        _tell(job, job.record.reason_code, told, changes)
    elif job.state is JobState.STOPPING and job.stopping is not None and job.stopping.evicts:
        told = {name: said for name, said in job.record.reason_evidence.items() if name != "trouble"}
        _tell(job, Code.STOPPING, {**told, **({"trouble": trouble} if trouble else {})}, changes)
    elif job.state is not JobState.RUNNING or job.record.reason_code is Code.WORKER_UNREACHABLE:
        return
    elif trouble:
        if job.record.reason_code is None:  # numbers in it go on changing; an event is worth only that it began
            changes.events.append(EventRecord("TaskTrouble", job.id, detail={"trouble": trouble}))
        _tell(job, Code.TASK_TROUBLE, {"job": job.id, "trouble": trouble}, changes)
    elif job.record.reason_code is Code.TASK_TROUBLE:
        _tell(job, None, {}, changes)


def _tell(job: LiveJob, code: Code | None, evidence: Evidence, changes: Changes) -> None:
    """Give the job this reason; nothing is written where it has it already."""
    if (job.record.reason_code, job.record.reason_evidence) != (code, evidence):
        job.become(job.state, code, evidence)
        job.write(changes)


def _note_silence(world: World, silent_s: dict[str, float], changes: Changes) -> None:
    """A job on a machine nobody hears of says so; it goes back to normal by itself."""
    if not silent_s and not world.silent:
        return
    world.silent = bool(silent_s)
    for job in world.jobs.values():
        if job.state is not JobState.RUNNING:
            continue
        lost = next((slot.node for slot in job.held if slot.node in silent_s), None)
        if (lost is not None) == (job.record.reason_code is Code.WORKER_UNREACHABLE):
            continue
        evidence: Evidence = {} if lost is None else {"node": lost, "silent_s": round(silent_s[lost])}
        job.become(job.state, None if lost is None else Code.WORKER_UNREACHABLE, evidence)
        job.write(changes)
        kind = "WorkerFound" if lost is None else "WorkerLost"
        changes.events.append(EventRecord(kind, job.id, detail=dict(evidence)))
        _show_trouble(job, changes)
