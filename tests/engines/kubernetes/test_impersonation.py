"""In whose name objects are created, and what the API server is told of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from swell.engines.kubernetes import ApiClient
from swell.engines.kubernetes.client.access import Access
from swell.engines.kubernetes.client.credentials import Credential, Fixed
from swell.engines.kubernetes.client.impersonation import Impersonation
from swell.engines.kubernetes.client.resources import PODS
from swell.engines.kubernetes.client.reviews import RIGHTS_S
from swell.errors import Unavailable
from swell.model.identity import Identity

from .apiserver import ApiServer, Place
from .faults import Fault, Scripted

OURS = ("Impersonate-Extra-swell.dev%2Fjob", "7")
EVA = Identity("eva", ("ml", "hpc", "system:authenticated"), "u-1")
ANNA = Identity(
    "system:serviceaccount:ml:anna",
    ("system:serviceaccounts", "system:serviceaccounts:ml", "system:authenticated"),
    "u-2",
    (("authentication.kubernetes.io/credential-id", ("JTI=1",)), ("authentication.kubernetes.io/pod-name", ("p",))),
)
SCOPED = replace(EVA, groups=(), extra=(("scopes.example.com/one", ("user:info", "user:full")),))
MARK = {"group": "authentication.k8s.io", "resource": "userextras", "subresource": "swell.dev/job"}


class Reviews(ApiServer):
    """Allows what a test says, and keeps what it was asked."""

    def __init__(self, token_file: Path) -> None:
        super().__init__(token_file)
        self.refused: list[dict[str, str]] = []
        self.asked: list[dict[str, str]] = []

    def _post(self, place: Place, body: dict[str, Any]) -> dict[str, Any]:
        if body["kind"] != "SelfSubjectAccessReview":
            return super()._post(place, body)
        attributes = dict(body["spec"]["resourceAttributes"])
        assert attributes.pop("verb") == "impersonate"
        self.asked.append(attributes)
        return {**body, "status": {"allowed": attributes not in self.refused}}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Reviews]:
    """The one that `port` reaches."""
    server = Reviews(tmp_path / "token")
    yield server
    server.close()


@pytest.mark.parametrize(
    ("identity", "asked", "headers"),
    [
        (
            EVA,
            [{"resource": "users", "name": "eva"}, *({"resource": "groups", "name": name} for name in ("ml", "hpc"))],
            [("Impersonate-User", "eva"), ("Impersonate-Group", "ml"), ("Impersonate-Group", "hpc")],
        ),
        (
            ANNA,  # the API server adds the groups of an account, and which token it was is no part of a name
            [{"resource": "serviceaccounts", "namespace": "ml", "name": "anna"}],
            [("Impersonate-User", ANNA.user)],
        ),
        (
            replace(ANNA, groups=(*ANNA.groups, "more")),  # it adds none where some are named
            [
                {"resource": "serviceaccounts", "namespace": "ml", "name": "anna"},
                *({"resource": "groups", "name": f"system:serviceaccounts{rest}"} for rest in ("", ":ml")),
                {"resource": "groups", "name": "more"},
            ],
            [
                ("Impersonate-User", ANNA.user),
                ("Impersonate-Group", "system:serviceaccounts"),
                ("Impersonate-Group", "system:serviceaccounts:ml"),
                ("Impersonate-Group", "more"),
            ],
        ),
        (
            SCOPED,  # without its scopes a token would be worth more
            [
                {"resource": "users", "name": "eva"},
                *(
                    {**MARK, "subresource": "scopes.example.com/one", "name": scope}
                    for scope in ("user:info", "user:full")
                ),
            ],
            [
                ("Impersonate-User", "eva"),
                ("Impersonate-Extra-scopes.example.com%2Fone", "user:info"),
                ("Impersonate-Extra-scopes.example.com%2Fone", "user:full"),
            ],
        ),
    ],
)
def test_a_name_is_the_user_with_all_that_bounds_their_rights(
    server: Reviews, port: ApiClient, identity: Identity, asked: list[dict[str, str]], headers: list[tuple[str, str]]
) -> None:
    assert Impersonation(port).headers(identity, "7") == (*headers, OURS)
    assert server.asked == [MARK, *asked]


@pytest.mark.parametrize("refused", [MARK, {"resource": "users", "name": "eva"}, {"resource": "groups", "name": "hpc"}])
def test_where_a_part_of_it_is_not_allowed_it_is_our_own_name(
    server: Reviews, port: ApiClient, refused: dict[str, str]
) -> None:
    server.refused = [refused]
    assert Impersonation(port).headers(EVA, "7") == ()


@pytest.mark.parametrize(
    "identity",
    [
        Identity("eva\r\nImpersonate-Group: system:masters"),
        Identity("eva "),
        Identity(""),
        replace(EVA, groups=("ml", "a\nb")),
        replace(EVA, groups=("",)),
        replace(EVA, extra=(("Scopes", ("all",)),)),
        replace(EVA, extra=(("scopes", ("a\rb",)),)),
        replace(EVA, extra=(("swell.dev/job", ("8",)),)),
    ],
)
def test_nobody_is_asked_about_a_name_that_would_not_arrive_as_it_is(
    server: Reviews, port: ApiClient, identity: Identity
) -> None:
    assert Impersonation(port).headers(identity, "7") == ()
    assert server.asked == []


def test_it_is_asked_once_for_many_jobs_and_again_later(server: Reviews, port: ApiClient) -> None:
    now = [0.0]
    names = Impersonation(port, lambda: now[0])
    assert [names.headers(EVA, job)[-1] for job in ("7", "8")] == [OURS, (OURS[0], "8")]
    assert len(server.asked) == 4
    server.refused = [MARK]
    assert names.headers(EVA, "9") != ()
    now[0] += RIGHTS_S
    assert names.headers(EVA, "9") == ()


def test_while_it_cannot_be_asked_nothing_is_created(server: Reviews, port: ApiClient) -> None:
    """In our own name it would be, whenever the API server is slow."""
    server.faults = Scripted(deque([Fault.SERVER_ERROR] * 8))
    with pytest.raises(Unavailable):
        Impersonation(port).headers(EVA, "7")


def test_who_acts_as_another_already_acts_as_nobody_else(server: Reviews, port: ApiClient) -> None:
    access: Access = replace(
        port.access, credentials=Fixed(Credential((("Impersonate-User", "ops"),)), "a kubeconfig with `as`")
    )
    client = ApiClient(access)
    assert Impersonation(client).headers(EVA, "7") == ()
    client.close()


def test_the_api_server_is_told_in_whose_name_an_object_is_created(server: Reviews, port: ApiClient) -> None:
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", "namespace": "ml"}}
    port.create(PODS, body, "ml", headers=Impersonation(port).headers(replace(EVA, groups=("ml",)), "7"))
    told = {name: value for name, value in server.seen[-1].headers.items() if name.startswith("impersonate-")}
    assert told == {"impersonate-user": "eva", "impersonate-group": "ml", "impersonate-extra-swell.dev%2fjob": "7"}
