"""Has somebody as much waiting and stored as they may have?

One look at one index, in the transaction of the submission itself: two at once cannot both be the last that fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, func, select

from swell.errors import TooMany
from swell.model.job import JobState
from swell.model.quota import DiskUse, Quota
from swell.store import tables

WAITING_STATES = [str(JobState.QUEUED), str(JobState.HELD)]
MIB = 1024 * 1024


def refuse_too_much(connection: Connection, owner: str, rows: Sequence[dict[str, Any]], quota: Quota) -> None:
    """All rows are the owner's. Raises `TooMany`."""
    if quota.queued is not None:
        refuse_jobs(owner, _waiting(connection, owner), len(rows), quota.queued)
    if quota.tasks is not None:
        refuse_tasks(owner, _tasks(connection, owner), sum(row["tasks_total"] for row in rows), quota.tasks)
    if quota.stored_bytes is not None:
        refuse_bytes(owner, _stored(connection, owner), sum(row["stored_bytes"] for row in rows), quota.stored_bytes)


def _waiting(connection: Connection, owner: str) -> int:
    waits = tables.job.c.state.in_(WAITING_STATES)
    stays = tables.job.c.cancel_requested_by.is_(None)  # who makes room need not wait for the next cycle
    counted = select(func.count()).select_from(tables.job).where(waits & stays & (tables.job.c.owner == owner))
    return int(connection.execute(counted).scalar_one())


def _tasks(connection: Connection, owner: str) -> int:
    lives = tables.job.c.state.not_in(tables.ENDED_STATES) & tables.job.c.cancel_requested_by.is_(None)
    added = select(func.coalesce(func.sum(tables.job.c.tasks_total), 0)).where(lives & (tables.job.c.owner == owner))
    return int(connection.execute(added).scalar_one())


def _stored(connection: Connection, owner: str) -> int:
    added = select(func.coalesce(func.sum(tables.job.c.stored_bytes), 0)).where(tables.job.c.owner == owner)
    return int(connection.execute(added).scalar_one())


def refuse_jobs(owner: str, waiting: int, more: int, limit: int) -> None:
    if waiting + more > limit:
        raise TooMany(
            f"{owner!r} may have {limit} jobs waiting and has {waiting}, so {more} more cannot be taken; "
            "wait until some have started, cancel some, or submit an array, which counts as one job"
        )


def refuse_tasks(owner: str, there: int, more: int, limit: int) -> None:
    if there + more > limit:
        raise TooMany(
            f"{owner!r} may have {limit} tasks in jobs that have not ended and has {there}, so {more} more cannot be "
            "taken; wait until some jobs have ended, cancel some, or submit a smaller array"
        )


def refuse_bytes(owner: str, there: int, more: int, limit: int) -> None:
    if there + more > limit:
        raise TooMany(
            f"{owner!r} may have {limit // MIB} MiB of jobs stored and has {there / MIB:.1f}, so {more / MIB:.1f} more "
            "cannot be taken; delete jobs that have ended (swell delete), or submit with a smaller environment"
        )


def refuse_without_disk(owner: str, use: DiskUse | None) -> None:
    """`use` None: nothing limits it."""
    if use is not None and use.is_over:
        raise TooMany(f"{owner!r} has {use.in_words}, so no more jobs are accepted; {use.advice}")
