"""How does the fake API server speak HTTP/1.1? By hand, so that it can also speak it badly."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import socketserver
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httptools


class Cut(Exception):
    """This connection is over."""


@dataclass
class Request:
    method: str = ""
    path: str = ""
    query: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def document(self) -> Any:
        return json.loads(self.body) if self.body else {}


class Wire:
    """One connection from a client."""

    def __init__(self, sock: socket.socket, stopping: threading.Event) -> None:
        self._socket = sock
        self._stopping = stopping
        self._request = Request()
        self._is_whole = False

    # -- in --------------------------------------------------------------------------------------------------------

    def read(self) -> Request | None:
        """None: the client has gone."""
        parser = httptools.HttpRequestParser(self)
        self._request, self._is_whole = Request(), False
        while not self._is_whole:
            data = self._socket.recv(65536)
            if not data:
                return None
            parser.feed_data(data)
        self._request.method = parser.get_method().decode()
        return self._request

    def on_url(self, url: bytes) -> None:
        parts = urlsplit(url.decode())
        self._request.path = parts.path
        self._request.query = dict(parse_qsl(parts.query))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._request.headers[name.decode().lower()] = value.decode()

    def on_body(self, body: bytes) -> None:
        self._request.body += body

    def on_message_complete(self) -> None:
        self._is_whole = True

    # -- out -------------------------------------------------------------------------------------------------------

    def answer(self, code: int, document: object, **headers: str) -> None:
        self.raw(rendered(code, document, headers))

    def raw(self, data: bytes) -> None:
        self._socket.sendall(data)

    def drip(self, data: bytes) -> None:
        """In pieces that end where nobody expects it."""
        size = max(1, len(data) // 7)
        for start in range(0, len(data), size):
            self.raw(data[start : start + size])
            self._stopping.wait(0.002)

    def begin(self, content_type: str = "application/json") -> None:
        self.raw(f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())

    def end(self) -> None:
        self.raw(b"0\r\n\r\n")

    def hold(self) -> None:
        """Says nothing until the client goes or we stop; then the connection is over."""
        while not self._stopping.is_set():
            if self.has_gone(0.02):
                break
        raise Cut

    def has_gone(self, wait_s: float = 0.0) -> bool:
        ready, _, _ = select.select([self._socket], [], [], wait_s)
        return bool(ready)  # a client in the middle of an answer says nothing: it can only be its end


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def rendered(code: int, document: object, headers: dict[str, str]) -> bytes:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.1 {code} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{lines}\r\n"
    return head.encode() + body


class Listener(socketserver.ThreadingTCPServer):
    """Hands each request to `answer`, until told to stop; then every connection ends."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, answer: Callable[[Request, Wire], None], tls: Any = None) -> None:
        self.stopping = threading.Event()
        self._answer = answer
        self._open: set[socket.socket] = set()
        self.connections = 0
        self._tls = tls
        super().__init__(("127.0.0.1", 0), socketserver.BaseRequestHandler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def finish_request(self, request: Any, client_address: Any) -> None:
        sock = request
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if self._tls is not None:
                sock = self._tls.wrap_socket(request, server_side=True)
            self._open.add(sock)
            self.connections += 1
            wire = Wire(sock, self.stopping)
            while (asked := wire.read()) is not None:
                self._answer(asked, wire)
        except (Cut, OSError, httptools.HttpParserError):
            pass
        finally:
            self._open.discard(sock)
            sock.close()

    def close(self) -> None:
        self.stopping.set()
        self.shutdown()
        self.server_close()
        self.hang_up()
        self._thread.join(5)

    def hang_up(self) -> None:
        for sock in list(self._open):
            with contextlib.suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
