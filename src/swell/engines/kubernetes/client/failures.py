"""What does a refusal of the API server mean to us?

    Rejected            400 404-on-create 405 406 413 415 422, 403 from admission (quota, pod security)
    ├── AlreadyExists   409 on create
    ├── Conflict        409: somebody else was faster; read again
    ├── NotFound        404
    └── Denied          403: our role lacks a verb
    Unavailable         lost connections, timeouts
    ├── Expired         410: that resourceVersion is too old; list again
    ├── Busy            429
    ├── ServerError     5xx: it answered, and could not do it
    ├── Silent          nothing came for too long
    └── Unauthorized    401: our credential, not the user's request, is at fault

The API server's own words are quoted whole.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from swell.engines.kubernetes.client.credentials import Credential
from swell.engines.kubernetes.client.resources import Resource
from swell.errors import Conflict, Denied, NotFound, Rejected, SwellError, TooLarge, Unavailable

QUOTED_MAX = 2000  # of an answer that is no Status: a gateway's page


class AlreadyExists(Rejected):
    pass


class Expired(Unavailable):
    pass


class Busy(Unavailable):
    """Asked too much; in how many seconds it may be asked again."""

    def __init__(self, text: str, retry_after_s: float) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


class Silent(Unavailable):
    pass


class ServerError(Unavailable):
    pass


class Unauthorized(Unavailable):
    pass


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """What was asked, in RBAC's words."""

    method: str
    verb: str
    resource: Resource
    namespace: str | None = None  #: None: all of them, or a resource that is in none
    name: str | None = None
    subresource: str | None = None

    @property
    def what(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else str(self.resource)

    def __str__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        namespace = f" in namespace {self.namespace!r}" if self.namespace else ""
        return f"{self.verb} {self.what}{name}{namespace}"


def failure(ask: ApiRequest, status: int, headers: Mapping[str, str], body: bytes) -> SwellError:
    """Of any answer but a success, and but 401."""
    said = _status(body)
    message = str(said.get("message") or "") or body[:QUOTED_MAX].decode(errors="replace").strip() or f"HTTP {status}"
    text = f"{ask}: {message}"
    if status == 403:
        return _forbidden(ask, message)
    if status == 404:
        return _missing(ask, message)
    if status == 409:
        return AlreadyExists(text) if said.get("reason") == "AlreadyExists" else Conflict(text)
    if status == 410:
        return Expired(text)
    if status == 413:
        return TooLarge(text)
    if status == 429 and ask.subresource == "eviction":  # a PodDisruptionBudget, in its own words
        return Conflict(text)
    if status == 429:
        return Busy(f"{text}; the API server has too much to do", retry_after(headers))
    if status >= 500:
        return ServerError(f"{text} (HTTP {status})")
    if status >= 400:
        return Rejected(text)
    return Unavailable(f"{ask}: HTTP {status} where an API server answers with a document; is it one? {message}")


def unauthorized(ask: ApiRequest, source: str, credential: Credential, now: datetime.datetime) -> Unauthorized:
    end = credential.end()
    if end is not None and end <= now:
        why = f"it ended at {end:%Y-%m-%d %H:%M} UTC"
    elif credential == Credential():
        why = "there is none"
    else:
        why = "it was revoked, or belongs to another cluster"
    return Unauthorized(
        f"{ask}: the API server does not accept the credential of {source}: {why}; log in again and renew it"
    )


def retry_after(headers: Mapping[str, str]) -> float:
    try:
        return max(0.0, float(headers.get("retry-after", "1")))
    except ValueError:
        return 1.0  # a date: a gateway's way to say later


def _status(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) and document.get("kind") == "Status" else {}


#: RBAC's words; quotas, pod security and other admission refuse with 403 too, and no role helps against those.
NO_ROLE = re.compile(r'cannot \w+ (resource|path) "')


def _forbidden(ask: ApiRequest, message: str) -> SwellError:
    if not NO_ROLE.search(message):
        return Rejected(f"{ask}: {message}")
    group = f' of API group "{ask.resource.group}"' if ask.resource.group else ""
    where = f"namespace {ask.namespace!r}" if ask.namespace else "all namespaces (a ClusterRole)"
    return Denied(f"Swell's role lacks the verb {ask.verb!r} on {ask.what}{group} in {where}: {message}; grant it")


def _missing(ask: ApiRequest, message: str) -> SwellError:
    if message.startswith("namespaces ") and ask.resource.plural != "namespaces":
        return Rejected(f"{ask}: {message}; create the namespace, or name another")
    if ask.verb == "create" and ask.subresource is None:
        return Rejected(f"{ask}: {message}; the cluster does not serve {ask.resource} any more")
    return NotFound(f"{ask}: {message}")
