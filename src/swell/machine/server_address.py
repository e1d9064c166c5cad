"""How does a worker reach its server?

On the server's own machine through its socket: where that is, nobody else can listen. From elsewhere over TLS, and
nothing is sent before the server's certificate is known to be right.
"""

from __future__ import annotations

import http.client
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import SplitResult, urlsplit

from swell.errors import Denied, Rejected
from swell.machine.certificate import fingerprint_of
from swell.machine.sockets import UnixConnection


class ServerAddress(Protocol):
    def connect(self, *, timeout: float) -> http.client.HTTPConnection:
        """A connection that is opened with the first request."""


@dataclass(frozen=True, slots=True)
class SocketAddress:
    """Of a server on this machine."""

    socket: Path

    def connect(self, *, timeout: float) -> http.client.HTTPConnection:
        return UnixConnection(self.socket, timeout=timeout)


@dataclass(frozen=True, slots=True)
class UrlAddress:
    """Of a server elsewhere."""

    url: str
    ca: Path | None = None  #: None: whom this machine trusts
    fingerprint: str | None = None  #: of its certificate, which is then all that counts; None: somebody vouches for it

    def connect(self, *, timeout: float) -> http.client.HTTPConnection:
        found = urlsplit(self.url)
        assert found.hostname is not None
        if found.scheme == "http":
            return http.client.HTTPConnection(found.hostname, found.port, timeout=timeout)
        if self.fingerprint is not None:
            return PinnedConnection(found.hostname, found.port, self.fingerprint, timeout=timeout)
        context = ssl.create_default_context(cafile=self.ca)
        return http.client.HTTPSConnection(found.hostname, found.port, timeout=timeout, context=context)


class PinnedConnection(http.client.HTTPSConnection):
    """Nothing is sent before the certificate is known to be the one that was named."""

    def __init__(self, host: str, port: int | None, fingerprint: str, *, timeout: float) -> None:
        super().__init__(host, port, timeout=timeout, context=trust_nobody())
        self._fingerprint = fingerprint

    def connect(self) -> None:
        super().connect()
        shown = shown_fingerprint(self.sock)
        if shown != self._fingerprint:
            self.close()
            raise Denied(
                f"the certificate of {self.host} has the fingerprint {shown}, and {self._fingerprint} was named; "
                "somebody may be in between, or the server has a new one: name that with --fingerprint"
            )


def trust_nobody() -> ssl.SSLContext:
    """For who compares the fingerprint instead."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    return made


def shown_fingerprint(connected: object) -> str:
    """Of the certificate at the other end."""
    assert isinstance(connected, ssl.SSLSocket)
    return fingerprint_of(connected.getpeercert(binary_form=True) or b"")


def read_url(text: str, *, insecure_http: bool) -> str:
    """An address without a path, to which a token may be sent."""
    try:
        found = urlsplit(text)
        is_good = found.scheme in ("http", "https") and bool(found.hostname) and found.port != 0
    except ValueError:  # a port that is no number
        is_good = False
    if not is_good or found.path not in ("", "/") or found.query or found.fragment or found.username is not None:
        raise Rejected(f"{text!r} is not a server address; write https://NAME or https://NAME:PORT")
    if found.scheme == "http" and not insecure_http and not is_loopback(found):
        raise Rejected(
            f"{text} would send your token unencrypted over the network; use https://, or "
            "http://localhost:8080 with a forwarded port (kubectl -n swell port-forward svc/swell 8080); on a "
            "network that you trust, use --insecure-http"
        )
    return f"{found.scheme}://{found.netloc.removesuffix(':')}"


def is_loopback(address: SplitResult) -> bool:
    try:
        return ipaddress.ip_address(address.hostname or "").is_loopback
    except ValueError:
        return address.hostname == "localhost"
