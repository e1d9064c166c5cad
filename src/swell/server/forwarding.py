"""How does a standby answer reads? It asks the serving process through the socket in the folder, and passes that on.

With the caller's own token: on the socket of a private folder that is asked for as everywhere else, so nobody is told
what the server itself would not have told them. Only `GET` of the API and of metrics; nothing is kept or changed here.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httptools

from swell.api.security import SOCKET_HOST

READS = ("/api/v1/", "/metrics")
AT_ONCE = 64  # of all callers; each holds a connection to the serving process
AT_ONCE_OF_ONE = 16  # of one token, and of all who show none
CONNECT_S = 2.0
SILENCE_S = 90.0  # longer than any answer is waited for; whoever follows a log is asked nothing for a minute at most
CHUNK = 64 * 1024
PASSED_IN = (b"authorization", b"accept", b"origin", b"if-none-match")
KEPT_BACK = (b"connection", b"keep-alive", b"transfer-encoding", b"date", b"server")

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]


class Reads:
    """Reads of one folder's serving process."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._held: Counter[bytes] = Counter()  #: by caller

    async def answer(self, scope: dict[str, Any], receive: Receive, send: Send) -> bool:
        """False: it is no read, or nobody answers it; nothing was sent then."""
        if scope["method"] != "GET" or not scope["path"].startswith(READS):
            return False
        caller = _caller(scope)
        if self._held[caller] >= AT_ONCE_OF_ONE or self._held.total() >= AT_ONCE:
            return False
        self._held[caller] += 1
        try:
            return await self._ask(scope, receive, send)
        finally:
            self._held[caller] -= 1
            self._held += Counter()  # forgets those that hold nothing

    async def _ask(self, scope: dict[str, Any], receive: Receive, send: Send) -> bool:
        try:
            reader, writer = await asyncio.wait_for(asyncio.open_unix_connection(str(self._socket)), CONNECT_S)
        except OSError:
            return False
        gone = asyncio.ensure_future(_until_gone(receive))
        try:
            writer.write(_request(scope))
            passing = asyncio.ensure_future(_pass_on(reader, send))
            await asyncio.wait((passing, gone), return_when=asyncio.FIRST_COMPLETED)
            if passing.done():
                return passing.result()
            passing.cancel()
            return True  # nobody is there any more to be told anything else
        finally:
            gone.cancel()
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


def _caller(scope: dict[str, Any]) -> bytes:
    """Whose share it takes. The serving process checks the token; one that is made up is refused at once, and holds
    nothing for long.
    """
    return hashlib.sha256(next((value for name, value in scope["headers"] if name == b"authorization"), b"")).digest()


class _Answer:
    """What has come of an answer since it was looked at last."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""
        self.is_begun = self.is_complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() not in KEPT_BACK:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.is_begun = True

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.is_complete = True


async def _pass_on(reader: asyncio.StreamReader, send: Send) -> bool:
    answer = _Answer()
    parser = httptools.HttpResponseParser(answer)
    has_sent = False
    while not answer.is_complete:
        try:
            data = await asyncio.wait_for(reader.read(CHUNK), SILENCE_S)
            parser.feed_data(data)
        except (OSError, httptools.HttpParserError):  # a read that takes too long is an OSError as well
            data = b""
        if not data:
            break
        if answer.is_begun and not has_sent:
            has_sent = True
            headers = [*answer.headers, (b"connection", b"close")]
            await send({"type": "http.response.start", "status": parser.get_status_code(), "headers": headers})
        if answer.body and has_sent:
            body, answer.body = answer.body, b""
            await send({"type": "http.response.body", "body": body, "more_body": True})
    if has_sent and answer.is_complete:  # what was cut off is not ended as if it were whole
        await send({"type": "http.response.body", "body": b""})
    return has_sent


def _request(scope: dict[str, Any]) -> bytes:
    target: bytes = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    headers = [(b"host", SOCKET_HOST.encode()), (b"connection", b"close")]
    headers += [(name, value) for name, value in scope["headers"] if name in PASSED_IN]
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
    return b"GET " + target + b" HTTP/1.1\r\n" + lines + b"\r\n"


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
