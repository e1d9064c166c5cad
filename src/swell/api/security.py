"""Who may ask, from where, and how much at once?

Plain ASGI, before anything is parsed. A browser can be made to send requests to loopback by any page (and by DNS
rebinding even read the answers), so Host and Origin are checked on every method, and a token is needed although
we only listen on loopback.
"""

from __future__ import annotations

import hmac
import json
import logging
from dataclasses import replace
from typing import Any

from fastapi import HTTPException

from swell.api.audit import RefusalLog, in_words, shown
from swell.api.box import SCOPE_KEY, Caller, OthersData
from swell.api.connections import PEER, SEAT, Peer
from swell.api.credentials import (
    METRICS_PATH,
    OUR_PATHS,
    WORKER_GROUP_KEY,
    WORKER_KEY,
    Refusal,
    admit,
    is_token,
    worker_group,
    worker_refusal,
)
from swell.api.crowd import ROOT, WorkersAt
from swell.api.members import AmbiguousName
from swell.api.services import Services
from swell.api.turns import CURRENT, Turns
from swell.controller.reporting import TOKEN_PREFIX
from swell.errors import SwellError, TooMany
from swell.model.job import AttemptId
from swell.model.launch import SOCKET_NAME

SUBMISSION_BYTES_MAX = 3 * 1024 * 1024  # a manifest of 1 MiB and an environment of 1 MiB, escaped; read in a thread
BODY_BYTES_MAX = 1024 * 1024  # ten thousand names of jobs; read on the event loop, in about ten milliseconds
OWN_REPORT_BYTES_MAX = 64 * 1024 * 1024  # of our own worker: one of before tells a million tasks' ends at once
WORKER_REPORT_BYTES_MAX = 4 * 1024 * 1024  # of a worker elsewhere, which tells them in portions of a mebibyte
WORKER_FILES_BYTES_MAX = 8 * 1024 * 1024  # logs and files, which come in pieces of 4 MiB and what names them
REPORT_BYTES_MAX = 64 * 1024  # 200 epochs and 50 metrics
CONTAINERS_MAX = 100_000  # lists and objects in a body; a thousand manifests as documents have fewer
WORKER_CONTAINERS_MAX = 250_000  # in a report, whose texts may be all brackets
SUBMISSION_PATH = "/api/v1/jobs"
POOL_SYNC_PATH = "/api/v1/pools/sync"  # a report of 10,000 workers
CHUNKS_PATH = "/api/v1/files/chunks"
ALIVE_PATH = "/healthz"
READY_PATH = "/readyz"
PROBE_PATHS = (ALIVE_PATH, READY_PATH)
OPEN_PATHS = ("/api/v1/health", *PROBE_PATHS)
ADDRESS_PATHS = "/d/"  # the address is the token; doors/entrance.py reads it
WORKER_PATHS = "/api/v1/workers/"
WORKER_SYNC_PATH = f"{WORKER_PATHS}sync"
WORKER_FILES_PATHS = (f"{WORKER_PATHS}logs", f"{WORKER_PATHS}files/")
JOB_PATHS = "/api/v1/attempts/"
SOCKET_HOST = "localhost"  # what the Host header says on the Unix socket, which no browser can reach

log = logging.getLogger(__name__)

Scope = dict[str, Any]
NOTHING_HERE = (404, "NotFound", "there is nothing here")  # whoever has no token learns of no door
CANNOT_REVIEW = (503, "Unavailable", "the cluster cannot be asked whose token this is; try again, or see server.log")


