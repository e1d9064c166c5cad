"""Endpoints for whoever keeps the server alive: is it there, and can it be sent requests?

They need no token and answer to any Host (a kubelet asks a pod by its address), so they tell nothing but that.
"""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from prometheus_client import CONTENT_TYPE_LATEST

from swell.api.box import Caller, caller_of
from swell.api.security import ALIVE_PATH, JOB_PATHS, READY_PATH, Scope
from swell.api.services import Services
from swell.api.wire import Json
from swell.errors import Denied
from swell.metrics import Metrics, Present


def probes_router(services: Services) -> APIRouter:
    router = APIRouter(include_in_schema=False)

    @router.get(ALIVE_PATH)
    async def alive() -> Response:
        """Liveness: a server that answers is alive."""
        return Json({"status": "ok"})

    @router.get(READY_PATH)
    async def ready() -> Response:
        """Readiness. Returns 503 until the server has loaded its state."""
        is_ready = services.is_ready()
        return Json({"status": "ok" if is_ready else "not ready"}, 200 if is_ready else 503)

    return router


def metrics_router(services: Services) -> APIRouter:
    router = APIRouter(include_in_schema=False)
    services.metrics.registry.register(Present(services.store, services.controller, services.engine, services.now))

    @router.get("/metrics")
    async def metrics(caller: Annotated[Caller, Depends(caller_of)]) -> Response:
        """Return metrics in Prometheus' text format; docs/metrics.md lists the names."""
        if not caller.is_admin:
            raise Denied(f"metrics show each user's usage and are for administrators; {caller.no_admin}")
        caller.reads_of(None)
        return Response(await services.read(caller.user, services.metrics.text), media_type=CONTENT_TYPE_LATEST)

    return router


METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
NO_ROUTE = "none"  # refused before it was looked for, or not there
CUT_OFF = 499  # the client went away before the answer began


class Measured:
    def __init__(self, app: Any, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = CUT_OFF

        async def note(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        began = time.perf_counter()
        try:
            await self._app(scope, receive, note)
        finally:
            self._count(scope, status, time.perf_counter() - began)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        method = scope["method"] if scope["method"] in METHODS else "other"
        route = getattr(scope.get("route"), "path", NO_ROUTE)
        self._metrics.answered(method, route, status, seconds)
        if method == "POST" and scope["path"].startswith(JOB_PATHS):
            self._metrics.reported(status)
