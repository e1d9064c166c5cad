"""Endpoint for Prometheus."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Response
from prometheus_client import CONTENT_TYPE_LATEST

from swell.api.caller import Caller, caller_of
from swell.api.services import Services
from swell.errors import Denied
from swell.metrics import Present


def metrics_router(services: Services) -> APIRouter:
    router = APIRouter(include_in_schema=False)
    services.metrics.registry.register(Present(services.store, services.controller, services.engine, services.now))

    @router.get("/metrics")
    async def metrics(caller: Annotated[Caller, Depends(caller_of)]) -> Response:
        """In Prometheus' text format; docs/metrics.md has the names."""
        if not caller.is_admin:
            raise Denied(f"metrics say who used how much and are for admins, and {caller.user} is none")
        return Response(await services.read(caller.user, services.metrics.text), media_type=CONTENT_TYPE_LATEST)

    return router
