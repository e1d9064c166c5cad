"""Endpoints that change what becomes of a job: hold, release, requeue, scale."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

from fastapi import APIRouter, Response
from pydantic import Field

from swell.api.caller import Caller, Who
from swell.api.documents import job_document
from swell.api.find import find_one
from swell.api.services import Services
from swell.api.wire import ERRORS, JobOut, Json, Strict
from swell.store import JobRecord


class Requeueing(Strict):
    now: bool = Field(default=False, description="stop it at once; without, at its next checkpoint")


class Scaling(Strict):
    width: int | None = Field(ge=1, le=1_000_000, description="null: what the planner thinks best")
    now: bool = Field(default=False, description="stop it at once; without, at its next checkpoint")


def change_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"], responses=ERRORS)
    store, controller = services.store, services.controller

    async def after(done: Future[None], job: JobRecord, caller: Caller) -> Response:
        await asyncio.wrap_future(done)
        return await services.read(caller.user, lambda: document(job))

    def document(job: JobRecord) -> Response:
        changed = store.job(job.id)
        return Json(job_document(changed, controller.reason(changed)))

    async def find(caller: Caller, ref: str, *, ended: bool | None) -> JobRecord:
        return await services.read(caller.user, lambda: find_one(store, caller, ref, ended=ended))

    @router.post("/{ref}/hold", response_model=JobOut)
    async def hold(ref: str, caller: Who) -> Response:
        """It waits until it is released; a running one gives its room back at its next checkpoint."""
        job = await find(caller, ref, ended=False)
        return await after(controller.hold(job.id, by=caller.user, origin=caller.origin), job, caller)

    @router.post("/{ref}/release", response_model=JobOut)
    async def release(ref: str, caller: Who) -> Response:
        """It lines up again."""
        job = await find(caller, ref, ended=False)
        return await after(controller.release(job.id, by=caller.user, origin=caller.origin), job, caller)

    @router.post("/{ref}/requeue", response_model=JobOut)
    async def requeue(ref: str, caller: Who, body: Requeueing | None = None) -> Response:
        """Start it again, from its last checkpoint when it has one; also one that failed or was cancelled."""
        job = await find(caller, ref, ended=None)
        is_now = body is not None and body.now
        return await after(controller.requeue(job.id, by=caller.user, is_now=is_now, origin=caller.origin), job, caller)

    @router.post("/{ref}/scale", response_model=JobOut)
    async def scale(ref: str, body: Scaling, caller: Who) -> Response:
        """Give it this width as soon as there is room."""
        job = await find(caller, ref, ended=False)
        done = controller.scale(job.id, body.width, by=caller.user, is_now=body.now, origin=caller.origin)
        return await after(done, job, caller)

    return router
