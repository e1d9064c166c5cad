"""Which endpoints are there, and how do errors look?"""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from swell import __version__
from swell.api.box import Caller, Who, require_admin
from swell.api.bugs import Application
from swell.api.change import cancel_router, change_router
from swell.api.documents import node_document
from swell.api.doors.addresses import Addressing, addresses_router
from swell.api.doors.entrance import Doors
from swell.api.doors.manage import Opening, doors_router
from swell.api.events import events_router
from swell.api.exec import exec_router
from swell.api.files import files_router
from swell.api.history import history_router
from swell.api.invalid import in_words
from swell.api.jobs import jobs_router
from swell.api.kinds import kinds_router
from swell.api.listing import listing_router
from swell.api.logs import logs_router
from swell.api.pools import PoolStop, WorkerKill, pools_router
from swell.api.probes import metrics_router, probes_router
from swell.api.reports import reports_router
from swell.api.security import Guard
from swell.api.services import ClusterCalls, Services
from swell.api.tokens import Creation, job_secret_router, tokens_router
from swell.api.usage import usage_router
from swell.api.wire import ERRORS, Cancellation, Json, Submission
from swell.api.workers import workers_router
from swell.engines.report_form import ReportIn
from swell.errors import Conflict, Denied, NotFound, Rejected, SwellError, TooLarge, TooMany, Unavailable
from swell.manifests.fields import did_you_mean
from swell.model.recorded_plan import recorded_plan
from swell.store import Changes

UNREADABLE_MAX = 20  # objects that are named: whoever made one by accident has made a hundred
STATUS = {NotFound: 404, Conflict: 409, Denied: 403, TooLarge: 413, TooMany: 429, Rejected: 422, Unavailable: 503}


def create_app(services: Services) -> Any:
    """The whole API as one ASGI application, guarded."""
    app = Application(
        title="Swell",
        version=__version__,
        description="Runs training and HPC jobs on the GPUs you have, and always explains why a job waits.",
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # its page loads scripts from elsewhere; many labs have no way out
        redoc_url=None,
        redirect_slashes=False,  # an empty name is an error, not another address
    )
    for router in (
        workers_router,  # routers are asked one after the other: first the one that hundreds of workers ask for
        listing_router,
        jobs_router,
        kinds_router,
        cancel_router,
        logs_router,
        exec_router,
        events_router,
        files_router,
        pools_router,
        reports_router,
        change_router,
        usage_router,
        history_router,
        metrics_router,
        probes_router,
        doors_router,
        addresses_router,
        tokens_router,
        job_secret_router,
        server_router,
    ):
        app.add_routes(router(services))
    app.add_exception_handler(SwellError, _on_swell_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_bug)
    doors = Doors(services)
    services.doorkeeper.application = doors.listener
    return Guard(app, services, doors)


def _cluster_document(cluster: ClusterCalls, caller: Caller) -> dict[str, Any]:
    """Which objects cannot be read is told to administrators: they are in anybody's namespace."""
    unreadable = cluster.unreadable()
    shown = unreadable[:UNREADABLE_MAX] if caller.is_admin else []
    return {"trouble": cluster.trouble(), "unreadable": len(unreadable), "unreadable_objects": shown}


def server_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["server"], responses=ERRORS)

    @router.get("/health")
    async def health() -> dict[str, str]:
        """Liveness; needs no token."""
        return {"status": "ok"}

    @router.get("/server")
    async def server(caller: Who) -> dict[str, Any]:
        """Show which server this is, who the caller is, and how many jobs are in each state."""
        store = services.store
        jobs, lost = await services.read(caller.user, lambda: (store.counts(), store.lost_gpu_seconds()))
        return {
            "version": __version__,
            "store": store.id,
            "user": caller.user,
            "jobs": jobs,
            "lost_gpu_seconds": lost,
            "kubectl": None if services.cluster is None else services.cluster.intake(),
            "cluster": None if services.cluster is None else _cluster_document(services.cluster, caller),
        }

    @router.post("/server/stop", status_code=202)
    async def stop(caller: Who) -> dict[str, str]:
        """Stop the server. Running tasks keep running."""
        require_admin(caller, "stop the server")
        asked = Changes(events=[caller.did("ServerStopRequested")])
        await asyncio.wrap_future(services.store.record(asked))
        services.stop()
        return {"status": "stopping"}

    @router.get("/nodes")
    async def nodes(caller: Who) -> Response:
        """List nodes, the resources they offer, and the jobs that hold them."""

        def read() -> Response:
            snapshot = services.controller.snapshot
            return Json({"nodes": [node_document(node, snapshot) for node in snapshot.nodes]})

        return await services.read(caller.user, read)

    @router.get("/debug/snapshot")
    async def snapshot(caller: Who) -> Response:
        """Return the snapshot that the last plan was made from, and that plan; `swell debug replay` makes it again."""
        require_admin(caller, "record what the planner knows of the jobs of all users")
        caller.reads_of(None)
        policy = services.config.policy
        return await services.read(caller.user, lambda: Json(recorded_plan(*services.controller.made, policy)))

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
        "stop": PoolStop,
        "kill": WorkerKill,
    }
    known = list(models.get(request.url.path.rpartition("/")[2], Submission).model_fields)
    if first["type"] == "extra_forbidden":
        return _error(422, "Rejected", f"the request has no field {where!r}{did_you_mean(where, known)}")
    if first["type"] == "json_invalid":
        return _error(422, "Rejected", f"the body is not valid JSON: {first['ctx']['error']} (at byte {where})")
    if first["type"] == "missing" and where:
        return _error(422, "Rejected", f"the request needs the field {where!r}; known: {', '.join(known)}")
    if first["type"] == "missing":
        return _error(422, "Rejected", "the request needs a body; /api/v1/openapi.json describes it")
    return _error(422, "Rejected", in_words(first))


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code in (404, 405):
        asked = f"{request.method} {request.url.path}"
        return _error(error.status_code, "NotFound", f"there is no {asked}; /api/v1/openapi.json lists the endpoints")
    if error.status_code == 400:  # FastAPI's word for what json.loads() did not even call JSON
        return _error(422, "Rejected", "the body is not JSON: it is not UTF-8 text, or it is nested too deeply")
    kind = {413: "TooLarge", 429: "Unavailable"}.get(error.status_code, "Rejected")
    return _error(error.status_code, kind, str(error.detail))


async def _on_bug(_: Request, error: Exception) -> Response:
    """Written down by whoever shelters the application (bugs.py)."""
    return _error(500, "Bug", f"Swell has a bug here: {type(error).__name__}; server.log has the details")
