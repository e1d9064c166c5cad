"""JobSets that only an operator's webhook refuses, on a cluster that has their CRD and no operator: each is tried.

`test_kubectl_mischief.py` has the operator, whose webhook may refuse them before Swell sees one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cluster.binaries import module_file
from cluster.cluster import Cluster
from cluster.jobs import JOBSETS, ON_KWOK, PODS, pod
from cluster.starting import module_cluster
from onitscluster import server_on
from server import Server

from .test_kubectl import ours
from .test_kubectl_mischief import SHORT, named, odd_objects

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
cluster = module_cluster(kwok=1)


@pytest.fixture(scope="module")
def server(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    cluster.api.kubectl("apply", "--server-side", "-f", module_file("jobset", "config/components/crd/bases"))
    cluster.api.until(CRDS, lambda found: any(map(is_served, found.values())))
    with server_on(cluster, tmp_path_factory.mktemp("server")) as made:
        yield made


def is_served(kind: dict[str, Any]) -> bool:
    conditions = kind.get("status", {}).get("conditions") or ()
    return any((one["type"], one["status"]) == ("Established", "True") for one in conditions)


def test_jobsets_that_cannot_be_read_are_taken_by_the_api_server_and_stop_nobody(cluster: Cluster, server: Server):
    """500m of a GPU, no spec, and an empty one: each ended the reflector of its kind for everybody."""
    for path, document in odd_objects():
        if path == JOBSETS:
            cluster.api.create(JOBSETS, document)
    taken = {one["metadata"]["name"] for one in cluster.api.get(JOBSETS)["items"]}
    assert taken == {"thousandths", "sample", "sample-too"}
    for name in ("before", "after"):
        cluster.api.create(PODS, ours(pod(name, "true", on=ON_KWOK, gpus=1, annotations=SHORT)))
        named(server, name, "succeeded")
        server.kill()
        server.up()
