"""Which endpoints are there, and how do errors look?"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from swell import __version__
from swell.api.caller import Who, require_admin
from swell.api.cancel import cancel_router
from swell.api.change import change_router
from swell.api.documents import node_document
from swell.api.doors.addresses import Addressing, addresses_router
from swell.api.doors.entrance import Doors
from swell.api.doors.manage import Opening, doors_router
from swell.api.events import events_router
from swell.api.exec import exec_router
from swell.api.jobs import jobs_router
from swell.api.listing import listing_router
from swell.api.logs import logs_router
from swell.api.metrics import metrics_router
from swell.api.probes import probes_router
from swell.api.reports import reports_router
from swell.api.security import Guard
from swell.api.services import Services
from swell.api.tokens import Creation, job_secret_router, tokens_router
from swell.api.usage import usage_router
from swell.api.wire import ERRORS, Cancellation, Json, Submission
from swell.api.workers import workers_router
from swell.errors import Conflict, Denied, NotFound, Rejected, SwellError, TooLarge, TooMany, Unavailable
from swell.manifests.fields import describe, did_you_mean
from swell.reportform import ReportIn
from swell.store import Changes

STATUS = {NotFound: 404, Conflict: 409, Denied: 403, TooLarge: 413, TooMany: 429, Rejected: 422, Unavailable: 503}

log = logging.getLogger(__name__)


def create_app(services: Services) -> Any:
    """The whole API as one ASGI application, guarded."""
    app = FastAPI(
        title="Swell",
        version=__version__,
        description="Runs training and HPC jobs on the GPUs you have, and always says why.",
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # its page loads scripts from elsewhere; many labs have no way out
        redoc_url=None,
        redirect_slashes=False,  # an empty name is an error, not another address
    )
    for router in (
        listing_router,
        jobs_router,
        cancel_router,
        logs_router,
        exec_router,
        events_router,
        workers_router,
        reports_router,
        change_router,
        usage_router,
        metrics_router,
        probes_router,
        doors_router,
        addresses_router,
        tokens_router,
        job_secret_router,
        server_router,
    ):
        app.include_router(router(services))
    app.add_exception_handler(SwellError, _on_swell_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_bug)
    doors = Doors(services)
    services.doorkeeper.application = doors.listener
    return Guard(app, services, doors)


def server_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["server"], responses=ERRORS)

    @router.get("/health")
    async def health() -> dict[str, str]:
        """Needs no token and tells nothing but that somebody is there."""
        return {"status": "ok"}

    @router.get("/server")
    async def server(caller: Who) -> dict[str, Any]:
        """Which server this is, who asks, and how many jobs it knows by state."""
        store = services.store
        jobs, lost = await services.read(caller.user, lambda: (store.counts(), store.lost_gpu_seconds()))
        return {
            "version": __version__,
            "store": store.id,
            "user": caller.user,
            "jobs": jobs,
            "lost_gpu_seconds": lost,
            "kubectl": services.intake(),
        }

    @router.post("/server/stop", status_code=202)
    async def stop(caller: Who) -> dict[str, str]:
        """End the server. Running tasks are not touched."""
        require_admin(caller, "stop the server")
        asked = Changes(events=[caller.did("ServerStopRequested")])
        await asyncio.wrap_future(services.store.record(asked))
        services.stop()
        return {"status": "stopping"}

    @router.get("/nodes")
    async def nodes(caller: Who) -> Response:
        """Machines, what they offer and who holds it."""

        def read() -> Response:
            snapshot = services.controller.snapshot
            return Json({"nodes": [node_document(node, snapshot) for node in snapshot.nodes]})

        return await services.read(caller.user, read)

    return router


def _error(status: int, kind: str, message: str) -> Json:
    return Json({"error": {"kind": kind, "message": message}}, status)


async def _on_swell_error(_: Request, error: Exception) -> Response:
    """By the kinds of `errors.py`, which clients know: a part of ours may have a finer one."""
    kind = next((kind for kind in type(error).__mro__ if kind in STATUS), SwellError)
    return _error(STATUS.get(kind, 500), kind.__name__, str(error))


async def _on_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:])
    models: dict[str, type[BaseModel]] = {
        "cancel": Cancellation,
        "report": ReportIn,
        "doors": Opening,
        "address": Addressing,
        "tokens": Creation,
    }
    known = list(models.get(request.url.path.rpartition("/")[2], Submission).model_fields)
    if first["type"] == "extra_forbidden":
        return _error(422, "Rejected", f"the request has no field {where!r}{did_you_mean(where, known)}")
    if first["type"] == "json_invalid":
        return _error(422, "Rejected", f"the body is not valid JSON: {first['ctx']['error']} (at byte {where})")
    if first["type"] == "missing" and where:
        return _error(422, "Rejected", f"the request needs the field {where!r}; known: {', '.join(known)}")
    given = "" if first["type"] == "missing" else f", but is {describe(first['input'])}"
    return _error(422, "Rejected", f"{where or 'the request'}: {first['msg']}{given}")


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code in (404, 405):
        asked = f"{request.method} {request.url.path}"
        return _error(error.status_code, "NotFound", f"there is no {asked}; /api/v1/openapi.json lists what there is")
    if error.status_code == 400:  # FastAPI's word for what json.loads() did not even call JSON
        return _error(422, "Rejected", "the body is not JSON: it is no UTF-8 text, or nested too deeply")
    kind = {413: "TooLarge", 429: "Unavailable"}.get(error.status_code, "Rejected")
    return _error(error.status_code, kind, str(error.detail))


async def _on_bug(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return _error(500, "Bug", f"Swell has a bug here: {type(error).__name__}; server.log has the details")
