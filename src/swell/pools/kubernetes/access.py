"""Where is the API server of a pool, and who are we there?"""

from __future__ import annotations

from pathlib import Path

from swell.engines.kubernetes.client.access import Access, find_access
from swell.engines.kubernetes.client.credentials import Credential, Credentials, Files, Fixed
from swell.errors import Rejected
from swell.pools.kubernetes.options import CERTIFICATE_BYTES_MAX, KubernetesOptions

DEFAULT_NAMESPACE = "default"


def access_of(options: KubernetesOptions) -> Access:
    if options.cluster_host is None:
        return find_access(options.kubeconfig, options.context)
    source = "--auth-token of the pool" if options.auth_token else f"--auth-token-file {options.auth_token_file}"
    return Access(
        server=options.cluster_host.rstrip("/"),
        namespace=DEFAULT_NAMESPACE,
        credentials=_credentials(options, source),
        source=source,
        authority=_authority(options.cert, options.cert_path),
    )


def _credentials(options: KubernetesOptions, source: str) -> Credentials:
    if options.auth_token:
        return Fixed(Credential.bearer(options.auth_token), source)
    assert options.auth_token_file is not None
    return Files(source, token=options.auth_token_file)


def _authority(text: str | None, path: Path | None) -> bytes | None:
    """CodaLab's command lines say `--cert-path /dev/null --cert TEXT`: text wins."""
    if text:
        return text.replace("\\n", "\n").encode()
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            return file.read(CERTIFICATE_BYTES_MAX) or None
    except OSError as error:
        raise Rejected(f"--cert-path {path} cannot be read: {error.strerror}") from error
