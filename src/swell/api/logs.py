"""Endpoints for logs: by byte offset; following is a long poll."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Query, Response

from swell.api.caller import Who
from swell.api.find import find_job
from swell.api.services import Services
from swell.api.wire import ERRORS, NUMBER_MAX
from swell.errors import NotFound
from swell.model.job import AttemptId
from swell.store import JobRecord

CHUNK_BYTES_MAX = 1 << 20
LOOK_FIRST_S, LOOK_LAST_S = 0.02, 0.25  # a follower's looks at a quiet file get rarer; one stat each


def logs_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/api/v1/jobs", tags=["logs"], responses=ERRORS)

    @router.get("/{ref}/logs", response_class=Response)
    async def logs(
        ref: str,
        caller: Who,
        rank: int | None = Query(None, description="task: a gang's rank or an array's index; the first by default"),
        attempt: int | None = Query(None, ge=1, le=NUMBER_MAX, description="the last by default"),
        offset: int = Query(
            0, ge=-NUMBER_MAX, le=NUMBER_MAX, description="first byte; negative: that many from the end"
        ),
        limit: int = Query(CHUNK_BYTES_MAX, ge=1, le=CHUNK_BYTES_MAX),
        since: float | None = Query(None, description="seconds since 1970; instead of an offset, to about a second"),
        wait_s: float = Query(0, ge=0, le=60),
    ) -> Response:
        """Raw bytes. `Swell-Next-Offset` says where to go on, `Swell-Complete` whether more can come."""
        job = find_job(services.store, caller, ref)
        index = _index(job, rank)
        if attempt is not None and attempt > max(job.attempts, 1):
            raise NotFound(f"job {job.id} has no attempt {attempt}; it has had {job.attempts}")
        until = asyncio.get_running_loop().time() + wait_s
        pause = LOOK_FIRST_S
        while True:
            job = services.store.job(job.id)
            life = AttemptId(job.id, attempt or _life_of(services, job, index))
            is_complete = _is_complete(services, job, life, index)  # before reading: what comes after may be missed
            offset = _from(services, life, index, offset, since)
            start, data = services.engine.read_log(life, index, offset, limit)
            left = until - asyncio.get_running_loop().time()
            if data or is_complete or left <= 0 or services.committed.is_closed:
                return _answer(job, start, data, is_complete)
            await asyncio.sleep(min(pause, left))
            pause = min(pause * 1.5, LOOK_LAST_S)

    return router


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


def _answer(job: JobRecord, start: int, data: bytes, is_complete: bool) -> Response:
    headers = {
        "Swell-Offset": str(start),
        "Swell-Next-Offset": str(start + len(data)),
        "Swell-Complete": "true" if is_complete and not data else "false",
        "Swell-State": str(job.state),
    }
    return Response(data, media_type="application/octet-stream", headers=headers)
