"""What shows the API server who we are, and is it still good?

Tokens end: a pod's after an hour, a plugin's when it says so. Whoever asks gets what is good now; after the API server
has refused one (401) it is fetched anew at once, and whether there was another is the answer.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import json
import os
import re
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from swell.errors import Rejected, Unavailable

READ_AGAIN_S = 60.0  # the kubelet renews a token when a fifth of its hour is left
PLUGIN_S = 60.0  # longer, and somebody is asked for a password on a terminal that is not there
EARLY_S = 30.0  # a token that ends while a request travels is no token
PLUGIN_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """A client certificate with its key, both PEM."""

    chain: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class Credential:
    """What one request carries."""

    headers: Headers = ()
    certificate: ClientCertificate | None = None  #: None: the connection itself says nothing about us

    @classmethod
    def bearer(cls, token: str, certificate: ClientCertificate | None = None, extra: Headers = ()) -> Credential:
        return cls((("Authorization", f"Bearer {token}"), *extra), certificate)

    @classmethod
    def basic(cls, name: str, password: str, extra: Headers = ()) -> Credential:
        pair = base64.b64encode(f"{name}:{password}".encode()).decode()
        return cls((("Authorization", f"Basic {pair}"), *extra))

    def end(self) -> datetime.datetime | None:
        """When it ends, as far as it says so itself."""
        found = [_end_of_token(value) for name, value in self.headers if name == "Authorization"]
        if self.certificate is not None:
            found.append(_end_of_certificate(self.certificate.chain))
        return min((end for end in found if end is not None), default=None)


class Credentials(Protocol):
    """Where they come from. Safe for several threads."""

    @property
    def source(self) -> str:
        """Who says so, for messages."""

    def current(self) -> Credential:
        """Good now, as far as we know."""

    def refused(self, credential: Credential) -> bool:
        """The API server did not take this one. Is there another now?"""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Written into the kubeconfig."""

    credential: Credential
    source: str

    def current(self) -> Credential:
        return self.credential

    def refused(self, credential: Credential) -> bool:
        return False


class Renewed:
    """Fetched again when it is old or was refused; one thread fetches, the others wait for it."""

    def __init__(self, source: str, monotonic: Callable[[], float]) -> None:
        self.source = source
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._credential: Credential | None = None
        self._good_until = 0.0

    def fetch(self) -> tuple[Credential, float]:
        """And for how many seconds it is good."""
        raise NotImplementedError

    def current(self) -> Credential:
        with self._lock:
            if self._credential is None or self._monotonic() >= self._good_until:
                self._fetch()
            assert self._credential is not None
            return self._credential

    def refused(self, credential: Credential) -> bool:
        with self._lock:
            if self._credential == credential:  # otherwise another thread was here first
                self._fetch()
            return self._credential != credential

    def _fetch(self) -> None:
        self._credential, good_s = self.fetch()
        self._good_until = self._monotonic() + good_s


