"""How is a server elsewhere reached, and what keeps it from being reached?"""

from __future__ import annotations

import functools
import http.client
import socket
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from swell.client.place import TIMEOUT_S, NoServer
from swell.client.tokens import Token, expired_at
from swell.errors import Denied, Rejected, SwellError
from swell.machine.server_address import is_loopback, shown_fingerprint, trust_nobody

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
            elsewhere = "" if location is None else f" and redirects to {location}"
            return Rejected(f"{self.url} answers {status}{elsewhere}; log in to the address of the Swell server itself")
        if status in GATEWAY_STATUSES:
            return NoServer(f"{self.url} answers {status}: the server behind it is down; {self._what_to_do()}")
        return type(error)(f"{self.url}: {error}")

    def _token_refusal(self, error: SwellError) -> Denied:
        moment = expired_at(self.token.text())
        told = time.strftime(", which expired at %Y-%m-%d %H:%M:%S UTC", time.gmtime(moment)) if moment else ""
        words = str(error).partition(";")[0]  # what it says of folders and files is not for us
        made = self.token.text().startswith("swt.")  # by Swell itself
        remedy = "on the server's machine, make another: swell token create NAME" if made else self.token.source.remedy
        return Denied(f"{self.url} refuses the token {self.token.source}{told}: {words}; {remedy}")

    def nobody(self) -> NoServer:
        return self.gone("does not answer")

    def gone(self, what: str) -> NoServer:
        return NoServer(f"{self} {what}; {self._what_to_do()}")

    def silent(self) -> NoServer:
        return self.gone(f"did not answer within {TIMEOUT_S:g} s")

    def forbidden(self) -> Denied:
        return Denied(f"this machine does not allow connections to {self.url}; ask its administrator")

    def unreachable(self, error: OSError) -> SwellError:
        """Of what happened before a word was said."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return self._distrust(error)
        if isinstance(error, ssl.SSLError) and error.reason in NO_TLS:
            return Rejected(f"{self.url} does not use TLS; is the address http:// instead?")
        if isinstance(error, socket.gaierror):
            name = urlsplit(self.url).hostname
            return NoServer(
                f"{self.url} cannot be reached: host name {name!r} is unknown; check the name and your network"
            )
        why = f"no answer within {CONNECT_S_MAX:g} s" if isinstance(error, TimeoutError) else error.strerror or error
        return NoServer(f"{self.url} cannot be reached: {why}; {self._what_to_do()}")

    def _distrust(self, error: ssl.SSLCertVerificationError) -> Rejected:
        if error.verify_code in HOST_MISMATCH:
            remedy = "use a host name that is in its certificate"
        elif error.verify_code == EXPIRED:
            remedy = "its operator must renew it"
        elif error.verify_code in SELF_SIGNED and self.ca is None:
            return Untrusted(
                f"the certificate of {self.url} is not trusted: {error.verify_message}; give the fingerprint "
                f"that `swell up` printed on the server: swell login {self.url} --fingerprint SHA256, or the CA "
                "that signed it: --ca FILE"
            )
        elif self.ca is None:
            remedy = f"name the CA that signed it: swell login {self.url} --ca FILE"
        else:
            remedy = f"{self.ca} did not sign it; name another CA file: swell login {self.url} --ca FILE"
        return Rejected(f"the certificate of {self.url} is not trusted: {error.verify_message}; {remedy}")

    def _what_to_do(self) -> str:
        if is_loopback(urlsplit(self.url)):
            return "check that the port is still forwarded, for example: kubectl -n swell port-forward svc/swell 8080"
        return "check your network, or ask its operator; jobs keep running"

    @functools.cached_property
    def _trust(self) -> ssl.SSLContext:
        if self.fingerprint is not None:
            return trust_nobody()
        try:
            return ssl.create_default_context(cafile=self.ca)
        except (ssl.SSLError, OSError) as error:
            why = "it contains no certificate" if isinstance(error, ssl.SSLError) else error.strerror
            raise Rejected(f"the CA file {self.ca} cannot be used: {why}; name a readable PEM file") from error


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
        shown = shown_fingerprint(self.sock)
        if shown != self._remote.fingerprint:
            self.close()
            raise Denied(
                f"the certificate of {self._remote.url} has changed: its fingerprint is {shown}, not "
                f"{self._remote.fingerprint}. Someone may be intercepting the connection; if the operator has a "
                f"new certificate, log in again: swell login {self._remote.url} --fingerprint …"
            )


def fetch_fingerprint(url: str) -> str:
    """What the server shows now; nothing is sent to it."""
    address = urlsplit(url)
    where = (address.hostname or "", address.port or http.client.HTTPS_PORT)
    with (
        socket.create_connection(where, timeout=CONNECT_S_MAX) as plain,
        trust_nobody().wrap_socket(plain, server_hostname=address.hostname) as secure,
    ):
        return shown_fingerprint(secure)
