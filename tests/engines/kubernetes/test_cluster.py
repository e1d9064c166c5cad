"""What is the cluster like now, given what the API server says and fails to say?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from swell.engines.kubernetes import ApiClient
from swell.engines.kubernetes.client.resources import NODES, PODS, Resource
from swell.engines.kubernetes.watch.cluster import Cluster
from swell.errors import Unavailable

from .apiserver import ApiServer
from .conftest import access_to
from .keeping import PATIENCE_S, until


class Forgetful(ApiClient):
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
    is_openshift: bool, server: ApiServer, port: ApiClient
) -> None:
    if is_openshift:
        server.kinds["security.openshift.io/v1"] = {"securitycontextconstraints": "SecurityContextConstraints"}
    cluster = Cluster(port, lambda *_: None)
    try:
        assert cluster.start(10.0) is None
        assert cluster.assigns_users == is_openshift
    finally:
        cluster.stop()


def test_room_is_taken_from_before_a_pod_is_bound_until_it_is_gone(server: ApiServer) -> None:
    """Two pods got the same GPUs: the watch had shown neither yet, and somebody else had some that were planned."""
    port = ApiClient(access_to(server), answer_s=5.0)
    cluster = Cluster(port, lambda *_: None)
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = {"conditions": [ready], "allocatable": {"cpu": "64", "memory": "64Gi", "nvidia.com/gpu": "8"}}
    port.create(NODES, {"metadata": {"name": "n1"}, "status": status})
    made = [port.create(PODS, of_four_gpus(name), "ml")["metadata"] for name in ("a", "b", "c")]
    try:
        assert cluster.start(PATIENCE_S) is None
        a, b, c = cluster.pods([one["uid"] for one in made])
        assert [cluster.take_room(pod, "n1") for pod in (a, b, c, a)] == [True, True, False, True]
        cluster.leave_room(b)
        cluster.give_room(c, "n1")
        assert not cluster.take_room(b, "n1")
        port.bind("a", "ml", a.uid, "n1")
        until(lambda: [pod.name for pod in cluster.pods_on("n1")] == ["a"])
        cluster.leave_room(a)
        assert not cluster.take_room(b, "n1")
        port.delete(PODS, "c", "ml")
        until(lambda: not cluster.pods([c.uid]))
        assert cluster.take_room(b, "n1")
    finally:
        cluster.stop()
        port.close()


def test_how_a_pod_ended_is_known_after_it_was_deleted(server: ApiServer) -> None:
    """A job whose pod was deleted as soon as it had succeeded was called deleted."""
    port = ApiClient(access_to(server), answer_s=5.0)
    cluster = Cluster(port, lambda *_: None)
    end = {
        "exitCode": 0,
        "reason": "Completed",
        "startedAt": "2026-01-01T00:00:00Z",
        "finishedAt": "2026-01-01T00:00:01Z",
    }
    done = {"phase": "Succeeded", "containerStatuses": [{"name": "main", "state": {"terminated": end}}]}
    statuses = {"done": done, "waits": {"phase": "Pending"}}
    made = {
        name: port.create(PODS, {**of_four_gpus(name), "status": status}, "ml")["metadata"]["uid"]
        for name, status in statuses.items()
    }
    try:
        assert cluster.start(PATIENCE_S) is None
        [was] = cluster.pods([made["done"]])
        assert (was.has_ended, cluster.departed(was.uid)) == (True, None)
        for name in statuses:
            port.delete(PODS, name, "ml")
        until(lambda: not cluster.pods([*made.values()]))
        assert [cluster.departed(uid) for uid in made.values()] == [was, None]
    finally:
        cluster.stop()
        port.close()


def of_four_gpus(name: str) -> dict[str, Any]:
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "4"}}}
    return {"metadata": {"name": name}, "spec": {"containers": [container], "schedulerName": "swell"}}
