"""How is a server elsewhere reached, and what keeps it from being reached?"""

from __future__ import annotations

import functools
import http.client
import ipaddress
import socket
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from swell.certificate import fingerprint_of
from swell.client.place import TIMEOUT_S, NoServer
from swell.client.tokens import Token, expired_at
from swell.errors import Denied, Rejected, SwellError

CONNECT_S_MAX = 10.0  # a machine that is there answers a greeting sooner
AWAY_S_MAX = 300.0  # a pod that is replaced is away for a minute or two: image, volume, readiness
GATEWAY_STATUSES = (502, 503, 504)  # of an ingress that finds nobody behind it
HOST_MISMATCH = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
SELF_SIGNED = (18, 19)  # X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT, X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN
EXPIRED = 10  # X509_V_ERR_CERT_HAS_EXPIRED
NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")  # what was answered is no TLS


class Untrusted(Rejected):
    """Nobody vouches for a server's certificate; its fingerprint could."""


@dataclass(frozen=True)
class Remote:
    """A server that others run; its address was checked by `read_url`."""

    url: str
    token: Token
    ca: Path | None = None  #: who vouches for it; None: those whom this machine trusts
    fingerprint: str | None = None  #: of its certificate, which is then all that counts; None: somebody vouches for it
    patience_s: float = AWAY_S_MAX

    def __str__(self) -> str:
        return f"the server {self.url}"

    def connect(self) -> http.client.HTTPConnection:
        address = urlsplit(self.url)
        assert address.hostname is not None
        if address.scheme == "https":
            kind = _Secure if self.fingerprint is None else _Pinned
            return kind(self, address.hostname, address.port, context=self._trust)
        return _Reaching(self, address.hostname, address.port)

    def identity(self) -> str | None:
        return self.token.text()

    def is_worth_repeating(self, status: int, shown: str | None) -> bool:
        if status == 401:
            return self.token.renew(shown)
        self.token.accepted(shown)
        return False

    def refusal(self, status: int, location: str | None, error: SwellError) -> SwellError:
        if status == 401:
            return self._token_refusal(error)
        if type(error) is not SwellError:
            return error
        if 300 <= status < 400:
            elsewhere = "" if location is None else f" and points to {location}"
            return Rejected(f"{self.url} answers {status}{elsewhere}; log in to the address where Swell itself answers")
        if status in GATEWAY_STATUSES:
            return NoServer(f"{self.url} answers {status}: nobody is behind it just now; {self._what_to_do()}")
        return type(error)(f"{self.url}: {error}")

    def _token_refusal(self, error: SwellError) -> Denied:
        moment = expired_at(self.token.text())
        told = time.strftime(", which expired at %Y-%m-%d %H:%M:%S UTC", time.gmtime(moment)) if moment else ""
        words = str(error).partition(";")[0]  # what it says of folders and files is not for us
        made = self.token.text().startswith("swt.")  # by Swell itself
        remedy = "make another where you need none: swell token create NAME" if made else self.token.source.remedy
        return Denied(f"{self.url} refuses the token {self.token.source}{told}: {words}; {remedy}")

    def nobody(self) -> NoServer:
        return self.gone("does not answer")

    def gone(self, what: str) -> NoServer:
        return NoServer(f"{self} {what}; {self._what_to_do()}")

    def silent(self) -> NoServer:
        return self.gone(f"did not answer within {TIMEOUT_S:g} s")

    def forbidden(self) -> Denied:
        return Denied(f"this machine does not let you reach {self.url}; ask its administrator")

    def unreachable(self, error: OSError) -> SwellError:
        """Of what happened before a word was said."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return self._distrust(error)
        if isinstance(error, ssl.SSLError) and error.reason in NO_TLS:
            return Rejected(f"{self.url} was called and does not speak TLS; is it http:// instead?")
        if isinstance(error, socket.gaierror):
            name = urlsplit(self.url).hostname
            return NoServer(
                f"{self.url} cannot be reached: the name {name!r} is not known here; check it, or your network"
            )
        why = f"no answer within {CONNECT_S_MAX:g} s" if isinstance(error, TimeoutError) else error.strerror or error
        return NoServer(f"{self.url} cannot be reached: {why}; {self._what_to_do()}")

    def _distrust(self, error: ssl.SSLCertVerificationError) -> Rejected:
        if error.verify_code in HOST_MISMATCH:
            remedy = "call it by a name that its certificate has"
        elif error.verify_code == EXPIRED:
            remedy = "whoever runs it must renew it"
        elif error.verify_code in SELF_SIGNED and self.ca is None:
            return Untrusted(
                f"the certificate of {self.url} is not trusted: {error.verify_message}; name its fingerprint, as "
                f"`swell up` printed it where it runs: swell login {self.url} --fingerprint SHA256, or name who "
                "vouches for it: --ca FILE"
            )
        elif self.ca is None:
            remedy = f"name who vouches for it: swell login {self.url} --ca FILE"
        else:
            remedy = f"{self.ca} does not vouch for it: swell login {self.url} --ca FILE with another"
        return Rejected(f"the certificate of {self.url} is not trusted: {error.verify_message}; {remedy}")

    def _what_to_do(self) -> str:
        if is_loopback(urlsplit(self.url)):
            return "is the port still forwarded? as in: kubectl -n swell port-forward svc/swell 8080"
        return "check your network, or ask who runs it; jobs go on meanwhile"

    @functools.cached_property
    def _trust(self) -> ssl.SSLContext:
        if self.fingerprint is not None:
            return _trust_nobody()
        try:
            return ssl.create_default_context(cafile=self.ca)
        except (ssl.SSLError, OSError) as error:
            why = "no certificate is in it" if isinstance(error, ssl.SSLError) else error.strerror
            raise Rejected(f"the CA file {self.ca} cannot be used: {why}; name a PEM file that can be read") from error


class _Reaching(http.client.HTTPConnection):
    """As http.client's; a greeting is waited for less long than an answer, and what goes wrong is said."""

    def __init__(self, remote: Remote, host: str, port: int | None, **options: ssl.SSLContext) -> None:
        super().__init__(host, port, **options)  # type: ignore[arg-type]  # the context of the class below
        self._remote = remote

    def connect(self) -> None:
        self.timeout = CONNECT_S_MAX
        try:
            super().connect()
        except OSError as error:
            self.close()
            raise self._remote.unreachable(error) from error
        self.sock.settimeout(TIMEOUT_S)


