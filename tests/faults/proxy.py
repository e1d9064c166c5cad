"""Who stands between Swell and the API server? A proxy that passes everything on, unless a rule says otherwise.

Plain HTTP on loopback towards Swell, TLS towards the real API server; Swell's own token is passed on.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from cluster.api import Api
from engines.kubernetes.wire import Cut, Listener, Request, Wire, chunk, rendered

HOP = ("host", "connection", "content-length", "transfer-encoding", "accept-encoding")
REASONS = {409: "Conflict", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}
WORDS = "Operation cannot be fulfilled: injected by the test"


@dataclass(frozen=True)
class Refuse:
    """Answered by the proxy; the API server hears nothing."""

    code: int


@dataclass(frozen=True)
class Lose:
    """The connection is cut, before the API server hears of it or after it has done it."""

    is_done: bool


@dataclass(frozen=True)
class Act:
    """Something happens beside it, and the client never gets an answer."""

    act: Callable[[], None]
    is_done: bool


@dataclass(frozen=True)
class Before:
    """Somebody else is faster; then it is passed on as ever."""

    act: Callable[[], None]


Meddling = Refuse | Lose | Act | Before
Rule = Callable[[Request], Meddling | None]


class Proxy:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._rules: list[tuple[float, Rule]] = []  # until when each holds
        self._lock = threading.Lock()
        self._upstream = threading.local()
        self._listener = Listener(self._answer)
        host, port = self._listener.server_address[:2]
        self.url = f"http://{host!s}:{port}"

    def close(self) -> None:
        self._listener.close()

    def write_kubeconfig(self, path: Path) -> Path:
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "proxy",
            "clusters": [{"name": "proxy", "cluster": {"server": self.url}}],
            "users": [{"name": "admin", "user": {"token": self._api.token}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "admin"}}],
        }
        path.touch(mode=0o600)
        path.write_text(json.dumps(document))
        return path

    def meddle(self, rule: Rule, seconds: float) -> None:
        with self._lock:
            self._rules.append((time.monotonic() + seconds, rule))

    def stop_meddling(self) -> None:
        with self._lock:
            self._rules.clear()

    def hang_up(self) -> None:
        """Every watch and every other connection ends."""
        self._listener.hang_up()

    # -- one request -----------------------------------------------------------------------------------------------

    def _answer(self, request: Request, wire: Wire) -> None:
        meddling = self._find(request)
        if isinstance(meddling, Refuse):
            wire.answer(meddling.code, _status(meddling.code), **({"Retry_After": "1"} if meddling.code == 429 else {}))
            return
        if isinstance(meddling, Before):
            meddling.act()
            meddling = None
        if meddling is not None and not meddling.is_done:
            self._cut(meddling)
        try:
            response = self._pass_on(request)
            if meddling is not None:
                response.read()
                self._cut(meddling)
            self._hand_back(request, response, wire)
        except (OSError, http.client.HTTPException):
            self._drop_upstream()
            raise Cut from None

    def _find(self, request: Request) -> Meddling | None:
        now = time.monotonic()
        with self._lock:
            self._rules = [(until, rule) for until, rule in self._rules if until > now]
            found = (rule(request) for _, rule in self._rules)
            return next((one for one in found if one is not None), None)

    @staticmethod
    def _cut(meddling: Lose | Act) -> None:
        if isinstance(meddling, Act):
            meddling.act()
        raise Cut

    def _pass_on(self, request: Request) -> http.client.HTTPResponse:
        connection = getattr(self._upstream, "connection", None)
        if connection is None:
            connection = self._upstream.connection = self._api.connect(timeout_s=300)
        headers = {name: value for name, value in request.headers.items() if name not in HOP}
        target = f"{request.path}?{urlencode(request.query)}" if request.query else request.path
        connection.request(request.method, target, request.body or None, headers)
        response: http.client.HTTPResponse = connection.getresponse()
        return response

    def _hand_back(self, request: Request, response: http.client.HTTPResponse, wire: Wire) -> None:
        kind = response.headers.get("Content-Type", "application/json")
        if response.status == 200 and ("watch" in request.query or "follow" in request.query):
            wire.begin(kind)
            while data := response.read1(65536):
                wire.raw(chunk(data))
            wire.end()
            return
        body = response.read()
        later = response.headers.get("Retry-After")
        wire.raw(rendered(response.status, body, {"Retry_After": later} if later else {}))

    def _drop_upstream(self) -> None:
        connection = getattr(self._upstream, "connection", None)
        self._upstream.connection = None
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.close()


def is_bind(request: Request) -> bool:
    return request.method == "POST" and request.path.endswith("/binding")


def resizes(request: Request, name: str, job: int) -> bool:
    """Is it one of the writes by which a PyTorchJob gets another size: suspend, tell, change and resume, bind?"""
    if request.method == "PATCH":
        is_told = request.path.endswith(f"-{job}") and "/secrets/" in request.path
        return is_told or (request.path.endswith(f"/pytorchjobs/{name}") and "spec" in request.document)
    return request.method != "GET" and f"/pods/{name}-" in request.path


def is_watch(request: Request) -> bool:
    return "watch" in request.query


def bound_pod(request: Request) -> str:
    """Whose bind it is, by name."""
    return request.path.split("/")[-2]


def _status(code: int) -> dict[str, object]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": WORDS, "reason": REASONS[code],
            "code": code}  # fmt: skip
