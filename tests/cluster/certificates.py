"""Which certificates do the API server and the webhooks show? One pair for all, from an authority of our own.

The training operator's rotator keeps what it finds in its Secret only if the authority's key is PKCS#1, the authority
may sign and carries the rotator's own name, and the certificate names the operator's Service; else it silently makes
its own, which the files the webhook serves are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .processes import run

DAYS = "3650"
SERVICES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "training-operator.kubeflow.svc",
    "jobset-webhook-service.jobset-system.svc",
)
AUTHORITY = """[req]
distinguished_name = name
x509_extensions = extensions
prompt = no
[name]
CN = swell-tests
[extensions]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign, digitalSignature
subjectAltName = DNS:training-operator-ca, DNS:jobset-ca
"""


@dataclass(frozen=True, slots=True)
class Certificates:
    """Where the files are: ca.crt, ca.key, tls.crt, tls.key; and a key pair that signs service accounts' tokens."""

    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def authority_key(self) -> Path:
        return self.folder / "ca.key"

    @property
    def server(self) -> Path:
        return self.folder / "tls.crt"

    @property
    def server_key(self) -> Path:
        return self.folder / "tls.key"

    @property
    def account_key(self) -> Path:
        return self.folder / "accounts.key"


def make_certificates(folder: Path, *addresses: str) -> Certificates:
    """A new authority, and a certificate for these addresses and every Service that is asked for by name."""
    made = Certificates(folder)
    folder.mkdir(parents=True)
    (folder / "ca.conf").write_text(AUTHORITY)
    for key in (made.authority_key, made.server_key, made.account_key):
        run("openssl", "genrsa", "-traditional", "-out", key, "2048")
    authority = ("-config", folder / "ca.conf", "-key", made.authority_key, "-days", DAYS, "-out", made.authority)
    run("openssl", "req", "-x509", "-new", *authority)
    names = [f"IP:{address}" for address in dict.fromkeys(addresses)] + [f"DNS:{name}" for name in SERVICES]
    extensions = folder / "tls.ext"
    extensions.write_text(f"subjectAltName = {', '.join(names)}\nextendedKeyUsage = serverAuth\n")
    request = folder / "tls.csr"
    run("openssl", "req", "-new", "-key", made.server_key, "-subj", "/CN=swell-tests-server", "-out", request)
    signed_by = ("-CA", made.authority, "-CAkey", made.authority_key, "-CAcreateserial")
    run(
        "openssl",
        "x509",
        "-req",
        "-in",
        request,
        *signed_by,
        "-days",
        DAYS,
        "-extfile",
        extensions,
        "-out",
        made.server,
    )
    return made
