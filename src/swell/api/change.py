"""Endpoints that change what becomes of a job: hold, release, requeue, scale."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future

from fastapi import APIRouter, Response
from pydantic import Field

from swell.api.accept import refuse_making_again
from swell.api.box import Caller, Who, require_admin
from swell.api.documents import job_document
from swell.api.find import find_one, find_several
from swell.api.services import Services
from swell.api.wire import ERRORS, Cancellation, Cancellations, JobOut, JobsOut, Json, Strict
from swell.errors import Rejected
from swell.model.job import JobId
from swell.store import JobRecord, no_job


class Requeueing(Strict):
    now: bool = Field(default=False, description="stop the job at once instead of at its next checkpoint")


class Scaling(Strict):
    width: int | None = Field(ge=1, le=1_000_000, description="null: the planner chooses the width")
    now: bool = Field(default=False, description="stop the job at once instead of at its next checkpoint")


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
        """Hold a job until it is released. A running job frees its resources at its next checkpoint."""
        job = await find(caller, ref, ended=False)
        return await after(controller.hold(job.id, by=caller.user, origin=caller.origin), job, caller)

    @router.post("/{ref}/release", response_model=JobOut)
    async def release(ref: str, caller: Who) -> Response:
        """Release a held job; it is queued again."""
        job = await find(caller, ref, ended=False)
        await refuse_making_again(services, caller, job)
        return await after(controller.release(job.id, by=caller.user, origin=caller.origin), job, caller)

    @router.post("/{ref}/requeue", response_model=JobOut)
    async def requeue(ref: str, caller: Who, body: Requeueing | None = None) -> Response:
        """Start a job again, from its last checkpoint if it has one; also a failed or cancelled job."""
        job = await find(caller, ref, ended=None)
        await refuse_making_again(services, caller, job)
        is_now = body is not None and body.now
        return await after(controller.requeue(job.id, by=caller.user, is_now=is_now, origin=caller.origin), job, caller)

    @router.post("/{ref}/scale", response_model=JobOut)
    async def scale(ref: str, body: Scaling, caller: Who) -> Response:
        """Resize a job to this width as soon as resources are free."""
        job = await find(caller, ref, ended=False)
        done = controller.scale(job.id, body.width, by=caller.user, is_now=body.now, origin=caller.origin)
        return await after(done, job, caller)

    return router


def cancel_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"], responses=ERRORS)
    store, controller = services.store, services.controller

    async def end(found: Sequence[JobRecord], caller: Caller, grace_s: float | None) -> list[dict[str, object]]:
        active = [job.id for job in found if not job.state.has_ended]
        if active:
            asked = controller.cancel(active, by=caller.user, grace_s=grace_s, origin=caller.origin)
            await asyncio.wrap_future(asked)
        return await services.read(caller.user, lambda: documents([job.id for job in found]))

    def documents(jobs: Sequence[JobId]) -> list[dict[str, object]]:
        after = store.jobs(jobs)
        return [job_document(after[job], controller.reason(after[job])) for job in jobs if job in after]

    @router.post("/{ref}/cancel", response_model=JobOut)
    async def cancel(ref: str, caller: Who, body: Cancellation | None = None) -> Response:
        """Cancel a job: SIGTERM, then SIGKILL after the grace period. An ended job stays as it is."""
        found = await services.read(caller.user, lambda: find_one(store, caller, ref, ended=False))
        ended = await end([found], caller, body.grace_s if body else None)
        if not ended:
            raise no_job(found.id)  # deleted meanwhile
        return Json(ended[0])

    @router.post("/cancel", response_model=JobsOut)
    async def cancel_several(body: Cancellations, caller: Who) -> Response:
        """Cancel several jobs, or all, in one step, so that none of them starts with the resources of another."""
        if body.all:
            whose = _whose(body, caller)
            found = await services.read(caller.user, lambda: store.active(owner=whose))
        else:
            found = await services.read(caller.user, lambda: find_several(store, caller, body.jobs))
        ended = await end(found, caller, body.grace_s)
        return await services.read(caller.user, lambda: Json({"jobs": ended, "not_shown": 0}))

    return router


def _whose(body: Cancellations, caller: Caller) -> str | None:
    """None: everybody's."""
    if body.user not in (None, caller.user) or body.all_users:
        require_admin(caller, "cancel other users' jobs")
    elif body.user is None and caller.is_admin and caller.own is not None:
        raise Rejected("name the users whose jobs to cancel: user: NAME, or all_users: true")
    return None if body.all_users else body.user or caller.own
