"""How many events does one person's asking leave behind?

Whoever holds and releases a job in a loop writes two events each time, and no limit on what they submit bounds that.
So of one job the first events and the newest stay, and what the same person did in between is dropped, with what
followed from it; nobody can drop what somebody else did. The audit (config.json) has been told of all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, delete, func, select

from swell.model.job import JobId
from swell.store import tables

OF_A_JOB_MAX = 1000
FIRST_KEPT = 100  # of a job: how it began
OF_NO_JOB_MAX = 10_000  # of one person: tokens, doors, records
OURSELVES = "swell"
JOBS_PER_READ = 500

event = tables.event.c


def trim(connection: Connection, asked: Iterable[tuple[JobId | None, str]]) -> None:
    """`asked`: of which job, and by whom."""
    pairs = {(job, actor) for job, actor in asked if actor != OURSELVES}
    if not pairs:
        return
    crowded = _crowded(connection, sorted({job for job, _ in pairs if job is not None}))
    for job, actor in pairs:
        if job is None:
            _trim_actor(connection, actor)
        elif job in crowded:
            _trim_job(connection, job, actor)


def _crowded(connection: Connection, jobs: Sequence[JobId]) -> set[JobId]:
    found: set[JobId] = set()
    for begin in range(0, len(jobs), JOBS_PER_READ):
        some = event.job_id.in_(jobs[begin : begin + JOBS_PER_READ])
        counted = select(event.job_id).where(some).group_by(event.job_id).having(func.count() > OF_A_JOB_MAX)
        found |= set(connection.execute(counted).scalars())
    return found


def _trim_job(connection: Connection, job: JobId, actor: str) -> None:
    of_job = select(event.id).where(event.job_id == job)
    first = of_job.order_by(event.id).limit(FIRST_KEPT)
    newest = of_job.order_by(event.id.desc()).limit(OF_A_JOB_MAX - FIRST_KEPT)
    theirs = (event.job_id == job) & event.actor.in_([actor, OURSELVES])
    connection.execute(delete(tables.event).where(theirs & event.id.not_in(first) & event.id.not_in(newest)))


def _trim_actor(connection: Connection, actor: str) -> None:
    theirs = event.job_id.is_(None) & (event.actor == actor)
    last = select(event.id).where(theirs).order_by(event.id.desc()).limit(1).offset(OF_NO_JOB_MAX).scalar_subquery()
    connection.execute(delete(tables.event).where(theirs & (event.id <= last)))
