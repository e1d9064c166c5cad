"""Requests come to one pod: the one that serves."""

from __future__ import annotations

import pytest

from swell.engines.kubernetes import ApiClient
from swell.engines.kubernetes.client.resources import PODS
from swell.engines.kubernetes.election.service_pod import take_requests
from swell.errors import NotFound


def make(port: ApiClient, name: str, **labels: str) -> None:
    spec = {"containers": [{"name": "main", "image": "busybox"}]}
    port.create(
        PODS,
        {"metadata": {"name": name, "namespace": "swell", "labels": {"app": "swell", **labels}}, "spec": spec},
        "swell",
    )


def labels(port: ApiClient, name: str) -> dict[str, str]:
    found: dict[str, str] = port.get(PODS, name, "swell")["metadata"]["labels"]
    return found


def test_the_pod_that_serves_has_the_label_and_no_other(port: ApiClient) -> None:
    make(port, "first", **{"swell.dev/serves": "true"})
    make(port, "second")
    for _ in range(2):
        take_requests(port, "second", "swell")
        assert labels(port, "first") == {"app": "swell"}
        assert labels(port, "second") == {"app": "swell", "swell.dev/serves": "true"}


def test_a_pod_that_is_not_there_is_said(port: ApiClient) -> None:
    with pytest.raises(NotFound):
        take_requests(port, "gone", "swell")
