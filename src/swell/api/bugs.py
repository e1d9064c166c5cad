"""What is written down of a request that failed by a mistake of ours, or whose client hung up?

Starlette hands on what it has answered with 500, and uvicorn writes a traceback of ten kilobytes for each: whoever
finds a way to make us fail could fill the disk by it.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, MutableMapping
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.requests import ClientDisconnect

from swell.api.audit import Flood, shown
from swell.api.wire import error_schemas

TRACEBACKS_OF_EACH = 3  # a minute, of one mistake; more tell nothing new
TRACEBACKS_OF_ALL = 20  # a minute

log = logging.getLogger(__name__)
Scope = MutableMapping[str, Any]


async def shelter(run: Awaitable[None], scope: Scope, flood: Flood) -> None:
    """Nothing goes wrong for whoever waits for it."""
    try:
        await run
    except ClientDisconnect:  # it hung up while it sent; nobody waits for an answer
        return
    except Exception as error:
        if flood.admits(_place(error)):
            log.error("%s %s failed", scope["method"], shown(scope["path"]), exc_info=error)


class Application(FastAPI):
    def add_routes(self, router: APIRouter) -> None:
        """As they are: `include_router` reads each endpoint a second time when the first request comes."""
        self.router.routes.extend(router.routes)

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            described = super().openapi()
            described["components"]["schemas"] |= error_schemas()
        return super().openapi()

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        await shelter(super().__call__(scope, receive, send), scope, FLOOD)


def _place(error: Exception) -> str:
    """Which mistake it is: the kind, and where it was raised."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    return " ".join([type(error).__name__, *(f"{frame.filename}:{frame.lineno}" for frame in last)])


def _tell_missed(count: int) -> None:
    log.error("and %d more requests failed by mistakes of ours", count)


FLOOD = Flood(TRACEBACKS_OF_EACH, TRACEBACKS_OF_ALL, _tell_missed)  #: all applications of a process share one log
