"""Endpoints for logs: by byte offset; following is a long poll."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

from fastapi import APIRouter, Query, Response

from swell.api.box import Caller, Who
from swell.api.find import find_job
from swell.api.services import Services
from swell.api.turns import at_rest, look_again
from swell.api.wire import ERRORS, NUMBER_MAX
from swell.errors import NotFound
from swell.model.job import AttemptId, JobId
from swell.store import JobRecord

CHUNK_BYTES_MAX = 1 << 20
LOOK_FIRST_S, LOOK_LAST_S = 0.02, 0.25  # a follower's looks at a quiet file get rarer; one stat each


def logs_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/api/v1/jobs", tags=["logs"], responses=ERRORS)

    @router.get("/{ref}/logs", response_class=Response)
    async def logs(
        ref: str,
        caller: Who,
        rank: int | None = Query(
            None,
            ge=0,
            le=NUMBER_MAX,
            description="task: rank of a gang or index of an array; by default the first task",
        ),
        attempt: int | None = Query(None, ge=1, le=NUMBER_MAX, description="attempt; by default the latest"),
        offset: int = Query(0, ge=-NUMBER_MAX, le=NUMBER_MAX, description="first byte; negative: bytes from the end"),
        limit: int = Query(CHUNK_BYTES_MAX, ge=1, le=CHUNK_BYTES_MAX),
        since: float | None = Query(
            None, description="Unix time from which to read, instead of an offset; accurate to about a second"
        ),
        wait_s: float = Query(0, ge=0, le=60),
    ) -> Response:
        """Return a task's log as raw bytes. `Swell-Next-Offset`: where to continue; `Swell-Complete`: has it ended?"""
        clock = asyncio.get_running_loop().time
        until, pause = clock() + wait_s, LOOK_FIRST_S
        asked = await services.read(caller.user, lambda: _asked(services, caller, ref, rank, attempt))
        while True:
            seen = await services.read(caller.user, partial(_look, services, asked, offset, limit, since))
            if seen.data or seen.is_complete or clock() >= until or services.committed.is_closed:
                return _answer(seen)
            offset = seen.start
            async with at_rest():
                await asyncio.sleep(min(pause, until - clock()))
                await look_again()
            pause = min(pause * 1.5, LOOK_LAST_S)

    return router


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Whose log."""

    job: JobId
    index: int
    attempt: int | None  #: None: the last that this task was in


@dataclass(frozen=True, slots=True)
class Seen:
    """Of a log, at one moment."""

    job: JobRecord
    start: int
    data: bytes
    is_complete: bool


def _asked(services: Services, caller: Caller, ref: str, rank: int | None, attempt: int | None) -> LogQuery:
    job = find_job(services.store, caller, ref)
    if attempt is not None and attempt > max(job.attempts, 1):
        raise NotFound(f"job {job.id} has no attempt {attempt}; it has had {job.attempts}")
    return LogQuery(job.id, _index(job, rank), attempt)


def _look(services: Services, asked: LogQuery, offset: int, limit: int, since: float | None) -> Seen:
    job, index = services.store.job(asked.job), asked.index
    life = AttemptId(job.id, asked.attempt or _life_of(services, job, index))
    is_complete = _is_complete(services, job, life, index)  # before reading: what comes after may be missed
    start, data = services.engine.read_log(life, index, _from(services, life, index, offset, since), limit)
    return Seen(job, start, data, is_complete)


def _index(job: JobRecord, rank: int | None) -> int:
    spec = job.spec
    if spec.array is not None:
        first = next(iter(spec.array.indices))
        if rank is not None and rank not in spec.array.indices:
            raise NotFound(f"job {job.id} has no task {rank}; its array is {spec.array.indices}")
        return first if rank is None else rank
    total = max(job.tasks_total, job.width_max if spec.dimension == "tasks" else 1)
    if rank is not None and not 0 <= rank < total:
        raise NotFound(f"job {job.id} has no task {rank}; its ranks are 0 to {total - 1}")
    return rank or 0


def _life_of(services: Services, job: JobRecord, index: int) -> int:
    """The last attempt that this task was in: an array that gave its room back goes on in another."""
    last = max(job.attempts, 1)
    if job.attempts < 2:
        return last
    return next((life for life in range(last, 0, -1) if services.store.task(job.id, life, index)), last)


def _from(services: Services, life: AttemptId, index: int, offset: int, since: float | None) -> int:
    size = services.engine.log_size(life, index) or 0
    if since is not None:
        found = services.engine.log_offset_at(life, index, since)
        return max(offset, size if found is None else found)
    return max(0, size + offset) if offset < 0 else offset


def _is_complete(services: Services, job: JobRecord, life: AttemptId, index: int) -> bool:
    if job.state.has_ended:
        return True
    task = services.store.task(job.id, life.number, index)
    return task is not None and task.ended_at is not None


def _answer(seen: Seen) -> Response:
    headers = {
        "Swell-Offset": str(seen.start),
        "Swell-Next-Offset": str(seen.start + len(seen.data)),
        "Swell-Complete": "true" if seen.is_complete and not seen.data else "false",
        "Swell-State": str(seen.job.state),
    }
    return Response(seen.data, media_type="application/octet-stream", headers=headers)
