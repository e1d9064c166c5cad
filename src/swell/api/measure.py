"""How many requests are answered, how, and how quickly?

Plain ASGI around everything, so that what the guard refuses is counted too. The route is told by its template, never by
its address: an address holds jobs' names.
"""

from __future__ import annotations

import time
from typing import Any

from swell.api.security import JOB_PATHS, Scope
from swell.metrics import Metrics

METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
NO_ROUTE = "none"  # refused before it was looked for, or not there
CUT_OFF = 499  # the client went away before the answer began


class Measured:
    def __init__(self, app: Any, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = CUT_OFF

        async def note(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        began = time.perf_counter()
        try:
            await self._app(scope, receive, note)
        finally:
            self._count(scope, status, time.perf_counter() - began)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        method = scope["method"] if scope["method"] in METHODS else "other"
        route = getattr(scope.get("route"), "path", NO_ROUTE)
        self._metrics.answered(method, route, status, seconds)
        if method == "POST" and scope["path"].startswith(JOB_PATHS):
            self._metrics.reported(status)
