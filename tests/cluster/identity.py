"""How does a test ask as somebody other than the administrator, and what did they ask?"""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .api import Object

CREDENTIAL = "client.authentication.k8s.io/v1"
ISSUER = "https://kubernetes.default.svc"
#: Of service accounts, each call with its verb; of others, none.
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}],
}


@dataclass(frozen=True, slots=True, order=True)
class Asked:
    """A call, in RBAC's words."""

    verb: str
    group: str
    resource: str  #: with its subresource: pods/log
    namespace: str
    code: int


def asked(log: Path, user: str) -> list[Asked]:
    """What this service account has asked for, beside which kinds there are."""
    events = [json.loads(line) for line in log.read_text().splitlines()]
    return [_asked(event) for event in events if event["user"]["username"] == user and "objectRef" in event]


def acted_for(log: Path, user: str) -> list[tuple[str, str, str, list[str]]]:
    """What this service account has asked for in whose name: verb, resource, user, and for which job of Swell's."""
    events = [json.loads(line) for line in log.read_text().splitlines()]
    found = [event for event in events if event["user"]["username"] == user and "impersonatedUser" in event]
    return [
        (
            event["verb"],
            event["objectRef"]["resource"],
            event["impersonatedUser"]["username"],
            event["impersonatedUser"].get("extra", {}).get("swell.dev/job", []),
        )
        for event in found
    ]


def _asked(event: Object) -> Asked:
    about = event["objectRef"]
    what = "/".join(about[part] for part in ("resource", "subresource") if part in about)
    code = event["responseStatus"]["code"]
    return Asked(event["verb"], about.get("apiGroup", ""), what, about.get("namespace", ""), code)


class Login:
    """A kubeconfig of somebody whose token a program hands out, as those of clouds do; each call asks for it."""

    def __init__(self, folder: Path, admin: Path, namespace: str) -> None:
        self.kubeconfig = folder / "kubeconfig"
        self._credential = folder / "credential"
        plugin = {"apiVersion": CREDENTIAL, "command": "cat", "args": [str(self._credential)]}
        document = json.loads(admin.read_text())
        document["users"][0] = {"name": "somebody", "user": {"exec": {**plugin, "interactiveMode": "Never"}}}
        document["contexts"][0]["context"] |= {"user": "somebody", "namespace": namespace}
        self.kubeconfig.write_text(json.dumps(document))
        self.token = ""

    def use(self, token: str) -> None:
        self.token = token
        status = {"token": token, "expirationTimestamp": "2000-01-01T00:00:00Z"}
        written = self._credential.with_suffix(".new")
        written.write_text(json.dumps({"apiVersion": CREDENTIAL, "kind": "ExecCredential", "status": status}))
        written.replace(self._credential)


def expired_token(key: Path, account: Object) -> str:
    """Of a service account, as the API server made it an hour ago for half an hour."""
    began = int(time.time()) - 3600
    metadata = account["metadata"]
    namespace, name = metadata["namespace"], metadata["name"]
    whose = {"namespace": namespace, "serviceaccount": {"name": name, "uid": metadata["uid"]}}
    claims = {
        "iss": ISSUER,
        "aud": [ISSUER],
        "sub": f"system:serviceaccount:{namespace}:{name}",
        "iat": began,
        "nbf": began,
        "exp": began + 1800,
        "kubernetes.io": whose,
    }
    signed = ".".join(_encoded(json.dumps(part).encode()) for part in ({"alg": "RS256", "typ": "JWT"}, claims))
    words: Iterable[str | Path] = ("openssl", "dgst", "-sha256", "-sign", key)
    signature = subprocess.run([*words], input=signed.encode(), capture_output=True, check=True).stdout
    return f"{signed}.{_encoded(signature)}"


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
