"""A proxy on loopback that passes requests on, or fails as it is told: what lies between a pool and a cloud."""

from __future__ import annotations

import http.client
import socket
import threading
from collections import deque
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


class Trouble(Enum):
    HANGS = "no answer comes, and nobody closes"
    CUT = "the connection is closed before the request arrives"
    LOST = "the request arrives, and its answer does not"
    TORN = "the answer ends in its middle"


@dataclass(frozen=True)
class Answer:
    """Instead of the cloud's own."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


class Unsteady:
    def __init__(self, upstream: str) -> None:
        self.upstream = urlsplit(upstream)
        self.next: deque[Trouble | Answer | None] = deque()  #: for each request; then none
        self.always: Trouble | Answer | None = None
        self.seen: list[str] = []  #: `POST /path?query`
        self._closing = threading.Event()
        outer = self

        class Handler(_Handler):
            proxy = outer

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()

    def hold(self) -> None:
        self._closing.wait(60)


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Whoever asked has gone away."""


class _Handler(BaseHTTPRequestHandler):
    proxy: Unsteady
    protocol_version = "HTTP/1.1"

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.proxy.seen.append(f"{self.command} {self.path}")
        trouble = self.proxy.next.popleft() if self.proxy.next else self.proxy.always
        if trouble is Trouble.HANGS:
            self.proxy.hold()
        if trouble in (Trouble.HANGS, Trouble.CUT):
            return self._hang_up()
        if isinstance(trouble, Answer):
            return self._answer(trouble)
        answer = self._ask(body)
        if trouble is Trouble.LOST:
            return self._hang_up()
        return self._answer(answer, is_torn=trouble is Trouble.TORN)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = _pass  # noqa: N815

    def _ask(self, body: bytes) -> Answer:
        there = self.proxy.upstream
        with closing(http.client.HTTPConnection(there.hostname or "", there.port, timeout=30)) as connection:
            connection.request(self.command, self.path, body or None, dict(self.headers.items()))
            answer = connection.getresponse()
            left_out = ("connection", "transfer-encoding", "content-length")
            headers = [(name, value) for name, value in answer.getheaders() if name.lower() not in left_out]
            return Answer(answer.status, answer.read(), tuple(headers))

    def _answer(self, answer: Answer, *, is_torn: bool = False) -> None:
        self.send_response_only(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body[: len(answer.body) // 2] if is_torn else answer.body)
        if is_torn:
            self._hang_up()

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_: object) -> None:
        pass
