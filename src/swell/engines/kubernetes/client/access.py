"""Where is the API server, and who are we there?

Looked for as kubectl does: the file that was named, the files of KUBECONFIG, ~/.kube/config, and last the service
account of the pod we run in. Several files are one: whoever says something first is right, and a relative path is
relative to the file it stands in.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import os
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from swell.engines.kubernetes.client.credentials import (
    ClientCertificate,
    Credential,
    Credentials,
    Files,
    Fixed,
    Plugin,
    loaded_certificate,
)
from swell.errors import Rejected

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
LOOKED_FOR = "name one with --kubeconfig FILE or KUBECONFIG, or run in a pod with a service account"


@dataclass(frozen=True, slots=True)
class Access:
    """One API server and one identity."""

    server: str  #: scheme, host, port and perhaps a path; no slash at its end
    namespace: str
    credentials: Credentials
    source: str  #: who says so, for messages: "context 'prod' of /home/eva/.kube/config"
    authority: bytes | None = None  #: PEM; None: the authorities this machine trusts
    is_insecure: bool = False  #: anybody may claim to be the server
    server_name: str | None = None  #: the name its certificate must carry; None: the host's
    home: str | None = None  #: the namespace of the pod that we run in; None: we run in none

    def tls(self, certificate: ClientCertificate | None) -> ssl.SSLContext:
        # Not create_default_context: from Python 3.13 on it refuses authorities such as kubeadm's for formal reasons.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.is_insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif self.authority is None:
            context.load_default_certs()
        else:
            self._trust(context, self.authority)
        if certificate is not None:
            loaded_certificate(context, certificate, self.source)
        return context

    def _trust(self, context: ssl.SSLContext, authority: bytes) -> None:
        try:
            context.load_verify_locations(cadata=authority.decode("ascii"))
        except (ssl.SSLError, UnicodeDecodeError) as error:
            raise Rejected(f"the certificate authority of {self.source} is no PEM certificate: {error}") from error


def find_access(
    kubeconfig: Path | None = None,
    context: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    account: Path = SERVICE_ACCOUNT,
) -> Access:
    """Reads files; asks nobody."""
    files = _kubeconfigs(kubeconfig, environ)
    if files:
        return _Kubeconfig(files).access(context)
    if "KUBERNETES_SERVICE_HOST" in environ:
        return _pod_access(environ, account)
    raise Rejected(f"there is no kubeconfig: {_default(environ)} does not exist; {LOOKED_FOR}")


# -- in a pod ----------------------------------------------------------------------------------------------------------


def _pod_access(environ: Mapping[str, str], account: Path) -> Access:
    source = f"the service account in {account}"
    for name in ("token", "ca.crt", "namespace"):
        if not (account / name).is_file():
            raise Rejected(
                f"this pod has no service account: {account / name} does not exist; "
                "set serviceAccountName, and automountServiceAccountToken to true"
            )
    host = environ["KUBERNETES_SERVICE_HOST"]
    namespace = (account / "namespace").read_text().strip()
    where = f"[{host}]" if ":" in host else host
    return Access(
        server=f"https://{where}:{environ.get('KUBERNETES_SERVICE_PORT', '443')}",
        namespace=namespace,
        credentials=Files(source, token=account / "token"),
        source=source,
        authority=(account / "ca.crt").read_bytes(),
        home=namespace,
    )


# -- kubeconfig --------------------------------------------------------------------------------------------------------


def _default(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or Path.home()) / ".kube/config"


def _kubeconfigs(named: Path | None, environ: Mapping[str, str]) -> list[Path]:
    """Those that exist. Of several in KUBECONFIG some may be missing, as kubectl has it."""
    if named is not None:
        if not named.is_file():
            raise Rejected(f"there is no kubeconfig {named}; {LOOKED_FOR}")
        return [named]
    listed = [Path(name) for name in environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    there = [path for path in listed or [_default(environ)] if path.is_file()]
    if listed and not there:
        raise Rejected(f"KUBECONFIG names {', '.join(map(str, listed))}, which does not exist; {LOOKED_FOR}")
    return there


@dataclass(frozen=True, slots=True)
class _Entry:
    """A cluster, user or context, and the file it stands in."""

    kind: str
    name: str
    value: Mapping[str, Any]
    path: Path

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} of {self.path}"

    def text(self, field: str) -> str | None:
        value = self.value.get(field)
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            raise Rejected(f"{field} of {self} must be text, but is {value!r}")
        return value

    def file(self, field: str) -> Path | None:
        name = self.text(field)
        return None if name is None else self.path.parent / name

    def bytes(self, field: str) -> bytes | None:
        """Inline as FIELD-data, or in the file FIELD; inline wins, as kubectl has it."""
        inline = self.text(f"{field}-data")
        if inline is not None:
            try:
                return base64.b64decode(inline, validate=True)
            except binascii.Error as error:
                raise Rejected(f"{field}-data of {self} is no base64: {error}") from error
        path = self.file(field)
        if path is None:
            return None
        try:
            return path.read_bytes()
        except OSError as error:
            raise Rejected(f"{field} of {self} names {path}, which cannot be read: {error.strerror}") from error

    def refuse(self, field: str, instead: str) -> None:
        if self.value.get(field):
            raise Rejected(f"{self} has {field}, which Swell does not use; {instead}")


class _Kubeconfig:
    """Several files as one."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.paths = tuple(paths)
        documents = [(path, _document(path)) for path in self.paths]
        self.current = next((d["current-context"] for _, d in documents if d.get("current-context")), None)
        self.clusters = _entries(documents, "cluster")
        self.users = _entries(documents, "user")
        self.contexts = _entries(documents, "context")

    def access(self, wanted: str | None) -> Access:
        context = self._context(wanted)
        cluster = self._named(self.clusters, "cluster", context)
        server = cluster.text("server")
        if server is None:
            raise Rejected(f"{cluster} names no server; add `server: https://HOST:6443` to it")
        if not _is_address(server):
            raise Rejected(f"the server of {cluster} must look like https://HOST:6443, but is {server!r}")
        cluster.refuse("proxy-url", "name a server that can be reached directly")
        user = self._named(self.users, "user", context) if context.text("user") else None
        return Access(
            server=server.rstrip("/"),
            namespace=context.text("namespace") or "default",
            credentials=Fixed(Credential(), str(context)) if user is None else _credentials(user, cluster),
            source=str(context),
            authority=cluster.bytes("certificate-authority"),
            is_insecure=cluster.value.get("insecure-skip-tls-verify") is True,
            server_name=cluster.text("tls-server-name"),
        )

    def _context(self, wanted: str | None) -> _Entry:
        name = wanted or self.current
        where = ", ".join(map(str, self.paths))
        known = ", ".join(sorted(self.contexts)) or "none"
        if name is None:
            raise Rejected(f"{where} has no current-context; choose one with --context (there are: {known})")
        if name not in self.contexts:
            close = difflib.get_close_matches(str(name), self.contexts, n=1)
            hint = f"did you mean {close[0]!r}?" if close else "choose another with --context"
            raise Rejected(f"there is no context {name!r} in {where} (there are: {known}); {hint}")
        return self.contexts[name]

    @staticmethod
    def _named(entries: Mapping[str, _Entry], kind: str, context: _Entry) -> _Entry:
        name = context.text(kind)
        if name is None or name not in entries:
            known = ", ".join(sorted(entries)) or "none"
            raise Rejected(f"{context} wants {kind} {name!r}, which is not there (there are: {known})")
        return entries[name]


