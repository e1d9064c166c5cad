"""What came by kubectl is deleted as what it is: by its name and its uid, with all that depends on it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from swell.engines.kubernetes.client.resources import PODS
from swell.errors import Conflict, NotFound
from swell.server.cluster_objects import ClusterObjects

PYTORCHJOB = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}


class Calls:
    """A port that remembers what was asked of it, and answers that with a problem if it has one."""

    def __init__(self, problem: Exception | None = None) -> None:
        self.made: list[tuple[Any, ...]] = []
        self._problem = problem

    def delete(self, resource: Any, name: str, namespace: str, *, propagation: str, uid: str) -> None:
        self.made.append((resource, name, namespace, propagation, uid))
        if self._problem is not None:
            raise self._problem


def delete(port: Calls, reference: dict[str, Any]) -> None:
    cluster = SimpleNamespace(served=lambda kind: (None, kind))
    objects: Any = ClusterObjects
    objects(None, port, cluster, None).delete(reference)


@pytest.mark.parametrize("problem", [None, NotFound("gone"), Conflict("another one by now")])
def test_an_object_is_deleted_if_it_is_still_the_same(problem: Exception | None) -> None:
    port = Calls(problem)
    delete(port, {**PYTORCHJOB, "metadata": {"name": "tuned", "namespace": "ml", "uid": "u1"}})
    assert port.made == [("PyTorchJob", "tuned", "ml", "Foreground", "u1")]


def test_a_group_of_pods_is_deleted_pod_by_pod() -> None:
    port = Calls(NotFound("gone"))
    pods = [{"name": "a", "uid": "u1"}, {"name": "b", "uid": "u2"}]
    metadata = {"name": "gang", "namespace": "ml", "uid": "u1"}
    delete(port, {"apiVersion": "v1", "kind": "Pods", "metadata": metadata, "pods": pods})
    assert port.made == [(PODS, "a", "ml", "Foreground", "u1"), (PODS, "b", "ml", "Foreground", "u2")]
