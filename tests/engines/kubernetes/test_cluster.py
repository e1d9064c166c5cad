"""What is the cluster like now, given what the API server says and fails to say?"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from swell.engines.kubernetes import Port
from swell.engines.kubernetes.cluster import Cluster
from swell.engines.kubernetes.resources import Resource
from swell.errors import Unavailable

from .apiserver import ApiServer
from .conftest import access_to


class Forgetful(Port):
    """Cannot say what is served, as often as it is told to."""

    failures = 0

    def resource(self, api_version: str, kind: str) -> Resource:
        if kind == "Job" and self.failures:
            self.failures -= 1
            raise Unavailable("not now")
        return super().resource(api_version, kind)


@pytest.fixture
def forgetful(server: ApiServer) -> Iterator[Forgetful]:
    port = Forgetful(access_to(server), answer_s=5.0)
    yield port
    port.close()


def test_it_is_not_followed_before_it_is_known_which_kinds_are_served(forgetful: Forgetful) -> None:
    """An object of a kind that is not followed would seem to be deleted."""
    forgetful.failures = 3
    cluster = Cluster(forgetful, lambda *_: None)
    try:
        assert cluster.start(10.0) is None
        assert sorted(cluster.resources) == ["Job", "Pod"]
    finally:
        cluster.stop()


def test_where_that_stays_unknown_it_is_said(forgetful: Forgetful) -> None:
    forgetful.failures = 1_000_000
    cluster = Cluster(forgetful, lambda *_: None)
    try:
        assert cluster.start(0.0) == "Job: not now"
    finally:
        cluster.stop()


@pytest.mark.parametrize("is_openshift", [False, True])
def test_a_cluster_that_gives_out_user_numbers_is_known_by_its_constraints(
    is_openshift: bool, server: ApiServer, port: Port
) -> None:
    if is_openshift:
        server.kinds["security.openshift.io/v1"] = {"securitycontextconstraints": "SecurityContextConstraints"}
    cluster = Cluster(port, lambda *_: None)
    try:
        assert cluster.start(10.0) is None
        assert cluster.assigns_users == is_openshift
    finally:
        cluster.stop()
