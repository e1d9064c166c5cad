"""Endpoint for the list of jobs: one answer for a screen, one job per line for all of them."""

from __future__ import annotations

import json
from collections.abc import Iterator

from fastapi import APIRouter, Query, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from swell.api.documents import job_document
from swell.api.services import Services
from swell.api.wire import ERRORS, JobsOut, Json

RECENT_S = 24 * 3600.0  # ended jobs are listed for a day without `all`


def listing_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"], responses=ERRORS)
    reason = services.controller.reason

    @router.get("", response_model=JobsOut)
    async def listing(
        all: bool = Query(False, description="also jobs that ended more than a day ago"),  # noqa: A002
        user: str | None = None,
        limit: int | None = Query(None, ge=1, le=1_000_000),
        lines: bool = Query(False, description="one job per line (NDJSON), all of them, streamed"),
    ) -> Response:
        """Active jobs first, then ended ones, newest first."""
        since = None if all else services.now() - RECENT_S
        if lines:
            return StreamingResponse(_lines(services, since, user), media_type="application/x-ndjson")

        def read() -> Response:
            jobs, not_shown = services.store.listing(ended_since=since, owner=user, limit=limit)
            listed = [job_document(job, reason(job)) for job in jobs]
            states = services.store.listed_counts(ended_since=since, owner=user)
            return Json({"jobs": listed, "not_shown": not_shown, "states": states})

        return await run_in_threadpool(read)

    return router


def _lines(services: Services, ended_since: float | None, owner: str | None) -> Iterator[str]:
    reason = services.controller.reason
    for page in services.store.pages(ended_since=ended_since, owner=owner):
        yield "".join(f"{json.dumps(job_document(job, reason(job)))}\n" for job in page)
