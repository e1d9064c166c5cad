"""What becomes of a job that would keep everybody's cycle from being recorded?

All that a cycle changes is one transaction, so one value that cannot be written would stop a whole box, and after a
restart again: workers repeat what they have seen. First only what was said of that job is left out (`BareFacts`):
whether its tasks run, and how they ended, stays. Where that does not help the job is failed (`failed`).
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from swell.errors import SwellError
from swell.model.job import JobId, JobState
from swell.model.launch import CAUSE_START, CAUSES, Observation, RunSeen, TaskSeen
from swell.model.reason import Code
from swell.store import AttemptRecord, Changes, EventRecord, JobRecord

NUMBER_MAX = 2**63 - 1
EXIT_CODES = range(-255, 256)
PROBLEM_MAX = 500  # characters: an error of the store quotes the whole statement


class UnstorableJobs(Exception):
    """Not recorded, and by what was seen of whom."""

    def __init__(self, jobs: dict[JobId, str]) -> None:
        super().__init__("; ".join(f"job {job}: {why}" for job, why in jobs.items()))
        self.jobs = jobs


@contextmanager
def blaming(job: JobId) -> Iterator[None]:
    """What goes wrong meanwhile is due to this job."""
    try:
        yield
    except (SwellError, UnstorableJobs):
        raise
    except Exception as error:
        raise UnstorableJobs({job: brief(error)}) from error


def brief(error: BaseException) -> str:
    return f"{type(error).__name__}: {getattr(error, 'orig', None) or error}"[:PROBLEM_MAX]


@dataclass(slots=True)
class BareFacts:
    """Of which jobs only the bare facts are believed, and why."""

    jobs: dict[JobId, str] = field(default_factory=dict)

    def keep_only(self, jobs: Container[JobId]) -> None:
        if self.jobs:
            self.jobs = {job: why for job, why in self.jobs.items() if job in jobs}

    def of(self, seen: Observation, now: float) -> Observation:
        """The same without their words, which somebody else has chosen."""
        if not self.jobs:
            return seen
        tasks = [self._task(task, now) if task.attempt.job in self.jobs else task for task in seen.tasks]
        return replace(
            seen,
            tasks=tuple(task for task in tasks if task is not None),
            runs=tuple(_bare_run(run) if run.attempt.job in self.jobs else run for run in seen.runs),
            reports=tuple(report for report in seen.reports if report.attempt.job not in self.jobs),
        )

    def _task(self, task: TaskSeen, now: float) -> TaskSeen | None:
        """None: nothing of it can be believed; its worker says when nothing of the attempt is left."""
        if not all(_is_number(value) for value in (task.index, task.lane)):
            return None
        ended_at = None if task.ended_at is None else _moment(task.ended_at, now)
        code = task.exit_code if task.exit_code in EXIT_CODES else None
        cause = task.cause if task.cause in CAUSES else CAUSE_START if ended_at is not None and code is None else ""
        return TaskSeen(
            task.attempt,
            task.index,
            task.node,
            task.lane,
            _moment(task.started_at, now),
            ended_at,
            code,
            cause,
            f"the worker's report for this task could not be stored ({self.jobs[task.attempt.job]})",
        )


def _bare_run(run: RunSeen) -> RunSeen:
    return RunSeen(run.attempt, run.node, run.revision, run.in_use, run.left, run.is_finished)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and abs(value) <= NUMBER_MAX


def _moment(value: object, now: float) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value <= now else now


def not_recorded(job: JobId, problem: str) -> EventRecord:
    return EventRecord("NotRecorded", job, detail={"problem": problem})


def failed(record: JobRecord, attempt: AttemptRecord | None, problem: str, now: float) -> Changes:
    """It ends as nothing but a line that says so."""
    values = {
        "state": str(JobState.FAILED),
        "reason_code": str(Code.NOT_RECORDED),
        "reason_evidence": {"job": record.id, "problem": problem},
        "ended_at": now,
        "exit_code": None,
        "width": 0,
        "tasks_running": 0,
        "notice_due": int(record.spec.notify is not None),
    }
    detail = {"state": str(JobState.FAILED), "exit_code": None, "reason": str(Code.NOT_RECORDED), "ran_s": None}
    over = [] if attempt is None else [replace(attempt, slots=(), ended_at=now, outcome=str(JobState.FAILED))]
    return Changes(
        jobs={record.id: values},
        attempts=over,
        events=[not_recorded(record.id, problem), EventRecord("Ended", record.id, detail=detail)],
    )
