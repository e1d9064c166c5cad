"""Whose is a token, and may they create that here? What the cluster says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from swell.engines.kubernetes.port import Port
from swell.engines.kubernetes.resources import SUBJECT_REVIEWS
from swell.model.identity import Identity, ObjectKind


class KubernetesReviewer:
    """TokenReview and SubjectAccessReview; what the API asks of a cluster. Remembers nothing."""

    def __init__(self, port: Port, audiences: Sequence[str] = ()) -> None:
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
