"""What the cluster says of a token and of its holder's rights, as it goes over the wire."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swell.engines.kubernetes import Port
from swell.engines.kubernetes.reviewer import KubernetesReviewer
from swell.model.identity import Identity, ObjectKind

from .apiserver import ApiServer, Place

EVA = Identity("eva", ("ml", "system:authenticated"), "u-1", (("scopes", ("user:full", "user:info")),))
AS_TOLD = {
    "username": "eva",
    "groups": ["ml", "system:authenticated"],
    "uid": "u-1",
    "extra": {"scopes": ["user:full", "user:info"]},
}
JOB = ObjectKind("batch/v1", "Job", "ml")


class Reviews(ApiServer):
    """Answers reviews with what a test says, and keeps what it was asked."""

    def __init__(self, token_file: Path) -> None:
        super().__init__(token_file)
        self.status: dict[str, Any] = {}
        self.asked: dict[str, Any] = {}

    def _post(self, place: Place, body: dict[str, Any]) -> dict[str, Any]:
        self.asked = body
        return {**body, "status": self.status}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Reviews]:
    """The one that `port` reaches."""
    server = Reviews(tmp_path / "token")
    yield server
    server.close()


def test_a_token_is_of_whom_the_cluster_says(server: Reviews, port: Port) -> None:
    server.status = {"authenticated": True, "user": AS_TOLD}
    assert KubernetesReviewer(port).who("t") == EVA
    assert (server.asked["kind"], server.asked["spec"]) == ("TokenReview", {"token": "t"})


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"authenticated": False, "user": AS_TOLD},
        {"authenticated": True},
        {"authenticated": True, "user": {"username": "", "groups": ["system:masters"]}},
    ],
)
def test_a_token_without_a_user_is_nobodys(server: Reviews, port: Port, status: dict[str, Any]) -> None:
    server.status = status
    assert KubernetesReviewer(port).who("t") is None


@pytest.mark.parametrize(
    ("audiences", "expected"), [(["swell"], EVA), (["https://api"], None), ([], None), (None, None)]
)
def test_a_token_made_for_somebody_else_is_nobodys(
    server: Reviews, port: Port, audiences: list[str] | None, expected: Identity | None
) -> None:
    """An API server that knows nothing of audiences answers with none, and every token would do."""
    server.status = {"authenticated": True, "user": AS_TOLD, "audiences": audiences}
    assert KubernetesReviewer(port, ("swell",)).who("t") == expected
    assert server.asked["spec"] == {"token": "t", "audiences": ["swell"]}


@pytest.mark.parametrize(
    ("status", "expected"), [({"allowed": True}, True), ({"allowed": False, "denied": True}, False)]
)
def test_who_may_create_what_is_asked_with_all_that_is_known_of_them(
    server: Reviews, port: Port, status: dict[str, Any], expected: bool
) -> None:
    server.status = status
    assert KubernetesReviewer(port).may_create(EVA, JOB) is expected
    assert server.asked == {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "resourceAttributes": {
                "verb": "create",
                "group": "batch",
                "version": "v1",
                "resource": "jobs",
                "namespace": "ml",
            },
            "user": "eva",
            "groups": ["ml", "system:authenticated"],
            "uid": "u-1",
            "extra": {"scopes": ["user:full", "user:info"]},
        },
    }
