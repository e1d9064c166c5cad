"""How does a question become an answer, whatever happens on the way?

What is asked again, and how often, is here and nowhere else: a question that changes nothing after a lost connection or
a 5xx, any question after a 429 (nothing was done) and after a 401 for which there is a newer credential. A write whose
answer was lost may have happened: whoever asked looks. Before each try of a write its guard is asked, as late as
possible: who waited for a connection, or was told to ask again later, may have lost the right to it meanwhile.
"""

from __future__ import annotations

import datetime
import json
import random
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any
from urllib.parse import urlencode

from swell.engines.kubernetes.client.access import Access
from swell.engines.kubernetes.client.connection import NEVER, Abort, Connection, Dialer, Lost, Unreached
from swell.engines.kubernetes.client.connection_pool import Pool
from swell.engines.kubernetes.client.credentials import Credential, Headers
from swell.engines.kubernetes.client.documents import parse_json
from swell.engines.kubernetes.client.failures import ApiRequest, Silent, failure, retry_after, unauthorized
from swell.errors import Unavailable

ANSWER_S = 60.0  # kube-apiserver itself gives up on a request after a minute
TRIES_MAX = 3
PAUSE_S = 0.1  # before a question is asked again; doubled once
RETRY_AFTER_MAX_S = 5.0  # whoever is told to wait longer hears it, and plans something else meanwhile
JSON = "application/json"
FAULTS = (Lost, Unreached, TimeoutError)

Query = Mapping[str, str | int | bool | None]
Guard = Callable[[], None]  # raises where it must not be asked


def anybody() -> None:
    """The guard of what everybody may ask."""


class Exchange:
    """Requests to one API server; safe for several threads."""

    def __init__(self, access: Access, *, agent: str, answer_s: float = ANSWER_S) -> None:
        self.access = access
        self._dialer = Dialer(access)
        self._pool = Pool(self._dialer, timeout_s=answer_s)
        self._answer_s = answer_s
        self._common = f"Host: {self._dialer.name}\r\nAccept: {JSON}\r\nUser-Agent: {agent}\r\n"
        self._closing = Abort()

    def close(self) -> None:
        """Whoever waits is told at once."""
        self._closing.set()
        self._pool.close()

    def document(
        self,
        ask: ApiRequest,
        path: str,
        query: Query | None = None,
        body: object = None,
        *,
        content_type: str = JSON,
        abort: Abort = NEVER,
        guard: Guard = anybody,
        headers: Headers = (),
    ) -> dict[str, Any]:
        data = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
        target = _target(self._dialer.prefix + path, query)
        answer = _Tries(self, ask, abort, guard, headers).run(target, data, content_type)
        try:
            document = parse_json(answer)
        except ValueError as error:
            raise failure(ask, 200, {}, answer) from error
        if not isinstance(document, dict):
            raise failure(ask, 200, {}, answer)
        return document

    def stream(self, ask: ApiRequest, path: str, query: Query, *, silence_s: float, abort: Abort) -> Stream:
        """On a connection of its own, which counts as lost when nothing came for that long."""
        return _Tries(self, ask, abort).open(_target(self._dialer.prefix + path, query), silence_s)

    # -- one try ---------------------------------------------------------------------------------------------------

    def once(
        self,
        ask: ApiRequest,
        target: str,
        data: bytes,
        content_type: str,
        credential: Credential,
        abort: Abort,
        guard: Guard,
        headers: Headers,
    ) -> tuple[int, Mapping[str, str], bytes]:
        connection = self._pool.take(credential.certificate)
        try:
            guard()
            abort.watch(connection.socket)
            connection.send(self._request(ask.method, target, data, content_type, (*credential.headers, *headers)))
            deadline = time.monotonic() + self._answer_s
            status = connection.read_head(deadline)
            return status, connection.headers, connection.read_rest(deadline)
        except BaseException:
            connection.is_reusable = False
            raise
        finally:
            abort.watch(None)
            self._pool.give_back(connection)

    def open(
        self, ask: ApiRequest, target: str, credential: Credential, silence_s: float, abort: Abort
    ) -> tuple[int, Connection]:
        connection = self._dialer.connect(credential.certificate, min(self._answer_s, silence_s))
        abort.watch(connection.socket)
        try:
            connection.send(self._request(ask.method, target, b"", JSON, credential.headers))
            status = connection.read_head(time.monotonic() + self._answer_s)
            connection.socket.settimeout(silence_s)
            return status, connection
        except BaseException:
            abort.watch(None)
            connection.close()
            raise

    def rest(self, connection: Connection) -> bytes:
        """Of a stream that began with a refusal."""
        return connection.read_rest(time.monotonic() + self._answer_s)

    @property
    def is_closing(self) -> bool:
        return self._closing.is_set

    def unreachable(self, ask: ApiRequest, error: Exception) -> Unavailable:
        where = f"the API server at {self.access.server} ({self.access.source})"
        doubt = "" if ask.method == "GET" else "; it may have happened: look before you repeat it"
        if self._closing.is_set:
            return Unavailable(f"{ask}: we are closing{doubt}")
        if isinstance(error, Lost):
            return Unavailable(f"{ask}: {where} went away in the middle of a request: {error}{doubt}")
        if isinstance(error.__cause__, ssl.SSLError):
            return Unavailable(f"{ask}: no safe connection to {where}: {error}; check its certificate authority")
        if isinstance(error, Unreached):
            return Unavailable(f"{ask}: {where} cannot be reached: {error}; is the cluster up, and the address right?")
        return Silent(f"{ask}: {where} did not answer in time: {error}{doubt}")

    def _request(self, method: str, target: str, data: bytes, content_type: str, headers: Headers) -> bytes:
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
        length = f"Content-Type: {content_type}\r\nContent-Length: {len(data)}\r\n" if data else ""
        return f"{method} {target} HTTP/1.1\r\n{self._common}{lines}{length}\r\n".encode() + data


