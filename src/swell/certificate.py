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
import os
import re
import ssl
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from swell.config import Config
from swell.errors import Rejected, Unavailable
from swell.listening import Listening
from swell.state import StateFolder

DAYS = 3650  # nobody renews it; who compares fingerprints does not look at the date
OPENSSL_S_MAX = 60.0
FINGERPRINT = re.compile(r"(?:sha-?256(?: fingerprint)?[:=])?((?:[0-9a-f]{2}:?){31}[0-9a-f]{2})", re.IGNORECASE)
PEM = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


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
            raise Rejected(f"--tls-cert {self.chain} has no certificate in PEM; name a file that has one")
        return fingerprint_of(ssl.PEM_cert_to_DER_cert(found[0]))

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
                f"--tls-cert {self.chain} and --tls-key {self.key} cannot be used together: {error.reason or error}; "
                "name a certificate in PEM and the key it was made for, without a password"
            ) from error
        return made


def certificate_of(state: StateFolder, config: Config, beyond: Listening | None) -> Certificate | None:
    """None: no TLS of ours is spoken."""
    if beyond is None or not beyond.is_secure:
        return None
    if config.tls_cert is not None and config.tls_key is not None:
        return Certificate(Path(config.tls_cert), Path(config.tls_key), is_own=False)
    return own_certificate(state, beyond.hosts)


def fingerprint_of(certificate: bytes) -> str:
    return _written(hashlib.sha256(certificate).hexdigest())


def read_fingerprint(text: str) -> str:
    """With or without colons and the name of the hash; as `fingerprint_of` writes it."""
    found = FINGERPRINT.fullmatch(text.strip())
    if found is None:
        raise Rejected(
            f"--fingerprint {text[:100]!r} is no SHA-256 fingerprint; write the 64 hexadecimal digits that `swell up` "
            "printed where the server runs"
        )
    return _written(found[1])


def _written(digits: str) -> str:
    plain = digits.replace(":", "").upper()
    return ":".join(plain[at : at + 2] for at in range(0, len(plain), 2))


def own_certificate(state: StateFolder, hosts: Iterable[str]) -> Certificate:
    """Made when there is none yet. To have another: remove both files."""
    found = Certificate(state.root / "tls-cert.pem", state.root / "tls-key.pem", is_own=True)
    if not found.chain.exists() or not found.key.exists():
        _make(found, sorted({_subject(host) for host in hosts}))
    return found


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
    return "install openssl 1.1.1 or newer, name a certificate with --tls-cert and --tls-key, or say --plain-http"


def _subject(host: str) -> str:
    name = re.sub(r":\d*$", "", host).strip("[]")
    try:
        return f"IP:{ipaddress.ip_address(name)}"
    except ValueError:
        return f"DNS:{name}"


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise Rejected(f"{path} cannot be read: {why}; name a file in PEM that the server may read") from error
