"""What a refusal of the API server becomes: a kind, and its own words whole."""

from __future__ import annotations

import base64
import datetime
import json

import pytest

from swell.engines.kubernetes.client.credentials import Credential
from swell.engines.kubernetes.client.failures import (
    AlreadyExists,
    ApiRequest,
    Busy,
    Expired,
    ServerError,
    failure,
    retry_after,
    unauthorized,
)
from swell.engines.kubernetes.client.resources import PODS, Resource
from swell.errors import Conflict, Denied, NotFound, Rejected, SwellError, TooLarge, Unavailable

GET = ApiRequest("GET", "get", PODS, "ml", "p")
CREATE = ApiRequest("POST", "create", PODS, "ml", "p")
UPDATE = ApiRequest("PATCH", "patch", PODS, "ml", "p", "status")
BIND = ApiRequest("POST", "create", PODS, "ml", "p", "binding")
NODES = ApiRequest("GET", "list", Resource("", "v1", "nodes", "Node", is_namespaced=False))
NAMESPACE = ApiRequest("GET", "get", Resource("", "v1", "namespaces", "Namespace", is_namespaced=False), None, "ml")
TRAIN = ApiRequest("POST", "create", Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob"), "ml", "p")


def status(message: str, reason: str = "") -> bytes:
    return json.dumps({"kind": "Status", "message": message, "reason": reason}).encode()


@pytest.mark.parametrize(
    ("ask", "code", "body", "kind", "text"),
    [
        (CREATE, 400, status("bad"), Rejected, "create pods 'p' in namespace 'ml': bad"),
        (GET, 404, status('pods "p" not found'), NotFound, "get pods 'p' in namespace 'ml': pods \"p\" not found"),
        (
            CREATE,
            404,
            status('namespaces "ml" not found'),
            Rejected,
            "create pods 'p' in namespace 'ml': namespaces \"ml\" not found; create the namespace, or name another",
        ),
        (
            NAMESPACE,
            404,
            status('namespaces "ml" not found'),
            NotFound,
            "get namespaces 'ml': namespaces \"ml\" not found",
        ),
        (
            TRAIN,
            404,
            b"404 page not found\n",
            Rejected,
            (
                "create pytorchjobs.kubeflow.org 'p' in namespace 'ml': 404 page not found; "
                "the cluster does not serve pytorchjobs.kubeflow.org any more"
            ),
        ),
        (BIND, 404, status('pods "p" not found'), NotFound, None),
        (CREATE, 409, status('pods "p" already exists', "AlreadyExists"), AlreadyExists, None),
        (UPDATE, 409, status("modified", "Conflict"), Conflict, "patch pods/status 'p' in namespace 'ml': modified"),
        (BIND, 409, status("already assigned to node", "Conflict"), Conflict, None),
        (GET, 410, status("too old", "Expired"), Expired, None),
        (CREATE, 413, b"", TooLarge, "create pods 'p' in namespace 'ml': HTTP 413"),
        (CREATE, 422, status("Pod is invalid: spec: Required value", "Invalid"), Rejected, None),
        (GET, 429, status("slow down"), Busy, None),
        (GET, 500, status("etcd"), ServerError, "get pods 'p' in namespace 'ml': etcd (HTTP 500)"),
        (GET, 503, b"<html>gateway</html>", ServerError, None),
        (
            GET,
            302,
            b"<html>log in</html>",
            Unavailable,
            (
                "get pods 'p' in namespace 'ml': HTTP 302 where an API server answers with a document; "
                "is it one? <html>log in</html>"
            ),
        ),
    ],
)
def test_an_answer_becomes(ask: ApiRequest, code: int, body: bytes, kind: type[SwellError], text: str | None) -> None:
    error = failure(ask, code, {}, body)
    assert type(error) is kind
    if text is not None:
        assert str(error) == text


@pytest.mark.parametrize(
    ("ask", "message", "beginning"),
    [
        (
            NODES,
            'nodes is forbidden: User "u" cannot list resource "nodes" in API group "" at the cluster scope',
            "Swell's role lacks the verb 'list' on nodes in all namespaces (a ClusterRole): ",
        ),
        (
            BIND,
            (
                'pods "p" is forbidden: User "u" cannot create resource "pods/binding" in API group "" '
                'in the namespace "ml"'
            ),
            "Swell's role lacks the verb 'create' on pods/binding in namespace 'ml': ",
        ),
        (
            TRAIN,
            (
                'pytorchjobs.kubeflow.org is forbidden: User "u" cannot create resource "pytorchjobs" in API group '
                '"kubeflow.org" in the namespace "ml"'
            ),
            (
                "Swell's role lacks the verb 'create' on pytorchjobs.kubeflow.org of API group \"kubeflow.org\" in "
                "namespace 'ml': "
            ),
        ),
    ],
)
def test_a_missing_verb_is_named_with_its_resource_and_place(ask: ApiRequest, message: str, beginning: str) -> None:
    error = failure(ask, 403, {}, status(message))
    assert (type(error), str(error)) == (Denied, f"{beginning}{message}; grant it")


def test_a_quota_or_admission_that_refuses_is_no_missing_verb() -> None:
    error = failure(CREATE, 403, {}, status('pods "p" is forbidden: exceeded quota: q, requested: cpu=2'))
    assert (type(error), str(error)) == (
        Rejected,
        "create pods 'p' in namespace 'ml': pods \"p\" is forbidden: exceeded quota: q, requested: cpu=2",
    )


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [({"retry-after": "7"}, 7.0), ({}, 1.0), ({"retry-after": "Mon, 16 Nov 2026 04:00:00 GMT"}, 1.0)],
)
def test_when_to_come_back(headers: dict[str, str], seconds: float) -> None:
    assert retry_after(headers) == seconds


def test_a_refused_credential_says_whose_it_is_and_why() -> None:
    now = datetime.datetime(2026, 11, 16, tzinfo=datetime.UTC)
    claims = base64.urlsafe_b64encode(json.dumps({"exp": 1700000000}).encode()).decode()
    said = [
        str(unauthorized(NODES, "user 'eva' of f", credential, now))
        for credential in (Credential.bearer(f"h.{claims}.s"), Credential(), Credential.bearer("t"))
    ]
    before = "list nodes: the API server does not accept the credential of user 'eva' of f: "
    after = "; log in again and renew it"
    assert said == [
        f"{before}it ended at 2023-11-14 22:13 UTC{after}",
        f"{before}there is none{after}",
        f"{before}it was revoked, or belongs to another cluster{after}",
    ]
