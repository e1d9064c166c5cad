"""Whose is a token, may they create that here, and where may we bind pods? What the cluster says."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from swell.engines.kubernetes.client.api_client import ApiClient, Selection
from swell.engines.kubernetes.client.resources import NAMESPACES, SELF_REVIEWS, SUBJECT_REVIEWS
from swell.errors import SwellError
from swell.model.identity import Identity, ObjectKind

log = logging.getLogger(__name__)
RIGHTS_S = 30.0  # an administrator who has given a right waits for so long


class KubernetesReviewer:
    """TokenReview and SubjectAccessReview; what the API asks of a cluster. Remembers nothing."""

    def __init__(self, port: ApiClient, audiences: Sequence[str] = ()) -> None:
        self._port = port
        self._audiences = tuple(audiences)  #: for whom a token must have been made; empty: for the API server itself

    def who(self, token: str) -> Identity | None:
        """None: nobody's, or made for somebody else."""
        status = self._port.review_token(token, self._audiences)
        if not status.get("authenticated"):
            return None
        # An authenticator that knows nothing of audiences names none, and would let every token pass.
        if self._audiences and not set(self._audiences) & set(status.get("audiences") or ()):
            return None
        return parse_identity(status.get("user") or {})

    def may_create(self, identity: Identity, what: ObjectKind) -> bool:
        return self._may("create", identity, what)

    def may_delete(self, identity: Identity, what: ObjectKind) -> bool:
        return self._may("delete", identity, what)

    def is_namespace(self, name: str) -> bool:
        return bool(self._port.list(Selection(NAMESPACES, fields=f"metadata.name={name}")).items)

    def _may(self, verb: str, identity: Identity, what: ObjectKind) -> bool:
        resource = self._port.resource(what.api_version, what.kind)
        attributes = {
            "verb": verb,
            "group": resource.group,
            "version": resource.version,
            "resource": resource.plural,
            "namespace": what.namespace,
        }
        spec = {"resourceAttributes": attributes, **render_subject(identity)}
        body = {"apiVersion": SUBJECT_REVIEWS.api_version, "kind": SUBJECT_REVIEWS.kind, "spec": spec}
        return bool(self._port.create(SUBJECT_REVIEWS, body)["status"].get("allowed"))


class BindingRights:
    """Where may we bind pods? Asked of the cluster, and believed for a while; of one thread."""

    def __init__(self, port: ApiClient, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._port = port
        self._monotonic = monotonic
        self._known: dict[str, tuple[float, bool]] = {}  #: namespace → until when it is believed, and whether we may

    def may_bind(self, namespace: str) -> bool:
        """Where the cluster does not answer, what was known counts, and at first that we may: a bind would tell."""
        now = self._monotonic()
        until, is_allowed = self._known.get(namespace, (-math.inf, True))
        if now >= until:
            self._known = {name: found for name, found in self._known.items() if now < found[0]}
            is_allowed = self._ask(namespace, is_allowed)
            self._known[namespace] = now + RIGHTS_S, is_allowed
        return is_allowed

    def _ask(self, namespace: str, known: bool) -> bool:
        attributes = {"verb": "create", "resource": "pods", "subresource": "binding", "namespace": namespace}
        spec = {"resourceAttributes": attributes}
        body = {"apiVersion": SELF_REVIEWS.api_version, "kind": SELF_REVIEWS.kind, "spec": spec}
        try:
            return bool(self._port.create(SELF_REVIEWS, body)["status"].get("allowed"))
        except SwellError as error:
            log.info("whether pods of namespace %s may be bound is not known: %s", namespace, error)
            return known


class CreationRights:
    """May who submitted a job still create its object? Believed for a while: a thousand starts ask once; of one thread.

    Raises `Unavailable` where the cluster cannot be asked: nothing is made then, either.
    """

    def __init__(self, reviewer: KubernetesReviewer, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._reviewer = reviewer
        self._monotonic = monotonic
        self._known: dict[tuple[Identity, ObjectKind], tuple[float, bool]] = {}  #: until when it is believed, and what

    def may_create(self, identity: Identity, what: ObjectKind) -> bool:
        now = self._monotonic()
        until, is_allowed = self._known.get((identity, what), (-math.inf, False))
        if now >= until:
            self._known = {key: found for key, found in self._known.items() if now < found[0]}
            is_allowed = self._reviewer.may_create(identity, what)
            self._known[identity, what] = now + RIGHTS_S, is_allowed
        return is_allowed


def parse_identity(user: dict[str, Any]) -> Identity | None:
    """None: somebody without a name, who could not be told from others."""
    if not user.get("username"):
        return None
    extra = tuple(sorted((key, tuple(values)) for key, values in (user.get("extra") or {}).items()))
    return Identity(user["username"], tuple(user.get("groups") or ()), user.get("uid") or "", extra)


def render_subject(identity: Identity) -> dict[str, Any]:
    return {
        "user": identity.user,
        "groups": list(identity.groups),
        "uid": identity.uid,
        "extra": {key: list(values) for key, values in identity.extra},
    }