def _is_address(server: str) -> bool:
    try:
        parts = urlsplit(server)
        return parts.scheme in ("https", "http") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        return False


def _document(path: Path) -> Mapping[str, Any]:
    try:
        document = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise Rejected(f"the kubeconfig {path} cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise Rejected(f"the kubeconfig {path} is no YAML: {error}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise Rejected(f"{path} is no kubeconfig: it must be a mapping with clusters, users and contexts")
    return document


def _entries(documents: list[tuple[Path, Mapping[str, Any]]], kind: str) -> dict[str, _Entry]:
    found: dict[str, _Entry] = {}
    for path, document in documents:
        for item in document.get(f"{kind}s") or ():
            value = item.get(kind) if isinstance(item, dict) else None
            if not isinstance(item, dict) or not isinstance(value or {}, dict) or "name" not in item:
                raise Rejected(f"{kind}s of {path} must be a list of `name` and `{kind}`, but has {item!r}")
            found.setdefault(item["name"], _Entry(kind, item["name"], value or {}, path))
    return found


def _credentials(user: _Entry, cluster: _Entry) -> Credentials:
    user.refuse("auth-provider", "let its command line write an `exec` entry instead")
    extra = _impersonation(user)
    certificate = _certificate(user)
    plugin = user.value.get("exec")
    if plugin:
        return Plugin.from_entry(plugin, str(user), user.path.parent, dict(cluster.value), extra)
    token = user.text("token")
    token_file = user.file("tokenFile")
    if token_file is not None:  # it is the newer one: whoever writes both refreshes the file
        return Files(str(user), token=token_file, certificate=certificate, extra=extra)
    if token is not None:
        return Fixed(Credential.bearer(token, certificate, extra), str(user))
    name, password = user.text("username"), user.text("password")
    if name is not None and password is not None:
        return Fixed(Credential.basic(name, password, extra), str(user))
    return Fixed(Credential(extra, certificate), str(user))


def _certificate(user: _Entry) -> ClientCertificate | None:
    chain, key = user.bytes("client-certificate"), user.bytes("client-key")
    if chain is None and key is None:
        return None
    if chain is None or key is None:
        there, missing = ("client-key", "client-certificate") if chain is None else ("client-certificate", "client-key")
        raise Rejected(f"{user} has {there} and no {missing}; a client certificate needs both")
    return ClientCertificate(chain, key)


def _impersonation(user: _Entry) -> tuple[tuple[str, str], ...]:
    headers = [("Impersonate-User", user.text("as")), ("Impersonate-Uid", user.text("as-uid"))]
    headers += [("Impersonate-Group", str(group)) for group in user.value.get("as-groups") or ()]
    user.refuse("as-user-extra", "use a user without it")
    return tuple((name, value) for name, value in headers if value is not None)
