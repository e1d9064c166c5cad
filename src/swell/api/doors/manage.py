"""Endpoints for the ports of doors: open one, close it, list what is open."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Response
from pydantic import Field

from swell.api.box import Caller, caller_of
from swell.api.documents import iso
from swell.api.services import Services
from swell.api.wire import ERRORS, Json, Strict
from swell.errors import Conflict, Denied, NotFound, Rejected
from swell.machine.listening import first_port_of_users
from swell.manifests.fields import did_you_mean
from swell.store import Changes, DoorRecord, EventRecord

DOORS = ("genai", "kubeprofiler")

By = Annotated[Caller, Depends(caller_of)]


class Opening(Strict):
    name: str = Field(description="name of the door: genai or kubeprofiler")
    port: int = Field(ge=0, le=65535, description="port on loopback; 0: any free port")
    user: str | None = Field(default=None, max_length=100, description="user as whom the door acts; null: the caller")


def doors_router(services: Services) -> APIRouter:
    router = APIRouter(prefix="/api/v1/doors", tags=["doors"], responses=ERRORS)
    store, keeper = services.store, services.doorkeeper

    def document(door: DoorRecord) -> dict[str, Any]:
        found = {**asdict(door), "opened_at": iso(door.opened_at), "url": f"http://127.0.0.1:{door.port}"}
        return {**found, "problem": keeper.problems.get(door.port), "warning": _warning(services, door)}

    async def note(event: EventRecord) -> None:
        await asyncio.wrap_future(store.record(Changes(events=[event])))

    @router.get("")
    async def listing(caller: By) -> Response:
        """List ports that serve a door without a token; `problem` says why a port is not open."""
        return await services.read(
            caller.user,
            lambda: Json({"doors": [document(door) for door in (*keeper.standing, *store.doors.opened())]}),
        )

    @router.post("", status_code=201)
    async def open_door(body: Opening, caller: By) -> Response:
        """Serve a door on a port of its own, without a token, acting as one user; administrators only."""
        _refuse_unless_admin(caller, "open")
        refuse_unknown(body.name)
        owner = await asyncio.to_thread(_owner, services, caller, body.user)
        if any(door.port == body.port for door in await services.read(caller.user, store.doors.opened)):
            raise Conflict(f"port {body.port} already has a door; close it first: swell door close --port {body.port}")
        listener = keeper.bind(body.port)
        door = DoorRecord(listener.getsockname()[1], body.name, owner, services.now())
        try:
            await note(caller.did("DoorOpened", door=door.name, port=door.port))
            await asyncio.wrap_future(store.doors.open(door))
        except BaseException:
            listener.close()
            raise
        keeper.serve(door, listener)
        return Json(document(door), 201)

    @router.delete("/{port}", status_code=204)
    async def close_door(caller: By, port: Annotated[int, Path(ge=0, le=65535)]) -> Response:
        _refuse_unless_admin(caller, "close")
        if any(door.port == port for door in keeper.standing):
            raise Conflict(f"port {port} is opened by the settings (doors); remove it there and restart the server")
        opened = await services.read(caller.user, store.doors.opened)
        door = next((door for door in opened if door.port == port), None)
        if door is None:
            raise NotFound(f"no door is open on port {port}; `swell door` lists the open ports")
        await note(caller.did("DoorClosed", door=door.name, port=door.port))
        await asyncio.wrap_future(store.doors.close(port))
        await asyncio.to_thread(keeper.close, port)
        return Response(status_code=204)

    return router


def open_standing(services: Services) -> None:
    """Those of config.json, each time the server starts. A mistake in them keeps it from starting."""
    operator = Caller(services.owner, is_admin=True, origin="config.json")
    for door in services.config.doors:
        refuse_unknown(door.name)
        _owner(services, operator, door.user)
        services.doorkeeper.stand(door, services.now())
    standing = services.doorkeeper.standing
    opened = [operator.did("DoorOpened", door=door.name, port=door.port) for door in standing]
    if opened:
        services.store.record(Changes(events=opened)).result()


def _warning(services: Services, door: DoorRecord) -> str | None:
    """None: nobody else can take this port while the server is away."""
    if services.box is None or door.port < first_port_of_users():
        return None
    return (
        f"any user of this machine can listen on port {door.port} while the server is down, and receive "
        f"the clients' requests; only root can take a port below {first_port_of_users()}"
    )


def _owner(services: Services, caller: Caller, user: str | None) -> str:
    """Whoever reaches the port acts as this one, so it is never root."""
    name = user or caller.user
    if name != caller.user:
        _refuse_naming(services, caller, name)
    found = services.acting_for(name, caller.origin)
    if found is None:
        raise Rejected(f"there is no user {name!r} on this machine")
    if found.uid == 0:
        raise Rejected(
            "everyone on this machine could run jobs as root through that port; name another user (swell door "
            "open --as USER)"
        )
    return name


def _refuse_naming(services: Services, caller: Caller, name: str) -> None:
    """Who opens a door in another's name can act as them: that is for whoever can do so anyway."""
    if not services.is_shared:
        raise Rejected(f"this server belongs to {caller.user} alone; a door acts as that user, not as {name!r}")
    if not caller.is_operator:
        raise Denied(
            f"a door that acts as {name!r} lets everyone act as that user, so only {services.operator} may open it; "
            "without --as, it acts as you"
        )


def refuse_unknown(name: str) -> None:
    if name not in DOORS:
        raise Rejected(f"there is no door {name[:100]!r}{did_you_mean(name, list(DOORS))}")


def _refuse_unless_admin(caller: Caller, what: str) -> None:
    if not caller.is_admin:
        raise Denied(
            f"to {what} a door without a token is for administrators, because everyone on this machine can use it; "
            f"{caller.no_admin}"
        )
