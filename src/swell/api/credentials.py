"""Who is let in with a token that a user has made, and to what?

A token is `swt.<id>.<secret>`, the address of a door ends in `swd.<id>.<secret>`. The store has the hash of the secret,
so a stolen copy of the database opens nothing. The row is read each time: what is revoked is refused from then on.
What a token opens is decided here, before any endpoint is reached, and what is not listed needs the most.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, replace
from enum import StrEnum

from swell.api.box import Box, Caller
from swell.api.documents import iso
from swell.api.services import Services
from swell.store import TokenRecord

TOKEN, ADDRESS = "swt", "swd"  # what they begin with
DOOR_SCOPE = "door:"  # and the door's name
ID_BYTES, SECRET_BYTES = 5, 32
SHAPE = re.compile(r"(swt|swd)\.([0-9a-f]{10})\.([A-Za-z0-9_-]{43})")
OUR_PATHS = "/api/"
METRICS_PATH = "/metrics"
MANAGING = ("/api/v1/tokens", "/api/v1/doors", "/api/v1/server", "/api/v1/job-secret")  # to change these: admin
MAKING = {("POST", "/api/v1/tokens"), ("POST", "/api/v1/doors/address")}  # whoever has a token makes no other from it

WORKER_KEY = "swell.worker"  # in a request's scope: does it come from a worker elsewhere?
WORKER_GROUP_KEY = "swell.worker-group"  # in a request's scope: the group that such a worker's token is for
Refusal = tuple[int, str, str]  #: status, kind, message


class Scope(StrEnum):
    """Each opens what those before it open, too."""

    READ = "read"  #: one's own jobs, their logs and events, the queue, nodes, usage
    SUBMIT = "submit"  #: and submit, cancel, change and delete one's own jobs, also through doors
    ADMIN = "admin"  #: and all that an administrator may, but for making tokens


ORDER = list(Scope)
WORKER_SCOPE = "worker"  # opens what workers ask for, and nothing else
POOL_SCOPE = "pool"  # opens what pools ask for, and nothing else
POOL_PATHS = frozenset({"/api/v1/pools/sync", "/api/v1/pools/worker-token"})


def worker_refusal(services: Services, text: str) -> Refusal | None:
    """None: a worker may come with this token."""
    found = find_by_text(services, TOKEN, text)
    if found is None:
        return (
            401,
            "Denied",
            "this token does not belong to this server, or it has been revoked; see `swell token list`",
        )
    if services.now() > found.expires_at:
        remedy = "make another: swell token create NAME --scope worker"
        return 401, "Denied", f"the token {found.name!r} expired at {iso(found.expires_at)}; {remedy}"
    if not is_worker_scope(found.scope):
        return 403, "Denied", f"the token {found.name!r} has the scope {found.scope}, and a worker needs {WORKER_SCOPE}"
    return None


def is_worker_scope(scope: str) -> bool:
    """`worker`, or `worker:GROUP`."""
    return scope.partition(":")[0] == WORKER_SCOPE


def worker_group(services: Services, text: str) -> str:
    """For whose jobs the workers with this token are; empty: everybody's."""
    found = find_by_text(services, TOKEN, text)
    return "" if found is None else found.scope.partition(":")[2]


@dataclass(frozen=True, slots=True)
class Made:
    """A new token. Its text is shown once and stored nowhere."""

    text: str
    record: TokenRecord


def make_credential(
    kind: str, caller: Caller, *, scope: str, now: float, expires_at: float, name: str | None = None
) -> Made:
    """Without a name it is called by its id."""
    token_id, secret = secrets.token_hex(ID_BYTES), secrets.token_urlsafe(SECRET_BYTES)
    record = TokenRecord(token_id, name or token_id, caller.user, caller.uid, scope, now, expires_at, _digest(secret))
    return Made(f"{kind}.{token_id}.{secret}", record)


def find_by_text(services: Services, kind: str, text: str) -> TokenRecord | None:
    """None: forged, or revoked. It may have expired."""
    parts = SHAPE.fullmatch(text)
    if parts is None or parts[1] != kind:
        return None
    found = services.store.tokens.find(parts[2])
    if found is None or not hmac.compare_digest(found.digest, _digest(parts[3])):
        return None
    return found if found.scope.startswith(DOOR_SCOPE) == (kind == ADDRESS) else None


