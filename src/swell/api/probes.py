"""Endpoints for whoever keeps the server alive: is it there, and can it be sent requests?

They need no token and answer to any Host (a kubelet asks a pod by its address), so they tell nothing but that.
"""

from __future__ import annotations

from fastapi import APIRouter, Response

from swell.api.services import Services
from swell.api.wire import Json

ALIVE_PATH = "/healthz"
READY_PATH = "/readyz"
PROBE_PATHS = (ALIVE_PATH, READY_PATH)


def probes_router(services: Services) -> APIRouter:
    router = APIRouter(include_in_schema=False)

    @router.get(ALIVE_PATH)
    async def alive() -> Response:
        """Whoever can answer is alive."""
        return Json({"status": "ok"})

    @router.get(READY_PATH)
    async def ready() -> Response:
        """503: it still reads what there is."""
        is_ready = services.is_ready()
        return Json({"status": "ok" if is_ready else "not ready"}, 200 if is_ready else 503)

    return router
