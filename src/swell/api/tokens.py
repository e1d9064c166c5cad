"""Endpoints for tokens: make one, list them, revoke one; and replace the secret that those of jobs are made with."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field

from swell.api.caller import Caller, Who, require_admin
from swell.api.credentials import DOOR_SCOPE, TOKEN, Scope, make_credential
from swell.api.documents import iso
from swell.api.services import Services
from swell.api.wire import ERRORS, Json, Strict
from swell.errors import Denied, NotFound
from swell.store import Changes, TokenRecord

LASTS_S_DEFAULT = 90 * 86400.0
LASTS_S_MAX = 366 * 86400.0  # one that is forgotten must end by itself
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"


class Creation(Strict):
    name: str = Field(pattern=NAME, description="what it is for; letters, digits, '.', '_' and '-'")
    scope: Literal["read", "submit", "admin"] = Field(default="read", description="what it opens")
    lasts_s: float = Field(default=LASTS_S_DEFAULT, gt=0, le=LASTS_S_MAX, allow_inf_nan=False)


def tokens_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/api/v1/tokens", tags=["tokens"], responses=ERRORS)
    tokens = services.store.tokens

    @router.post("", status_code=201)
    async def create(body: Creation, caller: Who) -> Response:
        """Make a token that acts in the caller's name. This answer has its secret, and nothing else ever has."""
        if Scope(body.scope) is Scope.ADMIN:
            _refuse_admin_scope(caller)
        now = services.now()
        made = make_credential(TOKEN, caller, name=body.name, scope=body.scope, now=now, expires_at=now + body.lasts_s)
        about = _document(made.record, now)
        detail: dict[str, Any] = {name: about[name] for name in ("name", "scope", "expires_at")}
        event = caller.did("TokenCreated", token=made.record.id, **detail)
        await asyncio.wrap_future(tokens.create(made.record, event))
        return Json({**about, "token": made.text}, 201)

    @router.get("")
    async def listing(
        caller: Who, all_users: Annotated[bool, Query(description="everybody's; for administrators")] = False
    ) -> Response:
        """Never with a secret: of that only a hash is kept."""
        if all_users:
            require_admin(caller, "list everybody's tokens")
        owner = None if all_users else caller.user
        found = await services.read(caller.user, lambda: tokens.listing(owner=owner))
        shown = [_document(record, services.now()) for record in found if not record.scope.startswith(DOOR_SCOPE)]
        return Json({"tokens": shown})

    @router.delete("/{token}", status_code=204)
    async def revoke(token: str, caller: Who) -> Response:
        """By name, or by id; an administrator may revoke everybody's by id. It counts at once."""
        found = find_credential(services, caller, token)
        if found is None or found.scope.startswith(DOOR_SCOPE):
            raise NotFound(f"there is no token {token[:100]!r}; `swell token list` lists yours")
        await asyncio.wrap_future(
            tokens.revoke(found.id, caller.did("TokenRevoked", token=found.id, name=found.name, owner=found.owner))
        )
        return Response(status_code=204)

    return router


def job_secret_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/api/v1/job-secret", tags=["tokens"], responses=ERRORS)

    @router.post("/rotate", status_code=200)
    async def rotate(caller: Who) -> Response:
        """Make the tokens of jobs with a new secret. Attempts that run keep theirs until they end."""
        require_admin(caller, "replace the secret that the tokens of jobs are made with")
        await asyncio.wrap_future(services.store.record(Changes(events=[caller.did("JobSecretRotated")])))
        await asyncio.to_thread(services.job_secrets.rotate, services.now())
        return Json({"running_attempts": len(services.store.open_attempts())})

    return router


def find_credential(services: Services, caller: Caller, ref: str) -> TokenRecord | None:
    """One's own by name or id; to an administrator, anybody's by id. None: there is none, or none for the caller."""
    found = services.store.tokens.named(caller.user, ref) or services.store.tokens.find(ref)
    return found if found is not None and caller.may_touch(found.owner) else None


def _refuse_admin_scope(caller: Caller) -> None:
    require_admin(caller, "make a token with the scope admin")
    if caller.identity is not None:
        raise Denied(
            "a token with the scope admin is for who has the server's own token; the rights of a cluster's user come "
            "from the cluster, each time: use your own token of it"
        )


def _document(token: TokenRecord, now: float) -> dict[str, Any]:
    return {
        "id": token.id,
        "name": token.name,
        "user": token.owner,
        "scope": token.scope,
        "created_at": iso(token.created_at),
        "expires_at": iso(token.expires_at),
        "is_expired": now > token.expires_at,
    }
