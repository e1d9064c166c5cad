"""Endpoints that end jobs: one, several, or all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fastapi import APIRouter, Response

from swell.api.documents import job_document
from swell.api.find import find_one
from swell.api.services import Services
from swell.api.wire import ERRORS, Cancellation, Cancellations, JobOut, JobsOut, Json
from swell.store import JobRecord


def cancel_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"], responses=ERRORS)
    store, controller = services.store, services.controller

    async def end(found: Sequence[JobRecord], grace_s: float | None) -> list[dict[str, object]]:
        active = [job.id for job in found if not job.state.has_ended]
        if active:
            await asyncio.wrap_future(controller.cancel(active, by=services.owner, grace_s=grace_s))
        after = [store.job(job.id) for job in found]
        return [job_document(job, controller.reason(job)) for job in after]

    @router.post("/{ref}/cancel", response_model=JobOut)
    async def cancel(ref: str, body: Cancellation | None = None) -> Response:
        """Ask a job to end: SIGTERM, grace, SIGKILL. A job that has ended stays as it is."""
        [document] = await end([find_one(store, ref, ended=False)], body.grace_s if body else None)
        return Json(document)

    @router.post("/cancel", response_model=JobsOut)
    async def cancel_several(body: Cancellations) -> Response:
        """Several, or all, in one step: none of them is started by what another gives back."""
        found = store.active() if body.all else [find_one(store, ref, ended=False) for ref in body.jobs]
        return Json({"jobs": await end(found, body.grace_s), "not_shown": 0})

    return router