class Files(Renewed):
    """A token that somebody else keeps fresh in a file."""

    def __init__(
        self,
        source: str,
        *,
        token: Path,
        certificate: ClientCertificate | None = None,
        extra: Headers = (),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(source, monotonic)
        self._token = token
        self._certificate = certificate
        self._extra = extra

    def fetch(self) -> tuple[Credential, float]:
        try:
            token = self._token.read_text().strip()
        except OSError as error:
            raise Unavailable(f"the token of {self.source}, {self._token}, cannot be read: {error.strerror}") from error
        if not token:
            raise Unavailable(f"the token of {self.source} is empty; look at {self._token}")
        return Credential.bearer(token, self._certificate, self._extra), READ_AGAIN_S


@dataclass(frozen=True, slots=True)
class PluginCall:
    """A program that prints a credential, as `exec` of a kubeconfig names it."""

    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    version: str
    hint: str  #: what its vendor says about installing it; may be empty

    def run(self, source: str, environ: Mapping[str, str]) -> Mapping[str, Any]:
        """The `status` of what it printed."""
        doing = f"getting a credential for {source} with `{' '.join(self.argv)}`"
        try:
            done = subprocess.run(
                self.argv,
                env={**environ, **dict(self.environment)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PLUGIN_S,
                check=False,
            )
        except OSError as error:
            raise Unavailable(f"{doing}: {error.strerror}; install it. {self.hint}".rstrip(". ")) from error
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"{doing}: no answer within {PLUGIN_S:g} s; try it by hand") from error
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
            raise Unavailable(f"{doing}: {said}; log in again, then try it by hand")
        return self._status(done.stdout, doing)

    def _status(self, output: bytes, doing: str) -> Mapping[str, Any]:
        try:
            document = json.loads(output)
            if document["kind"] == "ExecCredential" and document["apiVersion"] == self.version:
                status: Mapping[str, Any] = dict(document["status"])
                return status
        except (ValueError, KeyError, TypeError):
            pass
        raise Unavailable(f"{doing}: it must print an ExecCredential of {self.version}, but printed {output[:200]!r}")


class Plugin(Renewed):
    """A token or certificate that a cloud's own program hands out."""

    def __init__(self, source: str, call: PluginCall, extra: Headers = ()) -> None:
        super().__init__(source, time.monotonic)
        self._call = call
        self._extra = extra

    @classmethod
    def from_entry(
        cls, entry: Mapping[str, Any], source: str, folder: Path, cluster: dict[str, Any], extra: Headers
    ) -> Plugin:
        version, command = entry.get("apiVersion"), entry.get("command")
        if version not in PLUGIN_VERSIONS:
            raise Rejected(
                f"exec of {source} speaks {version!r}, and Swell {' and '.join(PLUGIN_VERSIONS)}; "
                "update the program, and let it write its entry anew"
            )
        if not isinstance(command, str) or not command:
            raise Rejected(f"exec of {source} names no command")
        if entry.get("interactiveMode") == "Always":
            raise Rejected(f"exec of {source} wants a terminal (interactiveMode: Always), and a server has none")
        if os.sep in command:
            command = str(folder / command)
        info: dict[str, Any] = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
        if entry.get("provideClusterInfo"):
            info["spec"]["cluster"] = cluster
        environment = [(str(item["name"]), str(item["value"])) for item in entry.get("env") or ()]
        call = PluginCall(
            argv=(command, *(str(word) for word in entry.get("args") or ())),
            environment=(*environment, ("KUBERNETES_EXEC_INFO", json.dumps(info))),
            version=version,
            hint=str(entry.get("installHint") or "").strip(),
        )
        return cls(source, call, extra)

    def fetch(self) -> tuple[Credential, float]:
        status = self._call.run(self.source, os.environ)
        chain, key, token = (status.get(f) for f in ("clientCertificateData", "clientKeyData", "token"))
        certificate = ClientCertificate(chain.encode(), key.encode()) if chain and key else None
        if not token and certificate is None:
            raise Unavailable(f"the program of {self.source} printed neither token nor certificate; try it by hand")
        credential = (
            Credential.bearer(token, certificate, self._extra) if token else Credential(self._extra, certificate)
        )
        return credential, _seconds_left(status.get("expirationTimestamp"))


def _seconds_left(moment: object) -> float:
    """Until shortly before it ends; a credential without an end is good until it is refused."""
    if not isinstance(moment, str):
        return float("inf")
    try:
        end = datetime.datetime.fromisoformat(moment)
        return (end - datetime.datetime.now(datetime.UTC)).total_seconds() - EARLY_S
    except (ValueError, TypeError):  # no moment, or one without a time zone
        return READ_AGAIN_S


def loaded_certificate(context: ssl.SSLContext, certificate: ClientCertificate, source: str) -> None:
    """OpenSSL reads files only; this one is in memory and never on a disk."""
    descriptor = os.memfd_create("client-certificate")
    try:
        os.write(descriptor, certificate.chain.rstrip() + b"\n" + certificate.key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    except ssl.SSLError as error:
        raise Rejected(f"the client certificate and key of {source} are no pair in PEM: {error}") from error
    finally:
        os.close(descriptor)


def _end_of_token(header: str) -> datetime.datetime | None:
    """A JSON web token carries its end; others do not."""
    parts = header.removeprefix("Bearer ").split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return datetime.datetime.fromtimestamp(claims["exp"], datetime.UTC)
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


#: Validity in a certificate: a sequence of two times, each of 13 or of 15 characters.
VALIDITY = re.compile(rb"\x30.(?:\x17\x0d\d{12}Z|\x18\x0f\d{14}Z)(?:\x17\x0d(\d{12})Z|\x18\x0f(\d{14})Z)", re.DOTALL)


def _end_of_certificate(pem: bytes) -> datetime.datetime | None:
    """Only for messages: the standard library reads no certificate but the other side's."""
    text = pem.decode("ascii", "replace")
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    try:
        der = base64.b64decode(text.split(begin, 1)[1].split(end, 1)[0])
    except (IndexError, binascii.Error):
        return None
    found = VALIDITY.search(der)
    if found is None:
        return None
    short, long = found.groups()
    digits = long.decode() if long else ("20" if short < b"50" else "19") + short.decode()
    return datetime.datetime.strptime(digits + "+0000", "%Y%m%d%H%M%S%z")
