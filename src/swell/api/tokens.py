"""Endpoints for tokens: make one, list them, revoke one; and replace the secret that those of jobs are made with."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field

from swell.api.box import Caller, Who, require_admin
from swell.api.credentials import DOOR_SCOPE, POOL_SCOPE, TOKEN, WORKER_SCOPE, Scope, make_credential
from swell.api.documents import iso
from swell.api.invalid import PLAIN_NAME
from swell.api.services import Services
from swell.api.wire import ERRORS, Json, Strict
from swell.errors import Denied, NotFound, Rejected
from swell.model.launch import TAG
from swell.store import Changes, TokenRecord

LASTS_S_DEFAULT = 90 * 86400.0
LASTS_S_MAX = 366 * 86400.0  # one that is forgotten must end by itself


class Creation(Strict):
    name: str = Field(pattern=PLAIN_NAME, description="name of the token: letters, digits, '.', '_' and '-'")
    scope: Literal["read", "submit", "admin", "worker", "pool"] = Field(
        default="read", description="scope of the token"
    )
    group: str = Field(
        default="",
        pattern=rf"^(?:{TAG.pattern})?$",
        description="group of a worker's token: the worker runs jobs of its users",
    )
    lasts_s: float = Field(default=LASTS_S_DEFAULT, gt=0, le=LASTS_S_MAX, allow_inf_nan=False)


def tokens_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/api/v1/tokens", tags=["tokens"], responses=ERRORS)
    tokens = services.store.tokens

    @router.post("", status_code=201)
    async def create(body: Creation, caller: Who) -> Response:
        """Make a token that acts as the caller. Only this answer contains its secret."""
        if body.scope == str(Scope.ADMIN):
            _refuse_admin_scope(caller)
        if body.scope == WORKER_SCOPE:
            require_admin(caller, "make a token with the scope worker, whose holder runs all users' jobs")
        if body.scope == POOL_SCOPE:
            require_admin(caller, "make a token with the scope pool, whose holder starts workers")
        scope = _scope_of(services, body)
        now = services.now()
        made = make_credential(TOKEN, caller, name=body.name, scope=scope, now=now, expires_at=now + body.lasts_s)
        about = _document(made.record, now)
        detail: dict[str, Any] = {name: about[name] for name in ("name", "scope", "expires_at")}
        event = caller.did("TokenCreated", token=made.record.id, **detail)
        await asyncio.wrap_future(tokens.create(made.record, event))
        return Json({**about, "token": made.text}, 201)

    @router.get("")
    async def listing(
        caller: Who,
        all_users: Annotated[bool, Query(description="include those of all users; administrators only")] = False,
    ) -> Response:
        """List tokens, without secrets. Only hashes are stored."""
        if all_users:
            require_admin(caller, "list all users' tokens")
        owner = None if all_users else caller.user
        caller.reads_of(owner)

        def read() -> Response:  # a thousand take tens of milliseconds to write down
            found = [record for record in tokens.listing(owner=owner) if not record.scope.startswith(DOOR_SCOPE)]
            return Json({"tokens": [_document(record, services.now()) for record in found]})

        return await services.read(caller.user, read)

    @router.delete("/{token}", status_code=204)
    async def revoke(token: str, caller: Who) -> Response:
        """Revoke a token by name or id, at once; an administrator may revoke any user's by id."""
        found = await find_credential(services, caller, token)
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
        """Replace the secret that signs job tokens. Running attempts keep their tokens until they end."""
        require_admin(caller, "replace the secret that the tokens of jobs are made with")
        await asyncio.wrap_future(services.store.record(Changes(events=[caller.did("JobSecretRotated")])))
        await asyncio.to_thread(services.job_secrets.rotate, services.now())
        return Json({"running_attempts": len(services.store.open_attempts())})

    return router


async def find_credential(services: Services, caller: Caller, ref: str) -> TokenRecord | None:
    """One's own by name or id; to an administrator, anybody's by id. None: there is none, or none for the caller."""
    tokens = services.store.tokens
    found = await services.read(caller.user, lambda: tokens.named(caller.user, ref) or tokens.find(ref))
    return found if found is not None and caller.may_touch(found.owner) else None


def _scope_of(services: Services, body: Creation) -> str:
    if not body.group:
        return body.scope
    if body.scope != WORKER_SCOPE:
        raise Rejected(f"a token of the scope {body.scope} has no group; only workers are for one (--scope worker)")
    known = services.config.groups
    if body.group not in known:
        there = f"there are: {', '.join(sorted(known))}" if known else "config.json names none"
        raise Rejected(f"there is no group {body.group!r}; {there}")
    return f"{WORKER_SCOPE}:{body.group}"


def _refuse_admin_scope(caller: Caller) -> None:
    require_admin(caller, "make a token with the scope admin")
    if caller.identity is not None:
        raise Denied(
            "only the holder of the server's own token can make a token with the scope admin; the rights of a "
            "cluster's user come from the cluster: use your own Kubernetes token"
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