def is_token(text: str) -> bool:
    return text.startswith(f"{TOKEN}.")


async def admit(services: Services, text: str, *, method: str, path: str, origin: str) -> Caller | Refusal:
    """Who has this token, if it opens what they ask for."""
    found = find_by_text(services, TOKEN, text)
    if found is None:
        return (
            401,
            "Denied",
            "this token does not belong to this server, or it has been revoked; see `swell token list`",
        )
    if services.now() > found.expires_at:
        expired = f"the token {found.name!r} expired at {iso(found.expires_at)}"
        return 401, "Denied", f"{expired}; make another: swell token create NAME"
    if is_worker_scope(found.scope):
        return 403, "Denied", f"the token {found.name!r} is for workers: it opens what they ask for, and nothing else"
    if found.scope == POOL_SCOPE:
        return _pool(found, path, origin)
    wanted = needed_scope(method, path)
    if wanted is None:
        return (
            403,
            "Denied",
            "a token cannot make other tokens or addresses; run the command on the server's machine as yourself",
        )
    if ORDER.index(Scope(found.scope)) < ORDER.index(wanted):
        return _too_little(found, wanted)
    caller = await _holder(services, found, f"{origin} token {found.name}")
    if caller is None:
        return 403, "Denied", f"{found.owner!r}, who made the token {found.name!r}, is no longer a user here"
    return caller


def needed_scope(method: str, path: str) -> Scope | None:
    """None: no token is enough. Endpoints for administrators look at who it is by themselves."""
    if (method, path.rstrip("/")) in MAKING:
        return None
    is_ours = path.startswith(OUR_PATHS) or path == METRICS_PATH
    if is_ours and method in ("GET", "HEAD"):
        return Scope.READ
    return Scope.ADMIN if path.startswith(MANAGING) else Scope.SUBMIT


def _pool(found: TokenRecord, path: str, origin: str) -> Caller | Refusal:
    """A pool: nobody's jobs are its own, and it may do what pools do."""
    if path not in POOL_PATHS:
        return 403, "Denied", f"the token {found.name!r} is for a pool: it opens what pools ask for, and nothing else"
    about = f"the token {found.name!r} has the scope {found.scope}"
    return Caller(found.owner, False, f"{origin} token {found.name}", found.owner, token=about, is_pool=True)


def _too_little(token: TokenRecord, wanted: Scope) -> Refusal:
    has = f"the token {token.name!r} has the scope {token.scope}, and this needs {wanted}"
    return 403, "Denied", f"{has}; make a token with that scope: swell token create NAME --scope {wanted}"


async def _holder(services: Services, token: TokenRecord, origin: str) -> Caller | None:
    """With the rights that its owner has now, and no more than its scope says. None: the owner is gone."""
    is_admin = token.scope == Scope.ADMIN
    too_little = "" if is_admin else f"the token {token.name!r} has the scope {token.scope}"
    if services.box is not None:
        found = await _account(services, services.box, token.uid, origin)
        if found is None or found.user != token.owner:
            return None  # the account is gone, or its number belongs to somebody else
        return replace(found, is_admin=found.is_admin and is_admin, token=too_little if found.is_admin else "")
    if token.owner != services.owner:
        return services.acting_for(token.owner, origin)
    if services.members is not None:
        return replace(services.members.administrator(origin), is_admin=is_admin, token=too_little)
    own = None if is_admin else token.owner
    return Caller(token.owner, is_admin, origin, own=own, token=too_little)


async def _account(services: Services, box: Box, uid: int | None, origin: str) -> Caller | None:
    if uid is None:
        return None
    identities = services.pools.identities
    return box.known(uid, origin) or await identities.run(str(uid), lambda: box.find(uid, origin))


def _digest(secret: str) -> str:
    """Not a slow one: 256 random bits cannot be guessed, however fast the hash is."""
    return hashlib.sha256(secret.encode()).hexdigest()
