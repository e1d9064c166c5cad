"""In whose name may we create an object?

Of the user who submitted it, where the cluster lets us act in that name, so that its audit log and admission see the
user; of our own account otherwise. A name is the user with all groups and whatever else an authenticator said that
bounds their rights (the scopes of a token): with a part of it the API server would see somebody else, so that all of it
must be allowed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from urllib.parse import quote

from swell.engines.kubernetes.client.api_client import ApiClient
from swell.engines.kubernetes.client.credentials import Headers
from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.client.resources import SELF_REVIEWS
from swell.engines.kubernetes.client.reviews import RIGHTS_S
from swell.model.identity import Identity

ACCOUNT = "system:serviceaccount:"
EVERYBODY = "system:authenticated"  # the API server adds it
ACCOUNTS = "system:serviceaccounts"  # and these groups to an account for which no groups are named
OF_A_TOKEN = "authentication.kubernetes.io/"  # noqa: S105  which token it was, and its pod: no part of the name
#: With which every object is created that we create in somebody's name: the chart's policy lets nobody else write our
#: labels, and only we may say this.
MARK = "swell.dev/job"
MARKED = f"Impersonate-Extra-{quote(MARK, safe='')}"
AUTHENTICATION = "authentication.k8s.io"


class Impersonation:
    """What the cluster says is believed for a while. Raises `Unavailable` where it cannot be asked."""

    def __init__(self, port: ApiClient, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._port = port
        self._monotonic = monotonic
        self._known: dict[Identity, tuple[float, bool]] = {}  #: until when it is believed, and whether we may

    def headers(self, identity: Identity, job: str) -> Headers:
        """Of a request in that name; empty: in our own."""
        now = self._monotonic()
        until, is_allowed = self._known.get(identity, (-math.inf, False))
        if now >= until:
            self._known = {key: found for key, found in self._known.copy().items() if now < found[0]}
            is_allowed = self._may_act_as(identity)
            self._known[identity] = now + RIGHTS_S, is_allowed
        return (*_headers(identity), (MARKED, job)) if is_allowed else ()

    def _may_act_as(self, identity: Identity) -> bool:
        if not _can_be_written(identity) or self._acts_as_another():
            return False
        return all(self._may(attributes) for attributes in _asked(identity))

    def _acts_as_another(self) -> bool:
        """Does our kubeconfig name a user already (`as`)?"""
        headers = self._port.access.credentials.current().headers
        return any(name.lower().startswith("impersonate-") for name, _ in headers)

    def _may(self, attributes: Document) -> bool:
        spec = {"resourceAttributes": {"verb": "impersonate", **attributes}}
        body = {"apiVersion": SELF_REVIEWS.api_version, "kind": SELF_REVIEWS.kind, "spec": spec}
        return bool(self._port.create(SELF_REVIEWS, body)["status"].get("allowed"))


def _asked(identity: Identity) -> Iterator[Document]:
    """What RBAC is asked about each part of a name."""
    extra = {"group": AUTHENTICATION, "resource": "userextras"}
    yield {**extra, "subresource": MARK}
    if identity.user.startswith(ACCOUNT):
        namespace, _, name = identity.user.removeprefix(ACCOUNT).partition(":")
        yield {"resource": "serviceaccounts", "namespace": namespace, "name": name}
    else:
        yield {"resource": "users", "name": identity.user}
    for group in _groups(identity):
        yield {"resource": "groups", "name": group}
    for key, value in _extra(identity):
        yield {**extra, "subresource": key, "name": value}


def _headers(identity: Identity) -> Headers:
    return (
        ("Impersonate-User", identity.user),
        *(("Impersonate-Group", group) for group in _groups(identity)),
        *((f"Impersonate-Extra-{quote(key, safe='')}", value) for key, value in _extra(identity)),
    )


def _groups(identity: Identity) -> list[str]:
    """Those that the API server does not add by itself."""
    added = {EVERYBODY}
    if identity.user.startswith(ACCOUNT):
        own = {ACCOUNTS, f"{ACCOUNTS}:{identity.user.removeprefix(ACCOUNT).partition(':')[0]}"}
        added |= own if set(identity.groups) <= own | added else set()  # it adds none where others are named
    return [group for group in identity.groups if group not in added]


def _extra(identity: Identity) -> Iterator[tuple[str, str]]:
    for key, values in identity.extra:
        if not key.startswith(OF_A_TOKEN):
            yield from ((key, value) for value in values)


def _can_be_written(identity: Identity) -> bool:
    """As lines of a request: no controls, no spaces that would be lost, and keys that survive being written small."""
    texts = [identity.user, *identity.groups, *(text for one in _extra(identity) for text in one)]
    is_kept = all(text == text.strip() and text.isprintable() and text for text in texts)
    return (
        is_kept
        and all(key == key.lower() and key.isascii() for key, _ in _extra(identity))
        and MARK not in dict(identity.extra)
    )