class Guard:
    """Refuses what may not pass; everything else goes on unchanged."""

    def __init__(self, app: Any, services: Services, doors: Any) -> None:
        self._app = app
        self._doors = doors  #: everything outside /api/: the words of other systems
        self._services = services
        schemes = ("http", "https") if services.url.startswith("https:") else ("http",)
        self._origins = {f"{scheme}://{host}" for host in services.hosts for scheme in schemes} | {services.url}
        self._refusals = RefusalLog(log)
        self._turns = Turns()
        self._refusals.tell = services.audit.refused

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        refusal, origin = await self._examine(scope, headers)
        if refusal is not None:
            self._refusals.note(origin, f"{scope['method']} {shown(scope['path'])}: {refusal[2]}")
            await _answer(send, *refusal)
            return
        limit = _body_limit(scope)
        if int(headers.get(b"content-length", "0") or 0) > limit:
            await _answer(send, 413, "TooLarge", too_large(limit))
            return
        noting = self._auditing(scope, self._refusals.noting_climbers(scope, origin, send))
        await self._pass_on(scope, _Bounded(receive, limit, _containers_max(scope)), noting)

    async def _pass_on(self, scope: Scope, receive: Any, send: Any) -> None:
        """When it is the turn of whoever asks; our own worker, a probe and an address (of which the door knows whose it
        is) do not stand in that line."""
        path = scope["path"]
        is_ours = _is_ours(path) or path in PROBE_PATHS
        app = self._app if is_ours else self._doors
        user = self._recognise(scope)  # one of the users, or workers elsewhere
        if user is None:
            CURRENT.set(None)  # what came before on the same connection may have left its own
            await app(scope, receive, send)
            return
        try:
            async with self._turns.one(user):
                await app(scope, receive, send)
        except TooMany as problem:  # before its turn: what an endpoint raises has been answered there
            await _answer(send, 429, "TooMany", str(problem))

    def _recognise(self, scope: Scope) -> str | None:
        """Whose request it is, and so whose connection; None: nobody's."""
        path, services = scope["path"], self._services
        if path in OPEN_PATHS or path.startswith(ADDRESS_PATHS):
            return None
        if path.startswith(WORKER_PATHS):
            return self._recognise_worker(scope)
        user, seat = self._user(scope), scope.get("state", {}).get(SEAT)
        if seat is not None:
            is_root = services.box is not None and user == services.owner
            seat.belongs_to(ROOT if is_root else user, share=services.is_shared)
        return user

    def _recognise_worker(self, scope: Scope) -> str | None:
        """None: it is our own."""
        seat, workers = scope.get("state", {}).get(SEAT), WorkersAt.of(scope)
        if seat is not None:
            seat.belongs_to(workers if scope[WORKER_KEY] else ROOT, share=True)
        return str(workers) if scope[WORKER_KEY] else None

    def _user(self, scope: Scope) -> str:
        if not scope["path"].startswith(JOB_PATHS):
            return str(scope[SCOPE_KEY].user)
        attempt = scope["path"].removeprefix(JOB_PATHS).partition("/")[0]  # the token is for it
        return self._services.controller.owner(AttemptId.parse(attempt).job) or f"the job of attempt {attempt}"

    def _auditing(self, scope: Scope, send: Any) -> Any:
        """In place of `send`: what an administrator read of others, and what somebody known may not do."""
        caller = scope.get(SCOPE_KEY)
        is_address = scope["path"].startswith(ADDRESS_PATHS)  # who uses it is found out later, and is no administrator
        if not self._services.audit.is_on or not isinstance(caller, Caller) or is_address:
            return send
        path = scope["path"]
        reads: list[OthersData] = []
        denied: list[OthersData] = []
        scope[SCOPE_KEY] = replace(caller, reads=reads, denied=denied)

        async def auditing(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                if message["status"] == 403 or denied:
                    said = f"{caller.user!r} may not {scope['method']} {shown(path)}"
                    whose = "".join([f": job {one.job} is of {one.owner!r}" for one in denied[:1]])
                    self._refusals.note(caller.origin, said + whose, caller.user)
                elif message["status"] < 400 and scope["method"] == "GET":
                    for read in reads:
                        self._services.audit.read(caller.user, caller.origin, in_words(path, read))
            await send(message)

        return auditing

    async def _examine(self, scope: Scope, headers: dict[bytes, str]) -> tuple[Refusal | None, str]:
        """Why it may not pass, and from where it came; who passes is in the scope afterwards."""
        is_jobs_socket = _is_jobs_socket(scope)
        peer: Peer | None = None if is_jobs_socket else scope.get("state", {}).get(PEER)
        named = None if self._services.box is None else peer  # a private server asks for its token there, too
        origin = _origin(scope, peer)
        if is_jobs_socket:
            return self._jobs_socket_refusal(scope, headers), origin
        refusal = self._site_refusal(scope["path"], headers, peer)
        if refusal is not None:
            return refusal, origin
        token = _bearer(headers)
        if named is None and is_token(token) and _is_for_people(scope["path"], but_for=ADDRESS_PATHS):
            return await self._token_holder(scope, token, origin), origin
        try:
            member = await self._member(scope["path"], headers, named, origin)
        except AmbiguousName as refusal_of_name:
            return (403, "Denied", str(refusal_of_name)), origin
        except SwellError as problem:
            self._refusals.note(origin, f"the owner of this token cannot be determined: {problem}")
            return CANNOT_REVIEW, origin
        if member is None:
            refusal = self._entry_refusal(scope["path"], headers, named)
        if refusal is None and scope["path"].startswith(WORKER_PATHS):
            scope[WORKER_KEY] = is_token(token)
            scope[WORKER_GROUP_KEY] = worker_group(self._services, token) if is_token(token) else ""
        if refusal is None and _is_for_people(scope["path"]):
            scope[SCOPE_KEY] = member or await self._caller(named, origin)
            refusal = _unknown(named) if scope[SCOPE_KEY] is None else None
        return refusal, origin

    def _jobs_socket_refusal(self, scope: Scope, headers: dict[bytes, str]) -> Refusal | None:
        """No browser gets there, so any Host will do; a job's token, and nothing else, opens it."""
        if not scope["path"].startswith(JOB_PATHS):
            return 403, "Denied", "this socket is only for the reports of jobs"
        return self._token_refusal(scope["path"], headers.get(b"authorization", ""))

    async def _token_holder(self, scope: Scope, token: str, origin: str) -> Refusal | None:
        """One of those that users make (credentials.py)."""
        method, path = scope["method"], scope["path"]
        found = await admit(self._services, token, method=method, path=path, origin=origin)
        if isinstance(found, Caller):
            scope[SCOPE_KEY] = found
            return None
        return found if _is_ours(path) else NOTHING_HERE

    async def _caller(self, peer: Peer | None, origin: str) -> Caller | None:
        """None: the kernel names a process whose user nobody here knows."""
        box, members = self._services.box, self._services.members
        if members is not None:
            return members.administrator(origin)
        if box is None:
            return Caller(self._services.owner, is_admin=True, origin=origin)
        uid = 0 if peer is None else peer.uid  # over TCP it has shown root's token, or one that opens less
        identities = self._services.pools.identities
        return box.known(uid, origin) or await identities.run(str(uid), lambda: box.find(uid, origin))

    async def _member(self, path: str, headers: dict[bytes, str], peer: Peer | None, origin: str) -> Caller | None:
        """Somebody of the cluster; None: it is for others to say who this is, and whether they may pass."""
        members = self._services.members
        token = _bearer(headers)
        if members is None or peer is not None or not token or not _is_for_people(path):
            return None
        own = (self._services.token, self._services.worker_token)
        if path.startswith(ADDRESS_PATHS) or token.startswith(TOKEN_PREFIX + ".") or _is_one_of(token, own):
            return None
        return await members.caller(token, origin)

    def _site_refusal(self, path: str, headers: dict[bytes, str], peer: Peer | None) -> Refusal | None:
        """A page of another site, or one that has made its own name point at us."""
        host, origin = headers.get(b"host", ""), headers.get(b"origin")
        hosts = self._services.hosts if peer is None else {SOCKET_HOST}
        if host not in hosts and path not in PROBE_PATHS:
            good = ", ".join(sorted(hosts))
            return 403, "Denied", f"this server does not answer to the Host {host!r}; use one of: {good}"
        if origin is not None and (peer is not None or origin not in self._origins):
            return (
                403,
                "Denied",
                f"requests from pages of {origin!r} are refused; this API does not serve other sites",
            )
        return None

    def _entry_refusal(self, path: str, headers: dict[bytes, str], peer: Peer | None) -> Refusal | None:
        is_address = path.startswith(ADDRESS_PATHS)
        if path in OPEN_PATHS or is_address or (peer is not None and _is_for_people(path)):
            return None  # on the socket the kernel says who it is
        refusal = self._token_refusal(path, headers.get(b"authorization", ""))
        return NOTHING_HERE if refusal is not None and not _is_ours(path) else refusal

    def _token_refusal(self, path: str, authorization: str) -> Refusal | None:
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
            return 403, "Denied", "this token does not allow this request: workers' and users' tokens differ"
        if token.startswith(TOKEN_PREFIX + "."):
            return 403, "Denied", "this token belongs to a job: it can only report on its own attempt"
        if is_token(token):
            if is_worker:
                return worker_refusal(self._services, token)
            return 403, "Denied", "this token belongs to a user, but this endpoint is only for workers"
        if self._services.members is not None:
            return 401, "Denied", "the cluster does not know whose this token is; make a new one: kubectl create token"
        return (
            401,
            "Denied",
            (
                "the token is not this server's: it is stale or belongs to another state folder; "
                "read the token file again, or check --state"
            ),
        )

    def _job_refusal(self, path: str, token: str) -> Refusal | None:
        if not token:
            return 401, "Denied", "a job's token is needed: send 'Authorization: Bearer $SWELL_TOKEN'"
        if is_token(token) or _is_one_of(token, (self._services.token, self._services.worker_token)):
            return 403, "Denied", "this token does not allow this request: only a job reports on its attempts"
        attempt = self._services.job_secrets.read(token, self._services.now())
        if attempt is None:
            return (
                401,
                "Denied",
                "the token is not one of this server's jobs, or has expired; send $SWELL_TOKEN as it is",
            )
        if path.removeprefix(JOB_PATHS).partition("/")[0] != str(attempt):
            return 403, "Denied", f"this token is only for attempt {attempt}"
        return None


def _bearer(headers: dict[bytes, str]) -> str:
    scheme, _, token = headers.get(b"authorization", "").partition(" ")
    return token if scheme.lower() == "bearer" else ""


def _is_one_of(token: str, known: tuple[str, ...]) -> bool:
    return any(hmac.compare_digest(token.encode(), one.encode()) for one in known)


def _is_jobs_socket(scope: Scope) -> bool:
    """Of a Unix socket the server's address is its path."""
    return str((scope.get("server") or ("",))[0]).endswith(f"/{SOCKET_NAME}")


def _is_ours(path: str) -> bool:
    return path.startswith(OUR_PATHS) or path == METRICS_PATH


def _is_for_people(path: str, *, but_for: str = JOB_PATHS) -> bool:
    return path not in OPEN_PATHS and not path.startswith((JOB_PATHS, WORKER_PATHS, but_for))


def _origin(scope: Scope, peer: Peer | None) -> str:
    if peer is not None:
        return str(peer)
    return ":".join(map(str, scope["client"])) if scope.get("client") else ""


def _unknown(peer: Peer | None) -> Refusal:
    uid = "" if peer is None else f" {peer.uid}"
    return 403, "Denied", f"the user id{uid} has no account on this machine; its administrator can make one"


def _body_limit(scope: Scope) -> int:
    path = scope["path"]
    if path.startswith(JOB_PATHS):
        return REPORT_BYTES_MAX
    if path in (SUBMISSION_PATH, POOL_SYNC_PATH):
        return SUBMISSION_BYTES_MAX
    if path == WORKER_SYNC_PATH:
        return WORKER_REPORT_BYTES_MAX if scope[WORKER_KEY] else OWN_REPORT_BYTES_MAX
    return WORKER_FILES_BYTES_MAX if path.startswith(WORKER_FILES_PATHS) else BODY_BYTES_MAX


def _containers_max(scope: Scope) -> int | None:
    """None: it is not JSON, or our own worker's."""
    path = scope["path"]
    if path.startswith(WORKER_FILES_PATHS) or path == CHUNKS_PATH:
        return None
    if path == WORKER_SYNC_PATH:
        return WORKER_CONTAINERS_MAX if scope[WORKER_KEY] else None
    return CONTAINERS_MAX


class _Bounded:
    """Counts a body that did not say its length, and what it would become.

    JSON is read by one call, during which nothing else runs: of a mebibyte of `[],` it makes 350,000 lists.
    """

    def __init__(self, receive: Any, limit: int, containers: int | None) -> None:
        self._receive = receive
        self._limit = self._left = limit
        self._containers = self._containers_left = containers

    async def __call__(self) -> Any:
        message = await self._receive()
        body = message.get("body", b"")
        self._left -= len(body)
        if self._left < 0:
            raise HTTPException(413, too_large(self._limit))
        if self._containers_left is not None:
            self._containers_left -= containers_in(body)
            if self._containers_left < 0:
                raise HTTPException(413, f"the request has more than {self._containers} lists and objects; send fewer")
        return message


def containers_in(body: bytes) -> int:
    """How many lists and objects JSON would become, at most: some brackets may stand in texts."""
    return body.count(b"[") + body.count(b"{")


def too_large(limit: int) -> str:
    return f"the request has more than {limit} bytes; send less at once"


async def _answer(send: Any, status: int, kind: str, message: str) -> None:
    body = json.dumps({"error": {"kind": kind, "message": message}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
