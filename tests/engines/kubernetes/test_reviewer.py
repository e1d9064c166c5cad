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
from .conftest import access_to

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
def reviews(tmp_path: Path) -> Iterator[Reviews]:
    server = Reviews(tmp_path / "token")
    yield server
    server.close()


@pytest.fixture
def reviewed(reviews: Reviews) -> Iterator[Port]:
    port = Port(access_to(reviews), answer_s=5.0)
    yield port
    port.close()


def test_a_token_is_of_whom_the_cluster_says(reviews: Reviews, reviewed: Port) -> None:
    reviews.status = {"authenticated": True, "user": AS_TOLD}
    assert KubernetesReviewer(reviewed).who("t") == EVA
    assert (reviews.asked["kind"], reviews.asked["spec"]) == ("TokenReview", {"token": "t"})


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"authenticated": False, "user": AS_TOLD},
        {"authenticated": True},
        {"authenticated": True, "user": {"username": "", "groups": ["system:masters"]}},
    ],
)
def test_a_token_without_a_user_is_nobodys(reviews: Reviews, reviewed: Port, status: dict[str, Any]) -> None:
    reviews.status = status
    assert KubernetesReviewer(reviewed).who("t") is None


@pytest.mark.parametrize(
    ("audiences", "expected"), [(["swell"], EVA), (["https://api"], None), ([], None), (None, None)]
)
def test_a_token_made_for_somebody_else_is_nobodys(
    reviews: Reviews, reviewed: Port, audiences: list[str] | None, expected: Identity | None
) -> None:
    """An API server that knows nothing of audiences answers with none, and every token would do."""
    reviews.status = {"authenticated": True, "user": AS_TOLD, "audiences": audiences}
    assert KubernetesReviewer(reviewed, ("swell",)).who("t") == expected
    assert reviews.asked["spec"] == {"token": "t", "audiences": ["swell"]}


@pytest.mark.parametrize(
    ("status", "expected"), [({"allowed": True}, True), ({"allowed": False, "denied": True}, False)]
)
def test_who_may_create_what_is_asked_with_all_that_is_known_of_them(
    reviews: Reviews, reviewed: Port, status: dict[str, Any], expected: bool
) -> None:
    reviews.status = status
    assert KubernetesReviewer(reviewed).may_create(EVA, JOB) is expected
    assert reviews.asked == {
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
