"""Endpoint for the list of jobs: one answer for a screen, one job per line for all of them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from swell.api.box import Caller, Who
from swell.api.documents import job_document, queue_document
from swell.api.services import Services
from swell.api.wire import ERRORS, JobsOut, Json
from swell.store import JobRecord

LISTED_MAX = 10_000  # in one answer, which is in memory whole; `lines` brings all there are
RECENT_S = 24 * 3600.0  # ended jobs are listed for a day without `all`


def listing_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"], responses=ERRORS)

    @router.get("", response_model=JobsOut)
    async def listing(
        caller: Who,
        all: bool = Query(False, description="include jobs that ended more than a day ago"),  # noqa: A002
        user: str | None = Query(None, description="jobs of this user; by default the caller's"),
        all_users: bool = Query(False, description="jobs of all users; other users' with limited detail"),
        limit: int | None = Query(None, ge=1, le=LISTED_MAX, description=f"maximum number of jobs; {LISTED_MAX}"),
        lines: bool = Query(False, description="one job per line (NDJSON), all of them, streamed"),
    ) -> Response:
        """List jobs: active jobs first, then ended jobs, newest first."""
        since = None if all else services.now() - RECENT_S
        owner = user if user is not None or all_users else caller.own
        caller.reads_of(owner)
        if lines:
            return StreamingResponse(_lines(services, caller, since, owner), media_type="application/x-ndjson")
        shown_max = LISTED_MAX if limit is None else limit

        def read() -> Response:
            jobs, not_shown = services.store.listing(ended_since=since, owner=owner, limit=shown_max)
            listed = [_document(services, caller, job) for job in jobs]
            states = services.store.listed_counts(ended_since=since, owner=owner)
            of_others = 0 if owner is None or user is not None else _count(services, since) - sum(states.values())
            return Json({"jobs": listed, "not_shown": not_shown, "states": states, "of_others": of_others})

        return await services.read(caller.user, read)

    return router


def _count(services: Services, ended_since: float | None) -> int:
    return sum(services.store.listed_counts(ended_since=ended_since).values())


def _document(services: Services, caller: Caller, job: JobRecord) -> dict[str, Any]:
    if caller.may_touch(job.owner):
        controller = services.controller
        return job_document(job, controller.reason(job), controller.start_foreseen(job))
    return queue_document(job)


async def _lines(
    services: Services, caller: Caller, ended_since: float | None, owner: str | None
) -> AsyncIterator[str]:
    pages = services.store.pages(ended_since=ended_since, owner=owner)

    def read() -> str | None:
        page = next(pages, None)
        if page is None:
            return None
        return "".join(f"{json.dumps(_document(services, caller, job))}\n" for job in page)

    while (lines := await services.read(caller.user, read)) is not None:
        yield lines