class _Secure(_Reaching, http.client.HTTPSConnection):
    pass


class _Pinned(_Secure):
    """Nothing is sent before the certificate is known to be the one that was named."""

    def connect(self) -> None:
        super().connect()
        shown = _shown(self.sock)
        if shown != self._remote.fingerprint:
            self.close()
            raise Denied(
                f"the certificate of {self._remote.url} is another than it was: its fingerprint is {shown}, and "
                f"{self._remote.fingerprint} was named. Somebody may be in between; if its operator has a new one, "
                f"log in again: swell login {self._remote.url} --fingerprint …"
            )


def fetch_fingerprint(url: str) -> str:
    """What the server shows now; nothing is sent to it."""
    address = urlsplit(url)
    where = (address.hostname or "", address.port or http.client.HTTPS_PORT)
    with (
        socket.create_connection(where, timeout=CONNECT_S_MAX) as plain,
        _trust_nobody().wrap_socket(plain, server_hostname=address.hostname) as secure,
    ):
        return _shown(secure)


def _shown(connected: Any) -> str:
    assert isinstance(connected, ssl.SSLSocket)
    return fingerprint_of(connected.getpeercert(binary_form=True) or b"")


def _trust_nobody() -> ssl.SSLContext:
    """For who compares the fingerprint instead."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    return made


def read_url(text: str, *, insecure_http: bool) -> str:
    """An address without a path, to which a token may be sent."""
    try:
        found = urlsplit(text)
        is_good = found.scheme in ("http", "https") and bool(found.hostname) and found.port != 0
    except ValueError:  # a port that is no number
        is_good = False
    if not is_good or found.path not in ("", "/") or found.query or found.fragment or found.username is not None:
        raise Rejected(f"{text!r} is no address of a server; write it as https://NAME or https://NAME:PORT")
    if found.scheme == "http" and not insecure_http and not is_loopback(found):
        raise Rejected(
            f"{text} would carry your token across the network for everybody on it to read; use https://, or "
            "http://localhost:8080 with a forwarded port (kubectl -n swell port-forward svc/swell 8080); where the "
            f"network is yours alone: swell login {text} --insecure-http"
        )
    return f"{found.scheme}://{found.netloc.removesuffix(':')}"


def is_loopback(address: SplitResult) -> bool:
    try:
        return ipaddress.ip_address(address.hostname or "").is_loopback
    except ValueError:
        return address.hostname == "localhost"
