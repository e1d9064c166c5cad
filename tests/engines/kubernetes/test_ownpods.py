"""What do pods look like that we make ourselves?"""

from __future__ import annotations

from typing import Any

from swell.engines.kubernetes.objects.objects import Filling, RoleSize
from swell.engines.kubernetes.objects.pod_template import make_pod

from .pieces import SECOND, make_wanted

SPEC = {"schedulerName": "swell", "containers": [{"name": "main", "image": "busybox"}]}


def test_a_pod_that_came_by_kubectl_is_made_again_as_it_came_but_is_ours() -> None:
    """Without our labels it would be taken in as another job."""
    document = {
        "kind": "Pod",
        "metadata": {"name": "half-1", "namespace": "team", "labels": {"app": "x"}},
        "spec": SPEC,
    }
    manifest: dict[str, Any] = {
        "kind": "Pods",
        "metadata": {"name": "half", "namespace": "team", "uid": "u0"},
        "pods": [
            {"name": "half-0", "uid": "u0", "document": {}},
            {"name": "half-1", "uid": "u1", "document": document},
        ],
    }
    filling = Filling(7, "store", SECOND, (RoleSize(2, 0),), "secret", is_ours=False)

    assert make_pod(manifest, 1, make_wanted(2, attempt=SECOND), filling) == {
        "kind": "Pod",
        "metadata": {
            "name": "half-1",
            "namespace": "team",
            "labels": {"app": "x", "swell.dev/job": "7", "swell.dev/store": "store"},
            "annotations": {"swell.dev/attempt": "7.2", "swell.dev/rank": "1"},
        },
        "spec": SPEC,
    }
