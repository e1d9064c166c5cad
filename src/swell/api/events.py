"""Endpoints for events: a page of them, or a stream (SSE) that goes on where it was cut."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse

from swell.api.box import Caller, Who
from swell.api.documents import event_document
from swell.api.find import find_job
from swell.api.services import Services
from swell.api.turns import at_rest, look_again
from swell.api.wire import ERRORS, NUMBER_MAX, Json
from swell.store import EventRecord

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
        """List events after an event's id, oldest first."""

        def read() -> Response:
            job_id = _of_job(services, caller, job)
            found = services.store.events(after=after, job=job_id, owner=_whose(caller), limit=limit)
            return Json({"events": [event_document(event) for event in found]})

        return await services.read(caller.user, read)

    @router.get("/events/stream")
    async def stream(
        caller: Who,
        job: str | None = None,
        after: int | None = Query(
            None, ge=0, le=NUMBER_MAX, description="send events after this id; without it, only new events"
        ),
        last_event_id: Annotated[int | None, Header(ge=0, le=NUMBER_MAX)] = None,
    ) -> Response:
        """Stream events as server-sent events; `Last-Event-ID` continues a stream that was cut."""
        wanted = last_event_id if last_event_id is not None else after

        def begin() -> tuple[int | None, int]:
            job_id = _of_job(services, caller, job)
            return job_id, services.store.last_event_id() if wanted is None else wanted

        job_id, first = await services.read(caller.user, begin)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        events = _stream(services, caller, job_id, first)
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)

    return router


def _of_job(services: Services, caller: Caller, ref: str | None) -> int | None:
    if ref:
        return find_job(services.store, caller, ref).id
    caller.reads_of(_whose(caller))
    return None


def _whose(caller: Caller) -> str | None:
    """None: everybody's, and those of the server itself."""
    return None if caller.is_admin else caller.user


async def _stream(services: Services, caller: Caller, job: int | None, after: int) -> AsyncIterator[str]:
    def read() -> tuple[int, str]:
        found = services.store.events(after=after, job=job, owner=_whose(caller))
        return found[-1].id if found else after, "".join(map(_line, found))

    while not services.committed.is_closed:
        after, lines = await services.read(caller.user, read)
        if lines:
            yield lines
            continue
        before = services.now()
        async with at_rest():
            await services.committed.wait(PING_S)
            await look_again()
        if services.now() - before >= PING_S:
            yield ": still here\n\n"


def _line(event: EventRecord) -> str:
    return f"id: {event.id}\nevent: {event.kind}\ndata: {json.dumps(event_document(event))}\n\n"
