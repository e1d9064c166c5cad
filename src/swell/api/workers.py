"""Endpoints for workers: one sync, and the environments tasks need."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from fastapi import APIRouter, Response

from swell.api.services import Services
from swell.api.wire import ERRORS, Json, Sync
from swell.engines.workers import Answer, Report
from swell.errors import Conflict, Rejected


def workers_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/api/v1/workers", tags=["workers"], responses=ERRORS)
    engine = services.workers
    if engine is None:  # nobody has one here
        return router

    @router.post("/sync")
    async def sync(body: Sync) -> Response:
        """Take a report; answer with the desired set when it is newer, waiting up to `hold_s` for that."""
        if body.store and body.store != services.store.id:
            raise Conflict(f"this server keeps store {services.store.id}, the worker belongs to {body.store}")
        report = _report(body)
        if body.server != services.server_id:  # the rest of the story was told to another process
            report = replace(report, tasks=(), runs=())
        engine.sync(report)
        until = asyncio.get_running_loop().time() + body.hold_s
        answer = engine.answer(report.node.id, body.version)
        while answer is None and not services.desired.is_closed:
            left = until - asyncio.get_running_loop().time()
            if left <= 0:
                break
            await services.desired.wait(left)
            answer = engine.answer(report.node.id, body.version)
        return Json(_document(services, answer, body.version))

    @router.get("/environments/{digest}")
    async def environment(digest: str) -> Response:
        """What the caller's environment was; workers only."""
        return Json(services.store.environment(digest))

    return router


def _report(body: Sync) -> Report:
    try:
        return Report.parse(body.model_dump())
    except (KeyError, TypeError, ValueError) as error:
        raise Rejected(f"the report cannot be read ({error!r}); worker and server must be of one version") from error


def _document(services: Services, answer: Answer | None, version: int) -> dict[str, object]:
    launches = None
    if answer is not None and answer.launches is not None:
        version = answer.version
        launches = [launch.to_document() for launch in answer.launches]
    return {
        "store": services.store.id,
        "server": services.server_id,
        "version": version,
        "launches": launches,
    }