class Stream:
    """An answer that is read as it comes: a watch, a log. Closing it is the reader's duty."""

    def __init__(self, exchange: Exchange, ask: ApiRequest, connection: Connection, abort: Abort) -> None:
        self._exchange = exchange
        self._ask = ask
        self._connection = connection
        self._abort = abort

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._abort.watch(None)
        self._connection.close()

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._connection.pieces()
        except FAULTS as error:
            raise self._exchange.unreachable(self._ask, error) from error


class _Tries:
    """One question until it is answered, or asking again would be wrong."""

    def __init__(
        self, exchange: Exchange, ask: ApiRequest, abort: Abort, guard: Guard = anybody, headers: Headers = ()
    ) -> None:
        self._exchange = exchange
        self._ask = ask
        self._abort = abort
        self._guard = guard
        self._headers = headers
        self._count = 0
        self._is_renewed = False

    def run(self, target: str, data: bytes, content_type: str) -> bytes:
        while True:
            credential = self._exchange.access.credentials.current()
            try:
                status, headers, body = self._exchange.once(
                    self._ask, target, data, content_type, credential, self._abort, self._guard, self._headers
                )
            except FAULTS as error:
                self._lost(error)
                continue
            if 200 <= status < 300:
                return body
            self._refused(credential, status, headers, body)

    def open(self, target: str, silence_s: float) -> Stream:
        while True:
            credential = self._exchange.access.credentials.current()
            try:
                status, connection = self._exchange.open(self._ask, target, credential, silence_s, self._abort)
                stream = Stream(self._exchange, self._ask, connection, self._abort)
                if 200 <= status < 300:  # 204: the log of a pod that is on no node yet
                    return stream
                with stream:
                    body = self._exchange.rest(connection)
            except FAULTS as error:
                self._lost(error)
                continue
            self._refused(credential, status, connection.headers, body)

    def _lost(self, error: Exception) -> None:
        self._count += 1
        is_unwanted = self._abort.is_set or self._exchange.is_closing
        # Whoever has waited for a minute should know; and no certificate gets better by looking again.
        is_final = isinstance(error, TimeoutError) or isinstance(error.__cause__, ssl.SSLCertVerificationError)
        is_final = is_final or self._count >= TRIES_MAX
        if self._ask.method != "GET" or is_final or is_unwanted:
            raise self._exchange.unreachable(self._ask, error) from error
        self._abort.wait(self._pause_s())

    def _refused(self, credential: Credential, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Returns where it may be asked again."""
        self._count += 1
        if status == 401:
            return self._renew(credential)
        wait_s = retry_after(headers) if status == 429 and "retry-after" in headers else None
        if status >= 500 and self._ask.method == "GET":
            wait_s = self._pause_s()
        if wait_s is None or wait_s > RETRY_AFTER_MAX_S or self._count >= TRIES_MAX or self._abort.is_set:
            raise failure(self._ask, status, headers, body)
        self._abort.wait(wait_s)
        return None

    def _renew(self, credential: Credential) -> None:
        credentials = self._exchange.access.credentials
        if self._is_renewed or not credentials.refused(credential):
            raise unauthorized(self._ask, credentials.source, credential, datetime.datetime.now(datetime.UTC))
        self._is_renewed = True

    def _pause_s(self) -> float:
        return PAUSE_S * float(2 ** (self._count - 1)) * random.uniform(0.5, 1.0)  # noqa: S311  spreads load, hides nothing


def _target(path: str, query: Query | None) -> str:
    given = {name: _text(value) for name, value in (query or {}).items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
