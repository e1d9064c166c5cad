"""How does somebody get in, and in whose name?

On the main port with a user's token, or under `/d/<token>/…`, an address that is a token; on a port of its own that an
admin has opened. Without any of them nothing is there: 404. Tokens in addresses are cut off before anything
else sees the path, so that none ends up in a log.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from swell.api.audit import RefusalLog
from swell.api.box import SCOPE_KEY as CALLER_KEY
from swell.api.connections import SEAT
from swell.api.credentials import ADDRESS, DOOR_SCOPE, find_by_text
from swell.api.doors.genai import genai_router
from swell.api.doors.kubeprofiler import kubeprofiler_router
from swell.api.doors.visitor import SCOPE_KEY, Visitor
from swell.api.doors.wire import door_app
from swell.api.services import Services
from swell.api.turns import Turns
from swell.api.wire import Json
from swell.errors import NotFound, TooMany
from swell.store import DoorRecord

CAPABILITY = "/d/"
NOBODY = Json({"error": {"kind": "NotFound", "message": "there is nothing here"}}, 404)
SAY_S = 1.0  # refusals are logged at most this often: whoever guesses must not fill the disk

Scope = dict[str, Any]

log = logging.getLogger(__name__)


class Doors:
    """All doors on the main port, for those whom the guard has let in or who bring an address."""

    def __init__(self, services: Services) -> None:
        self._services = services
        routers = {"genai": genai_router(services), "kubeprofiler": kubeprofiler_router(services)}
        self.rooms = {name: door_app([router]) for name, router in routers.items()}
        self._all = door_app(list(routers.values()))
        self._turns = Turns()
        self._refused, self._said_at = 0, 0.0
        self._refusals = RefusalLog(log)  #: of the opened ports, all together
        self._refusals.tell = services.audit.refused

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if not scope["path"].startswith(CAPABILITY):
            await self._all({**scope, SCOPE_KEY: Visitor(scope[CALLER_KEY])}, receive, send)
            return
        token, _, rest = scope["path"].removeprefix(CAPABILITY).partition("/")
        entered = self._by_job(token) or self._by_user(token)
        if entered is None:
            self._note_refusal(scope)
            await NOBODY(scope, receive, send)
            return
        room, visitor = entered
        path = f"/{rest}"
        inside = {**scope, "path": path, "raw_path": path.encode(), SCOPE_KEY: visitor, CALLER_KEY: visitor.caller}
        seat = scope.get("state", {}).get(SEAT)
        if seat is not None:
            seat.belongs_to(visitor.caller.user, share=self._services.is_shared)
        await _in_turn(self._turns, visitor, room, inside, receive, send)

    def listener(self, door: DoorRecord, hosts: Sequence[str]) -> Any:
        """What an opened port serves: one door, in the name of whoever opened it, without an admin's rights."""
        return Listener(self.rooms[door.name], door, hosts, self._services, self._refusals)

    def _by_job(self, token: str) -> tuple[Any, Visitor] | None:
        attempt = self._services.job_secrets.read(token, self._services.now())
        if attempt is None:
            return None
        try:
            job = self._services.store.job(attempt.job)
        except NotFound:
            return None
        if job.state.has_ended or job.attempts != attempt.number:
            return None  # it dies with its attempt
        caller = self._services.acting_for(job.owner, f"job {job.id}")
        return None if caller is None else (self._all, Visitor(caller, attempt))

    def _by_user(self, token: str) -> tuple[Any, Visitor] | None:
        found = find_by_text(self._services, ADDRESS, token)
        if found is None or self._services.now() > found.expires_at:
            return None
        door = found.scope.removeprefix(DOOR_SCOPE)
        caller = self._services.acting_for(found.owner, f"address {found.id} of door {door}")
        if caller is None or caller.uid != found.uid or door not in self.rooms:
            return None  # the account is gone, or its name belongs to somebody else
        return self.rooms[door], Visitor(caller)

    def _note_refusal(self, scope: Scope) -> None:
        self._refused += 1
        now = time.monotonic()
        if now - self._said_at > SAY_S:
            log.warning(
                "refused %d requests under addresses that are forged or over, last: %s", self._refused, _from(scope)
            )
            self._services.audit.refused(_from(scope), f"{self._refused} requests under addresses that are no good")
            self._refused, self._said_at = 0, now


class Listener:
    """A port without a token. A browser can be made to send requests to it by any page, so Host and Origin count."""

    def __init__(
        self, room: Any, door: DoorRecord, hosts: Sequence[str], services: Services, refusals: RefusalLog
    ) -> None:
        self._room = room
        self._hosts = {f"{name}:{door.port}" for name in ("127.0.0.1", "localhost", *hosts)}
        self._origins = {None, *(f"http://{host}" for host in self._hosts)}  #: None: no page sent it
        self._services = services
        self._refusals = refusals
        self._turns = Turns()
        self._owner, self._origin = door.owner, f"door {door.name} on port {door.port}"

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host, origin = headers.get(b"host", ""), headers.get(b"origin")
        caller = self._services.acting_for(self._owner, self._origin)
        if host not in self._hosts or origin not in self._origins:
            said = f"this port answers to {' and '.join(sorted(self._hosts))} only, and not to pages of other sites"
        elif caller is None:
            said = f"{self._owner}, who opened this port, is no longer a user here"
        else:
            noting = self._refusals.noting_climbers(scope, _from(scope), send)
            visitor = Visitor(caller)
            inside = {**scope, SCOPE_KEY: visitor, CALLER_KEY: caller}
            await _in_turn(self._turns, visitor, self._room, inside, receive, noting)
            return
        self._refusals.note(_from(scope), f"{self._origin}: Host {host!r}, Origin {origin!r}: {said}")
        await Json({"error": said}, 403)(scope, receive, send)


async def _in_turn(turns: Turns, visitor: Visitor, room: Any, scope: Scope, receive: Any, send: Any) -> None:
    """A door's requests are those of who comes through it."""
    try:
        async with turns.one(visitor.caller.user):
            await room(scope, receive, send)
    except TooMany as problem:
        await Json({"error": str(problem)}, 429)(scope, receive, send)


def _from(scope: Scope) -> str:
    return scope["client"][0] if scope.get("client") else "somebody"
