"""How do foreign clients write a request, and how do they read a refusal?

Bodies are JSON objects, whatever their Content-Type says; errors are `{"error": "…"}` with a true status.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from swell.api.bugs import Application
from swell.api.wire import Json
from swell.errors import Conflict, Denied, NotFound, Rejected, SwellError, TooLarge, Unavailable
from swell.manifests.fields import describe

BODY_BYTES_MAX = 64 * 1024
TEXT_MAX = 4096
NUMBER_MAX = 1e15
STATUS = {NotFound: 404, Conflict: 409, Denied: 403, TooLarge: 413, Rejected: 400, Unavailable: 503}


def door_app(routers: Sequence[APIRouter]) -> Application:
    """One or several doors, without a description: their own documentation is elsewhere."""
    app = Application(openapi_url=None, redirect_slashes=False)
    for router in routers:
        app.add_routes(router)
    app.add_exception_handler(SwellError, _on_swell_error)
    app.add_exception_handler(RequestValidationError, _on_no_such_path)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_bug)
    return app


async def read_body(request: Request, bytes_max: int) -> bytes:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > bytes_max:
            raise TooLarge(f"the body has more than {bytes_max} bytes; send less at once")
    return body


async def json_object(request: Request) -> dict[str, Any]:
    """The body, for `Depends`. An empty one is an empty object."""
    body = await read_body(request, BODY_BYTES_MAX)
    try:
        found = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise Rejected("the body is not valid JSON") from None
    if not isinstance(found, dict):
        raise Rejected(f"the body must be a JSON object, but is {describe(found)}")
    return found


def need(body: dict[str, Any], fields: Sequence[str]) -> None:
    missing = [field for field in fields if body.get(field) is None]
    if missing:
        raise Rejected(f"missing field: {', '.join(missing)} (needed: {', '.join(fields)})")


def text(body: dict[str, Any], field: str) -> str:
    value = body[field]
    if not isinstance(value, str) or not value or len(value) > TEXT_MAX or "\0" in value:
        raise Rejected(f"{field} must be text of at most {TEXT_MAX} characters, but is {describe(value)}")
    return value


def number(body: dict[str, Any], field: str, *, low: float = 0.0) -> float:
    """Finite, and of a size that can be meant; digits in quotes are a number too."""
    value = body[field]
    try:
        found = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not low <= found <= NUMBER_MAX:
        raise Rejected(f"{field} must be a number of at least {low:g}, but is {describe(value)}")
    return found


def whole(body: dict[str, Any], field: str, *, low: int = 0) -> int:
    found = number(body, field, low=low)
    if found != int(found):
        raise Rejected(f"{field} must be a whole number, but is {describe(body[field])}")
    return int(found)


async def _on_swell_error(_: Request, error: Exception) -> Response:
    status = next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 500)
    return Json({"error": str(error)}, status)


async def _on_no_such_path(request: Request, _: Exception) -> Response:
    return Json({"error": f"there is no {request.method} {request.url.path}"}, 404)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code in (404, 405):
        return Json({"error": f"there is no {request.method} {request.url.path}"}, error.status_code)
    return Json({"error": str(error.detail)}, error.status_code)


async def _on_bug(_: Request, error: Exception) -> Response:
    """Written down by whoever shelters the application (bugs.py)."""
    return Json({"error": f"Swell has a bug here: {type(error).__name__}; server.log has the details"}, 500)
