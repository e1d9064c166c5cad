"""How does one request go out on one connection, and one answer come in?

httptools parses: a request costs 70 µs of CPU that way, 250 with http.client and 1,000 with httpx (decision 0011).
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import httptools

from swell.engines.kubernetes.client.access import Access
from swell.engines.kubernetes.client.credentials import ClientCertificate

CONNECT_S = 5.0  # a round trip across the world is a third of a second
READ_BYTES = 256 * 1024
HEADERS_MAX = 200  # an API server sends a dozen


class Lost(Exception):
    """The connection ended, or said something that is no HTTP, before the answer was whole."""


class Unreached(Exception):
    """No connection could be made, so nothing was asked; its cause says why."""


class Abort:
    """Ends whatever reads on behalf of somebody who does not want it any more. Safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._set = threading.Event()
        self._socket: socket.socket | None = None

    @property
    def is_set(self) -> bool:
        return self._set.is_set()

    def set(self) -> None:
        with self._lock:
            self._set.set()
            if self._socket is not None:
                shut(self._socket)

    def wait(self, seconds: float) -> bool:
        return self._set.wait(seconds)

    def watch(self, reading: socket.socket | None) -> None:
        """What to end from now on; None: nothing is being read."""
        with self._lock:
            self._socket = reading
            if reading is not None and self._set.is_set():
                shut(reading)


class Never(Abort):
    """Of whoever waits for the answer. One for all: a new one for each request would be a tenth of its cost."""

    def watch(self, reading: socket.socket | None) -> None:
        pass


NEVER = Never()


def shut(sock: socket.socket) -> None:
    """Wakes whoever reads from it in another thread, which a close would not."""
    with contextlib.suppress(OSError):  # it has ended already
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # not ssl's: it forgets the session under its reader


class Connection:
    """One kept-alive connection; used by one thread at a time."""

    def __init__(self, sock: socket.socket, certificate: ClientCertificate | None) -> None:
        self.socket = sock
        self.certificate = certificate
        self.idle_since = 0.0
        self.is_reusable = False  #: the last answer was read to its end, and both sides keep the connection
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._begin()

    def close(self) -> None:
        self.socket.close()

    def is_stale(self) -> bool:
        """The other side has closed it, or speaks without being asked."""
        return bool(self._poll.poll(0))

    def send(self, request: bytes) -> None:
        self._begin()
        try:
            self.socket.sendall(request)
        except TimeoutError:
            raise
        except OSError as error:
            raise Lost(str(error)) from error

    def read_head(self, deadline: float) -> int:
        """The status; `headers` holds the rest."""
        while not self._has_head:
            self._receive(deadline)
        return self._parser.get_status_code()

    def read_rest(self, deadline: float) -> bytes:
        while not self._is_whole:
            self._receive(deadline)
        return b"".join(self._parts)

    def pieces(self) -> Iterator[bytes]:
        """The body as it comes; ends where it ends, and raises `Lost` where it breaks."""
        while True:
            if self._parts:
                yield self._taken()
            elif self._is_whole:
                return
            else:
                self._receive(float("inf"))

    def _taken(self) -> bytes:
        data = b"".join(self._parts)
        self._parts.clear()
        return data

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self.headers: dict[str, str] = {}
        self._parts: list[bytes] = []
        self._has_head = False
        self._is_whole = False
        self.is_reusable = False

    def _receive(self, deadline: float) -> None:
        if time.monotonic() > deadline:  # it keeps talking, and gets nowhere
            raise TimeoutError("the answer takes too long")
        try:
            data = self.socket.recv(READ_BYTES)
        except TimeoutError:
            raise
        except OSError as error:
            raise Lost(str(error)) from error
        if not data:
            return self._ended()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise Lost(f"this is no HTTP: {error}") from error
        return None

    def _ended(self) -> None:
        is_open = not {"content-length", "transfer-encoding"} & self.headers.keys()
        if not (self._has_head and is_open):
            raise Lost("the connection was closed before the answer was whole")
        self._is_whole = True  # the end of the connection is the end of the answer

    # -- called by the parser --------------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= HEADERS_MAX:
            raise ValueError("too many headers")
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._has_head = True

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        self._is_whole = True
        self.is_reusable = self._parser.should_keep_alive()


class Dialer:
    """Makes connections to one API server."""

    def __init__(self, access: Access) -> None:
        self.access = access
        address = urlsplit(access.server)
        self.is_tls = address.scheme == "https"
        self.host = address.hostname or ""
        self.port = address.port or (443 if self.is_tls else 80)
        self.prefix = address.path  #: of every path: a server behind a gateway has one
        self.name = address.netloc
        self._lock = threading.Lock()
        self._context: tuple[ClientCertificate | None, ssl.SSLContext] | None = None

    def connect(self, certificate: ClientCertificate | None, timeout_s: float) -> Connection:
        try:
            return self._connect(certificate, timeout_s)
        except OSError as error:
            raise Unreached(str(error)) from error

    def _connect(self, certificate: ClientCertificate | None, timeout_s: float) -> Connection:
        sock = socket.create_connection((self.host, self.port), timeout=CONNECT_S)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self.is_tls:
                sock = self._tls(certificate).wrap_socket(sock, server_hostname=self.access.server_name or self.host)
            sock.settimeout(timeout_s)
            return Connection(sock, certificate)
        except BaseException:
            sock.close()
            raise

    def _tls(self, certificate: ClientCertificate | None) -> ssl.SSLContext:
        """Kept: reading authorities costs milliseconds."""
        with self._lock:
            if self._context is None or self._context[0] != certificate:
                self._context = certificate, self.access.tls(certificate)
            return self._context[1]
