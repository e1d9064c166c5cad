"""Endpoints for the addresses of doors: make one, list them, revoke one.

`http://127.0.0.1:PORT/d/<token>/…` needs no header. A job's token is its attempt's own (controller/reporting.py). A
user's is a token as any other (credentials.py), with a scope that opens one door and nothing else.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import Field

from swell.api.box import Who, require_admin
from swell.api.credentials import ADDRESS, DOOR_SCOPE, make_credential
from swell.api.documents import iso
from swell.api.doors.manage import refuse_unknown
from swell.api.services import Services
from swell.api.tokens import find_credential
from swell.api.wire import ERRORS, Json, Strict
from swell.errors import NotFound
from swell.store import TokenRecord

LASTS_S_DEFAULT = 30 * 86400.0
LASTS_S_MAX = 366 * 86400.0  # one that is forgotten must end by itself


class Addressing(Strict):
    name: str = Field(description="name of the door: genai or kubeprofiler")
    lasts_s: float = Field(default=LASTS_S_DEFAULT, gt=0, le=LASTS_S_MAX, allow_inf_nan=False)


def addresses_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/api/v1/doors", tags=["doors"], responses=ERRORS)
    tokens = services.store.tokens

    @router.post("/address", status_code=201)
    async def make(body: Addressing, caller: Who) -> Response:
        """Make an address of one door that needs no header and acts as the caller. Only this answer contains it."""
        refuse_unknown(body.name)
        now = services.now()
        expires_at = now + body.lasts_s
        made = make_credential(ADDRESS, caller, scope=f"{DOOR_SCOPE}{body.name}", now=now, expires_at=expires_at)
        event = caller.did("DoorAddressMade", door=body.name, address=made.record.id, expires_at=iso(expires_at))
        await asyncio.wrap_future(tokens.create(made.record, event))
        return Json({**_document(made.record, now), "address": f"{services.url}/d/{made.text}"}, 201)

    @router.get("/addresses")
    async def listing(
        caller: Who,
        all_users: Annotated[bool, Query(description="include those of all users; administrators only")] = False,
    ) -> Response:
        """List addresses that are not revoked, without their secrets."""
        if all_users:
            require_admin(caller, "list all users' addresses")
        owner = None if all_users else caller.user
        caller.reads_of(owner)

        def read() -> Response:  # a thousand take tens of milliseconds to write down
            found = [record for record in tokens.listing(owner=owner) if record.scope.startswith(DOOR_SCOPE)]
            return Json({"addresses": [_document(record, services.now()) for record in found]})

        return await services.read(caller.user, read)

    @router.delete("/addresses/{token}", status_code=204)
    async def revoke(token: str, caller: Who) -> Response:
        """Revoke an address by its id, at once; an administrator may revoke any user's."""
        found = await find_credential(services, caller, token)
        if found is None or not found.scope.startswith(DOOR_SCOPE):
            raise NotFound(f"there is no address {token[:100]!r}; `swell door addresses` lists yours")
        event = caller.did("DoorAddressRevoked", door=_door(found), address=found.id, owner=found.owner)
        await asyncio.wrap_future(tokens.revoke(found.id, event))
        return Response(status_code=204)

    return router


def _door(token: TokenRecord) -> str:
    return token.scope.removeprefix(DOOR_SCOPE)


def _document(token: TokenRecord, now: float) -> dict[str, Any]:
    return {
        "id": token.id,
        "door": _door(token),
        "user": token.owner,
        "created_at": iso(token.created_at),
        "expires_at": iso(token.expires_at),
        "is_expired": now > token.expires_at,
    }
