"""Which certificate does a server show beyond loopback, and how do others know it again?

One that the operator names; or one of our own, made once and kept in the state folder, as ssh keeps a host's key:
nobody vouches for it, so clients compare its fingerprint with what `swell up` printed. The names in it are those of the
day it was made; who compares the fingerprint need not look at them, and it stays the same when names change.

It is made by the `openssl` program: a library would be fifteen megabytes that everybody installs and keeps up to date
for what a few servers do once.
"""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import os
import re
import ssl
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from swell.config import Config
from swell.errors import Rejected, Unavailable
from swell.machine.listening import Listening
from swell.machine.state_folder import StateFolder

DAYS = 3650  # nobody renews it; who compares fingerprints does not look at the date
OPENSSL_S_MAX = 60.0
FINGERPRINT = re.compile(r"(?:sha-?256(?: fingerprint)?[:=])?((?:[0-9a-f]{2}:?){31}[0-9a-f]{2})", re.IGNORECASE)
PEM = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Certificate:
    chain: Path  #: in PEM, the server's own first
    key: Path
    is_own: bool  #: made by us: nobody else vouches for it

    @property
    def fingerprint(self) -> str:
        """SHA-256, as `openssl x509 -fingerprint -sha256` writes it."""
        found = PEM.search(_read(self.chain))
        if found is None:
            raise Rejected(f"--tls-cert {self.chain} contains no PEM certificate; name a file that contains one")
        return fingerprint_of(ssl.PEM_cert_to_DER_cert(found[0]))

    def versions(self) -> list[tuple[int, ...] | None]:
        """Other ones when a file has been replaced or written; None: it is not there."""
        return [_version(path) for path in (self.chain, self.key)]

    def context(self) -> ssl.SSLContext:
        """For a server."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        for path in (self.chain, self.key):
            _read(path)  # what cannot be read is said by name
        try:
            made.load_cert_chain(self.chain, self.key)
        except ssl.SSLError as error:
            raise Rejected(
                f"--tls-cert {self.chain} and --tls-key {self.key} cannot be used together: "
                f"{error.reason or error}; name a PEM certificate and its private key, without a password"
            ) from error
        return made


class ServedCertificate:
    """What new connections are shown. One that an operator names is read again when its files have changed."""

    def __init__(self, certificate: Certificate) -> None:
        self._certificate = certificate
        self._read = certificate.versions()
        self._refused: object = None  #: versions that could not be used and were complained of
        self._context = certificate.context()

    def context(self) -> ssl.SSLContext:
        return self._context

    def look(self) -> None:
        """Now and then. What cannot be used, perhaps because one of two files is not there yet, changes nothing."""
        found = self._certificate.versions()
        if self._certificate.is_own or found == self._read:  # clients know ours by its fingerprint: it stays
            return
        try:
            self._context = self._certificate.context()
        except Rejected as error:
            if found != self._refused:
                log.warning("a changed certificate is not used; the last is still shown: %s", error)
            self._refused = found
            return
        self._read = found
        log.info("a changed certificate is used; its SHA-256 fingerprint is %s", self._certificate.fingerprint)


def certificate_of(state: StateFolder, config: Config, beyond: Listening | None) -> Certificate | None:
    """None: no TLS of ours is spoken."""
    if beyond is None or not beyond.is_secure:
        return None
    if config.tls_cert is not None and config.tls_key is not None:
        return Certificate(Path(config.tls_cert), Path(config.tls_key), is_own=False)
    return own_certificate(state, beyond.hosts)


@contextmanager
def certificate_for_start(state: StateFolder, config: Config, beyond: Listening | None) -> Iterator[Certificate | None]:
    """As `certificate_of`; one that was made for a start that fails is removed: its names are of no server."""
    had_own = _own(state).chain.exists()
    certificate = certificate_of(state, config, beyond)
    try:
        yield certificate
    except BaseException:
        if certificate is not None and certificate.is_own and not had_own:
            for path in (certificate.chain, certificate.key):
                path.unlink(missing_ok=True)
        raise


def way_for_others(beyond: Listening | None, certificate: Certificate | None) -> list[str]:
    """What they are told, with what they know its certificate by; nothing without one."""
    if beyond is None or certificate is None:
        return []
    pin = f" --fingerprint {certificate.fingerprint}" if certificate.is_own else ""
    return [
        f"other machines reach this server at {beyond.url}; the SHA-256 fingerprint of its certificate is",
        f"  {certificate.fingerprint}",
        f"to log in there with one of your tokens, run: swell login {beyond.url} --token-file FILE{pin}",
    ]


def fingerprint_of(certificate: bytes) -> str:
    return _written(hashlib.sha256(certificate).hexdigest())


def read_fingerprint(text: str) -> str:
    """With or without colons and the name of the hash; as `fingerprint_of` writes it."""
    found = FINGERPRINT.fullmatch(text.strip())
    if found is None:
        raise Rejected(
            f"--fingerprint {text[:100]!r} is not a SHA-256 fingerprint; write the 64 hexadecimal digits that "
            "`swell up` printed on the server"
        )
    return _written(found[1])


def _written(digits: str) -> str:
    plain = digits.replace(":", "").upper()
    return ":".join(plain[at : at + 2] for at in range(0, len(plain), 2))


def own_certificate(state: StateFolder, hosts: Iterable[str]) -> Certificate:
    """Made when there is none yet. To have another: remove both files."""
    found = _own(state)
    if not found.chain.exists() or not found.key.exists():
        _make(found, sorted({_subject(host) for host in hosts}))
    return found


def _own(state: StateFolder) -> Certificate:
    return Certificate(state.root / "tls-cert.pem", state.root / "tls-key.pem", is_own=True)


def _make(certificate: Certificate, subjects: list[str]) -> None:
    """Beside, then renamed, the key first: half of a pair is never taken for one."""
    with tempfile.TemporaryDirectory(dir=certificate.key.parent, prefix=".tls-") as folder:
        key, chain = Path(folder) / "key", Path(folder) / "chain"
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-sha256"),
            *("-days", str(DAYS), "-subj", "/CN=Swell", "-addext", f"subjectAltName={','.join(subjects)}"),
            *("-keyout", str(key), "-out", str(chain)),
        )
        key.chmod(0o600)
        key.replace(certificate.key)
        chain.replace(certificate.chain)


def _openssl(*words: str) -> None:
    try:
        done = subprocess.run(
            ["openssl", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=OPENSSL_S_MAX,
            check=False,
            env={**os.environ, "OPENSSL_CONF": "/dev/null"},
            umask=0o077,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"making a certificate: openssl cannot be run ({error}); {_instead()}") from error
    if done.returncode != 0:
        raise Unavailable(f"making a certificate: openssl: {done.stderr.strip()[-500:]}; {_instead()}")


def _instead() -> str:
    return "install openssl 1.1.1 or newer, name a certificate with --tls-cert and --tls-key, or use --plain-http"


def _subject(host: str) -> str:
    name = re.sub(r":\d*$", "", host).strip("[]")
    try:
        return f"IP:{ipaddress.ip_address(name)}"
    except ValueError:
        return f"DNS:{name}"


def _version(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise Rejected(f"{path} cannot be read: {why}; name a PEM file that the server can read") from error
