"""Endpoints that end jobs: one, several, or all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fastapi import APIRouter, Response

from swell.api.caller import Caller, Who, require_admin
from swell.api.documents import job_document
from swell.api.find import find_one, find_several
from swell.api.services import Services
from swell.api.wire import ERRORS, Cancellation, Cancellations, JobOut, JobsOut, Json
from swell.errors import Rejected
from swell.model.job import JobId
from swell.store import JobRecord, no_job


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
        """Ask a job to end: SIGTERM, grace, SIGKILL. A job that has ended stays as it is."""
        found = await services.read(caller.user, lambda: find_one(store, caller, ref, ended=False))
        ended = await end([found], caller, body.grace_s if body else None)
        if not ended:
            raise no_job(found.id)  # deleted meanwhile
        return Json(ended[0])

    @router.post("/cancel", response_model=JobsOut)
    async def cancel_several(body: Cancellations, caller: Who) -> Response:
        """Several, or all, in one step: none of them is started by what another gives back."""
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
        require_admin(caller, "cancel the jobs of others")
    elif body.user is None and caller.is_admin and caller.own is not None:
        raise Rejected("an administrator says whose jobs are to be cancelled: user: NAME, or all_users: true")
    return None if body.all_users else body.user or caller.own
