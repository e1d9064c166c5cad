"""What do we know of every job that has not ended?

The world is the store's active part in memory, small enough to plan on: commands, folders and environments stay
in the store until a job is started. It is changed only by the controller's thread, and only together with the
`Changes` that make it durable; when those cannot be written the world is read from the store again.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

from swell.controller.curves import SharedCurves
from swell.controller.livejob import LiveJob
from swell.model.job import AttemptId, JobId, JobSpec, JobState
from swell.model.kind import JOBSET
from swell.model.launch import TaskSeen
from swell.model.plan import JobView, Shape, Slot
from swell.model.reason import Code
from swell.model.usage import DeviceMemory
from swell.store import AttemptRecord, JobRecord, TaskRecord


def shape_of(spec: JobSpec) -> Shape:
    roles = tuple((role.resources, role.count) for role in spec.roles)
    rules = tuple(role.rules for role in spec.roles)
    return Shape(
        roles,
        spec.dimension,
        spec.width_min,
        spec.width_max,
        spec.array is not None,
        spec.time_limit_s,
        rules if any(rules) else (),
        is_jobset=spec.kind == JOBSET.name,
    )


class World:
    """All live jobs, and one object per distinct shape."""

    def __init__(self) -> None:
        self.jobs: dict[JobId, LiveJob] = {}
        self.asked: set[JobId] = set()  #: somebody asked something of these since the last cycle
        self.silent = False  #: some job's reason says that its machine is out of reach
        self.timed: set[JobId] = set()  #: jobs of which something is asked, or due at a moment
        self.followers: dict[JobId, set[JobId]] = {}  #: who waits for a job's end
        self.gpus: DeviceMemory = {}  #: of every GPU ever seen
        self.curves = SharedCurves()  #: what jobs tell others of the same script
        self._shapes: dict[Shape, Shape] = {}

    def add(self, record: JobRecord) -> LiveJob:
        shape = shape_of(record.spec)
        job = LiveJob.of(record, self._shapes.setdefault(shape, shape))
        self.jobs[job.id] = job
        for after in job.after:
            self.followers.setdefault(after.job, set()).add(job.id)
        if job.record.reserved_until is not None or job.record.retry_at is not None:
            self.timed.add(job.id)
        is_to_be_held = job.record.held_by is not None and job.state is JobState.QUEUED
        if job.cancel_by is not None or is_to_be_held:
            self.asked.add(job.id)
        if job.record.reason_code is Code.WORKER_UNREACHABLE and job.state is JobState.RUNNING:
            self.silent = True
        return job

    def take_asked(self) -> set[JobId]:
        asked, self.asked = self.asked, set()
        return asked

    def restore(self, job: LiveJob, attempt: AttemptRecord | None, tasks: list[TaskRecord]) -> None:
        """Put what is known of its tasks back, and its open attempt if it has one, as the store has them."""
        job.attempt = attempt
        present = None if attempt is None else attempt.number
        if job.shape.is_array:
            _replay(job, present, tasks)
        else:
            for task in tasks:
                if task.attempt == present:
                    job.progress.count(seen_again(task))
        if attempt is not None and attempt.asked is not None:
            self.timed.add(job.id)
        if attempt is not None and job.training is not None:
            job.progress.began_at = attempt.started_at  # near enough, and what the start cost is not measured again
        now = [task for task in tasks if task.attempt == present]
        job.progress.begun_now = {task.index for task in now if job.shape.is_array or seen_again(task).has_run}

    def views(self) -> tuple[JobView, ...]:
        return tuple([job.view(self.curves.of(job.terms.script)) for job in self.jobs.values()])


def _replay(job: LiveJob, present: int | None, tasks: list[TaskRecord]) -> None:
    """What an array's attempts have done, one after the other; of an earlier life only what succeeded counts."""
    job.record = replace(job.record, failures=0)
    for number, group in groupby(tasks, key=lambda task: task.attempt):
        for task in group:
            has_succeeded = task.exit_code == 0 and not task.cause
            counts = has_succeeded if number < job.record.first_attempt else task.ended_at is not None
            if number == present or counts:
                job.progress.count(seen_again(task))
        if number != present:
            job.put_back()


def seen_again(task: TaskRecord) -> TaskSeen:
    return TaskSeen(
        AttemptId(task.job_id, task.attempt),
        task.index,
        task.node,
        task.lane,
        task.started_at,
        task.ended_at,
        task.exit_code,
        task.cause,
        task.problem,
    )


def task_record(task: TaskSeen) -> TaskRecord:
    return TaskRecord(
        task.attempt.job,
        task.attempt.number,
        task.index,
        task.node,
        task.lane,
        task.started_at,
        task.ended_at,
        task.exit_code,
        task.cause,
        task.problem,
    )


def with_slots(attempt: AttemptRecord, slots: tuple[Slot, ...], at: float) -> AttemptRecord:
    """From a moment on; slots that it has already are held as long as before."""
    known = {slot.number for slot in attempt.slots}
    joined = {slot.number: attempt.since.get(slot.number) if slot.number in known else at for slot in slots}
    since = {number: moment for number, moment in joined.items() if moment is not None}
    return replace(attempt, slots=slots, since=since, changed_at=at)
