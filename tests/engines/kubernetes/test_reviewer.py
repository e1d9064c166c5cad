"""What the cluster says of a token and of its holder's rights, as it goes over the wire."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from swell.engines.kubernetes import ApiClient
from swell.engines.kubernetes.client.reviews import RIGHTS_S, BindingRights, CreationRights, KubernetesReviewer
from swell.errors import Unavailable
from swell.model.identity import Identity, ObjectKind

from .apiserver import ApiServer, Place
from .faults import Fault, Scripted

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


def test_a_token_is_of_whom_the_cluster_says(server: Reviews, port: ApiClient) -> None:
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
def test_a_token_without_a_user_is_nobodys(server: Reviews, port: ApiClient, status: dict[str, Any]) -> None:
    server.status = status
    assert KubernetesReviewer(port).who("t") is None


@pytest.mark.parametrize(
    ("audiences", "expected"), [(["swell"], EVA), (["https://api"], None), ([], None), (None, None)]
)
def test_a_token_made_for_somebody_else_is_nobodys(
    server: Reviews, port: ApiClient, audiences: list[str] | None, expected: Identity | None
) -> None:
    """An API server that knows nothing of audiences answers with none, and every token would do."""
    server.status = {"authenticated": True, "user": AS_TOLD, "audiences": audiences}
    assert KubernetesReviewer(port, ("swell",)).who("t") == expected
    assert server.asked["spec"] == {"token": "t", "audiences": ["swell"]}


@pytest.mark.parametrize(
    ("status", "expected"), [({"allowed": True}, True), ({"allowed": False, "denied": True}, False)]
)
def test_who_may_create_what_is_asked_with_all_that_is_known_of_them(
    server: Reviews, port: ApiClient, status: dict[str, Any], expected: bool
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


def test_where_pods_may_be_bound_is_asked_once_and_again_later(server: Reviews, port: ApiClient) -> None:
    now = [0.0]
    rights = BindingRights(port, lambda: now[0])
    server.status = {"allowed": False}
    assert [rights.may_bind("ml") for _ in range(3)] == [False] * 3
    attributes = {"verb": "create", "resource": "pods", "subresource": "binding", "namespace": "ml"}
    asked = (server.asked["kind"], server.asked["spec"])
    assert asked == ("SelfSubjectAccessReview", {"resourceAttributes": attributes})
    assert len(server.seen) == 1
    server.status = {"allowed": True}
    assert not rights.may_bind("ml")
    now[0] += RIGHTS_S
    assert rights.may_bind("ml")


def test_whether_a_job_may_be_made_again_is_asked_once_for_many_and_again_later(
    server: Reviews, port: ApiClient
) -> None:
    now = [0.0]
    rights = CreationRights(KubernetesReviewer(port), lambda: now[0])
    server.status = {"allowed": True}
    assert [rights.may_create(EVA, JOB) for _ in range(3)] == [True] * 3
    asked = len(server.seen)
    server.status = {"allowed": False}
    assert [rights.may_create(replace(EVA, groups=()), JOB), rights.may_create(EVA, JOB)] == [False, True]
    assert len(server.seen) == asked + 1
    now[0] += RIGHTS_S
    assert not rights.may_create(EVA, JOB)
    server.faults = Scripted(deque([Fault.SERVER_ERROR] * 8))
    now[0] += RIGHTS_S
    with pytest.raises(Unavailable):
        rights.may_create(EVA, JOB)


@pytest.mark.parametrize("known", [True, False])
def test_where_the_cluster_does_not_say_it_what_was_known_counts(server: Reviews, port: ApiClient, known: bool) -> None:
    now = [0.0]
    rights = BindingRights(port, lambda: now[0])
    server.status = {"allowed": known}
    rights.may_bind("ml")
    server.faults = Scripted(deque([Fault.SERVER_ERROR] * 8))
    now[0] += RIGHTS_S
    assert rights.may_bind("ml") is known


def test_before_the_cluster_has_said_anything_pods_are_tried(server: Reviews, port: ApiClient) -> None:
    server.faults = Scripted(deque([Fault.SERVER_ERROR] * 8))
    assert BindingRights(port).may_bind("ml")
