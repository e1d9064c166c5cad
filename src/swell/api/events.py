"""Endpoints for events: a page of them, or a stream (SSE) that goes on where it was cut."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse

from swell.api.caller import Caller, Who
from swell.api.documents import event_document
from swell.api.find import find_job
from swell.api.services import Services
from swell.api.wire import ERRORS, NUMBER_MAX, Json

PING_S = 15.0  # proxies cut a silent stream after 30 to 60 s


def events_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["events"], responses=ERRORS)

    @router.get("/events")
    async def events(
        caller: Who,
        job: str | None = None,
        after: int = Query(0, ge=0, le=NUMBER_MAX),
        limit: int = Query(1000, ge=1, le=1000),
    ) -> Response:
        """Oldest first, after an event's id."""
        job_id = find_job(services.store, caller, job).id if job else None
        found = services.store.events(after=after, job=job_id, owner=_whose(caller), limit=limit)
        return Json({"events": [event_document(event) for event in found]})

    @router.get("/events/stream")
    async def stream(
        caller: Who,
        job: str | None = None,
        after: int | None = Query(
            None, ge=0, le=NUMBER_MAX, description="from after this event; without it only new ones"
        ),
        last_event_id: Annotated[int | None, Header(ge=0, le=NUMBER_MAX)] = None,
    ) -> Response:
        """Server-sent events; `Last-Event-ID` goes on where the stream was cut."""
        job_id = find_job(services.store, caller, job).id if job else None
        begin = last_event_id if last_event_id is not None else after
        if begin is None:
            begin = services.store.last_event_id()
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        events = _stream(services, job_id, _whose(caller), begin)
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)

    return router


def _whose(caller: Caller) -> str | None:
    """None: everybody's, and those of the server itself."""
    return None if caller.is_admin else caller.user


async def _stream(services: Services, job: int | None, owner: str | None, after: int) -> AsyncIterator[str]:
    while not services.committed.is_closed:
        found = services.store.events(after=after, job=job, owner=owner)
        for event in found:
            after = event.id
            yield f"id: {event.id}\nevent: {event.kind}\ndata: {json.dumps(event_document(event))}\n\n"
        if not found:
            before = services.now()
            await services.committed.wait(PING_S)
            if services.now() - before >= PING_S:
                yield ": still here\n\n"
