"""Endpoints about kinds of documents: which there are, and their fields."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Query

from swell.api.box import Who
from swell.api.services import Services
from swell.api.wire import ERRORS, NAME_MAX
from swell.manifests.schema import describe_kind, find_described
from swell.model.kind import KINDS


def kinds_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/api/v1/kinds", tags=["kinds"], responses=ERRORS)

    @router.get("")
    async def listing(caller: Who) -> dict[str, Any]:
        """List the kinds of documents that can be submitted."""
        found = [{"apiVersion": kind.api_version, "kind": kind.name} for kind in KINDS]
        return await services.read(caller.user, lambda: {"kinds": found})

    @router.get("/schema")
    async def schema(
        caller: Who, name: str = Query(max_length=NAME_MAX, description="a kind, or apiVersion/kind")
    ) -> dict[str, Any]:
        """Return the JSON Schema of a kind of documents."""
        return await services.read(caller.user, lambda: describe_kind(find_described(name)))

    return router
