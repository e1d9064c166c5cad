"""Who may ask, from where, and how much at once?

Plain ASGI, before anything is parsed. A browser can be made to send requests to loopback by any page (and by DNS
rebinding even read the answers), so Host and Origin are checked on every method, and a token is needed although
we only listen on loopback.
"""

from __future__ import annotations

import hmac
import json
from typing import Any

from fastapi import HTTPException

from swell.api.caller import SCOPE_KEY, Caller
from swell.api.services import Services
from swell.controller.reporting import TOKEN_PREFIX, read_token

BODY_BYTES_MAX = 4 * 1024 * 1024  # a manifest of 1 MiB, escaped, and an environment
WORKER_BODY_BYTES_MAX = 64 * 1024 * 1024  # a report of a million tasks' ends
REPORT_BYTES_MAX = 64 * 1024  # 200 epochs and 50 metrics
OUR_PATHS = "/api/"
OPEN_PATHS = ("/api/v1/health",)
ADDRESS_PATHS = "/d/"  # the address is the token; doors/entrance.py reads it
WORKER_PATHS = "/api/v1/workers/"
JOB_PATHS = "/api/v1/attempts/"

Scope = dict[str, Any]


class Guard:
    """Refuses what may not pass; everything else goes on unchanged."""

    def __init__(self, app: Any, services: Services, doors: Any) -> None:
        self._app = app
        self._doors = doors  #: everything outside /api/: the words of other systems
        self._services = services
        self._origins = {f"http://{host}" for host in services.hosts}

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        refusal = self._refusal(scope["path"], headers)
        is_ours = scope["path"].startswith(OUR_PATHS)
        if refusal is not None:
            await _answer(send, *refusal)
            return
        limit = _body_limit(scope["path"])
        if int(headers.get(b"content-length", "0") or 0) > limit:
            await _answer(send, 413, "TooLarge", too_large(limit))
            return
        scope[SCOPE_KEY] = Caller(self._services.owner, is_admin=True, origin=_origin(scope))
        await (self._app if is_ours else self._doors)(scope, _Bounded(receive, limit), send)

    def _refusal(self, path: str, headers: dict[bytes, str]) -> tuple[int, str, str] | None:
        host, origin = headers.get(b"host", ""), headers.get(b"origin")
        if host not in self._services.hosts:
            good = ", ".join(sorted(self._services.hosts))
            return 403, "Denied", f"this server does not answer to the Host {host!r}; use one of: {good}"
        if origin is not None and origin not in self._origins:
            return (
                403,
                "Denied",
                f"requests from pages of {origin!r} are refused; this API is not for other sites",
            )
        if path in OPEN_PATHS or path.startswith(ADDRESS_PATHS):
            return None
        refusal = self._token_refusal(path, headers.get(b"authorization", ""))
        if refusal is not None and not path.startswith(OUR_PATHS):
            return 404, "NotFound", "there is nothing here"  # whoever has no token learns of no door
        return refusal

    def _token_refusal(self, path: str, authorization: str) -> tuple[int, str, str] | None:
        scheme, _, token = authorization.partition(" ")
        if path.startswith(JOB_PATHS):
            return self._job_refusal(path, token if scheme.lower() == "bearer" else "")
        is_worker = path.startswith(WORKER_PATHS)
        wanted, other = self._services.token, self._services.worker_token
        if is_worker:
            wanted, other = other, wanted
        if scheme.lower() != "bearer" or not token:
            return (
                401,
                "Denied",
                "a token is needed: send 'Authorization: Bearer …' with the one in the state folder",
            )
        if hmac.compare_digest(token.encode(), wanted.encode()):
            return None
        if hmac.compare_digest(token.encode(), other.encode()):
            return 403, "Denied", "this token is not for that: workers' and users' tokens are kept apart"
        if token.startswith(TOKEN_PREFIX + "."):
            return 403, "Denied", "this token is a job's: it can report on its own attempt, and nothing else"
        return (
            401,
            "Denied",
            (
                "the token is not this server's: it is stale or belongs to another state folder; "
                "read the token file again, or check --state"
            ),
        )

    def _job_refusal(self, path: str, token: str) -> tuple[int, str, str] | None:
        if not token:
            return 401, "Denied", "a job's token is needed: send 'Authorization: Bearer $SWELL_TOKEN'"
        others = (self._services.token, self._services.worker_token)
        if any(hmac.compare_digest(token.encode(), other.encode()) for other in others):
            return 403, "Denied", "this token is not for that: only a job reports on its attempts"
        attempt = read_token(self._services.job_secret, token, self._services.now())
        if attempt is None:
            return (
                401,
                "Denied",
                "the token is not one of this server's jobs, or has expired; send $SWELL_TOKEN as it is",
            )
        if path.removeprefix(JOB_PATHS).partition("/")[0] != str(attempt):
            return 403, "Denied", f"this token is for attempt {attempt} and no other"
        return None


def _origin(scope: Scope) -> str:
    return str(scope["client"][0]) if scope.get("client") else ""


def _body_limit(path: str) -> int:
    if path.startswith(JOB_PATHS):
        return REPORT_BYTES_MAX
    return WORKER_BODY_BYTES_MAX if path.startswith(WORKER_PATHS) else BODY_BYTES_MAX


class _Bounded:
    """Counts a body that did not say its length."""

    def __init__(self, receive: Any, limit: int) -> None:
        self._receive = receive
        self._limit = self._left = limit

    async def __call__(self) -> Any:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise HTTPException(413, too_large(self._limit))
        return message


def too_large(limit: int) -> str:
    return f"the request has more than {limit} bytes; send less at once"


async def _answer(send: Any, status: int, kind: str, message: str) -> None:
    body = json.dumps({"error": {"kind": kind, "message": message}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
