"""How does one request reach the server, and what does its answer mean?

One connection that is kept, made again when it breaks. Nothing here raises: whatever goes wrong is an `Answer`, and
whatever is not an answer of Swell's (a proxy's page, half a line, silence) means that the server is away.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401  what `socket` imports on first use; a fork in the midst of that breaks the child's
import hashlib
import http.client
import json
import os
import socket
import ssl
import struct
from dataclasses import dataclass
from enum import Enum
from typing import Any, Dict, Optional, Union
from urllib.parse import quote, urlsplit

from swell_sdk.bell import Bell
from swell_sdk.orders import NOTHING_ASKED, Asked, Position

ANSWER_BYTES_MAX = 65536
CONNECT_S = 5.0
REST_S = 5.0  # for the rest of an answer that has begun

#: What an idle connection answers when the server has closed it, or has started anew.
STALE = (http.client.BadStatusLine, ConnectionResetError, BrokenPipeError)


class Verdict(Enum):
    TAKEN = "taken"
    REFUSED = "refused"  #: that report can never be taken
    OVER = "over"  #: this attempt has nothing more to say
    BUSY = "busy"
    AWAY = "away"
    INTERRUPTED = "interrupted"  #: the bell rang before the answer came


VERDICTS = {
    401: Verdict.OVER,
    403: Verdict.OVER,
    409: Verdict.OVER,
    413: Verdict.REFUSED,
    422: Verdict.REFUSED,
    429: Verdict.BUSY,
}


@dataclass(frozen=True)
class Answer:
    verdict: Verdict
    asked: Asked = NOTHING_ASKED
    reason: str = ""  #: for people, where it was not taken


class Wire:
    """To one attempt of one server. Used by one thread."""

    def __init__(
        self, url: str, *, token: str, attempt_id: str, socket_path: str = "", fingerprint: str = "", ca: str = ""
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"SWELL_URL is {url!r}, not an address such as http://host:port")
        self._is_secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port
        self._fingerprint = fingerprint
        self._ca = ca  # PEM, or the file that has it; empty: whom the machine trusts
        self._socket_path = socket_path  # empty: the address is asked
        self._prefix = f"{parts.path.rstrip('/')}/api/v1/attempts/{quote(attempt_id, safe='')}"
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._connection: Optional[http.client.HTTPConnection] = None

    def send_report(self, document: Dict[str, Any], *, within_s: float) -> Answer:
        body = json.dumps(document, allow_nan=False).encode()
        return self._send("POST", "/report", body, within_s, None)

    def ask_control(self, query: str, *, within_s: float, unless: Bell) -> Answer:
        """Waits for the server's answer, or until the bell `unless` rings."""
        return self._send("GET", f"/control?{query}", None, within_s, unless)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _send(self, method: str, path: str, body: Optional[bytes], within_s: float, unless: Optional[Bell]) -> Answer:
        is_reused = self._connection is not None
        try:
            try:
                return self._exchange(method, path, body, within_s, unless)
            except STALE:
                self.close()
                if not is_reused:
                    raise
                return self._exchange(method, path, body, within_s, unless)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            return Answer(Verdict.AWAY, reason=f"{type(error).__name__}: {error}")

    def _exchange(
        self, method: str, path: str, body: Optional[bytes], within_s: float, unless: Optional[Bell]
    ) -> Answer:
        connection = self._connected()
        assert connection.sock is not None
        connection.sock.settimeout(within_s)
        connection.request(method, self._prefix + path, body, self._headers)
        if unless is not None:
            if unless.wait(within_s, beside=connection.sock.fileno()):
                self.close()
                return Answer(Verdict.INTERRUPTED)
            connection.sock.settimeout(REST_S)
        response = connection.getresponse()
        text = response.read(ANSWER_BYTES_MAX)
        if response.will_close or not response.isclosed():
            self.close()
        return parse_answer(response.status, text)

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            self._connection = self._made()
        if self._connection.sock is None:
            self._connection.timeout = CONNECT_S
            self._connection.connect()
        return self._connection

    def _made(self) -> http.client.HTTPConnection:
        if self._socket_path:
            return UnixConnection(self._socket_path, self._host, self._port)
        if self._is_secure and self._fingerprint:
            return PinnedConnection(self._host, self._port, self._fingerprint)
        if self._is_secure:
            return http.client.HTTPSConnection(self._host, self._port, timeout=CONNECT_S, context=trusting(self._ca))
        return http.client.HTTPConnection(self._host, self._port, timeout=CONNECT_S)


def trusting(ca: str) -> ssl.SSLContext:
    """`ca`: certificates in PEM, or the file that has them; empty: those that this machine trusts."""
    if "-----BEGIN" in ca:
        return ssl.create_default_context(cadata=ca)
    return ssl.create_default_context(cafile=ca or None)


class UnixConnection(http.client.HTTPConnection):
    """To the same server by a file: where that is, nobody else can listen while the server is away. And a container
    with a network of its own does not reach the machine's loopback."""

    def __init__(self, socket_path: str, host: str, port: Optional[int]) -> None:
        super().__init__(host, port, timeout=CONNECT_S)
        self._socket_path = socket_path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # A listener whose queue is full refuses who does not wait, and a socket with Python's timeout does not.
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(CONNECT_S), 0))
        folder, _, name = self._socket_path.rpartition("/")
        opened = os.open(folder or "/", os.O_PATH | os.O_DIRECTORY)
        try:
            self.sock.connect(f"/proc/self/fd/{opened}/{name}")  # the kernel takes no path of more than 107 bytes
        finally:
            os.close(opened)
        self.sock.settimeout(self.timeout)


class PinnedConnection(http.client.HTTPSConnection):
    """To the one server whose certificate has this fingerprint; nothing is sent to any other."""

    def __init__(self, host: str, port: Optional[int], fingerprint: str) -> None:
        trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trust.check_hostname = False
        trust.verify_mode = ssl.CERT_NONE  # nobody vouches for it: the fingerprint below does
        super().__init__(host, port, timeout=CONNECT_S, context=trust)
        self._wanted = fingerprint.replace(":", "").lower()

    def connect(self) -> None:
        super().connect()
        assert isinstance(self.sock, ssl.SSLSocket)
        shown = hashlib.sha256(self.sock.getpeercert(binary_form=True) or b"").hexdigest()
        if shown != self._wanted:
            self.close()
            raise ssl.SSLError("the server's certificate does not match SWELL_URL_FINGERPRINT")


def parse_answer(status: int, text: Union[bytes, str]) -> Answer:
    if status != 200:
        reason = text.decode(errors="replace") if isinstance(text, bytes) else text
        return Answer(VERDICTS.get(status, Verdict.AWAY), reason=f"it answered {status}: {reason[:200]}")
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        return Answer(Verdict.AWAY, reason="it answered 200, but the answer is not from Swell")
    return Answer(Verdict.TAKEN, parse_asked(document))


def parse_asked(document: Dict[str, Any]) -> Asked:
    stop_after = document.get("stop_after_epoch")
    return Asked(
        stop_after if _is_count(stop_after) else None,
        _position(document.get("stop_at_step")),
        document.get("tell_step") is True,
        document.get("yield_now") is True,
    )


def _position(found: Any) -> Optional[Position]:
    is_one = isinstance(found, list) and len(found) == 2 and all(_is_count(number) for number in found)
    return (found[0], found[1]) if is_one else None


def _is_count(found: Any) -> bool:
    return isinstance(found, int) and not isinstance(found, bool)
