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


def _asked(event: Object) -> Asked:
    about = event["objectRef"]
    what = "/".join(about[part] for part in ("resource", "subresource") if part in about)
    code = event["responseStatus"]["code"]
    return Asked(event["verb"], about.get("apiGroup", ""), what, about.get("namespace", ""), code)


def write_kubeconfig(path: Path, admin: Path, user: Object, namespace: str) -> Path:
    """The same cluster, as another user: `{"token": …}` or `{"tokenFile": …}`."""
    document = json.loads(admin.read_text())
    document["users"][0]["user"] = user
    document["contexts"][0]["context"]["namespace"] = namespace
    path.touch(mode=0o600)
    path.write_text(json.dumps(document))
    return path


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
