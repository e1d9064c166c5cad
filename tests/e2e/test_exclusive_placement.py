"""JobSets of which each Job has the nodes of one domain to itself, with the real JobSet controller and its webhooks.

It makes a follower only after the first pod of its Job is bound, and gives it that pod's domain as a node selector.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from cluster.api import Refused
from cluster.cluster import Cluster
from cluster.jobs import JOBSETS, ON_KWOK, PODS, jobset, pod
from cluster.starting import module_cluster
from onitscluster import module_server
from server import Server

from .test_kubectl import ours

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

PATIENCE_S = 60.0
ZONE = "topology.example.com/zone"
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
SHORT = {"sim/run-for": "2s"}
Document = dict[str, Any]

cluster = module_cluster(kwok=4, operators=("jobset",))  # each node has eight GPUs
server = module_server()


@pytest.fixture(autouse=True)
def clean(cluster: Cluster, server: Server) -> Iterator[None]:
    """Two zones of two nodes each."""
    names = sorted(one["metadata"]["name"] for one in cluster.api.get("/api/v1/nodes")["items"])
    for number, name in enumerate(names):
        cluster.api.kubectl("label", "node", name, "--overwrite", f"{ZONE}={'ab'[number // 2]}")
    yield
    for path in (JOBSETS, PODS):
        for one in cluster.api.get(path)["items"]:
            with contextlib.suppress(Refused):
                cluster.api.delete(
                    f"{path}/{one['metadata']['name']}?propagationPolicy=Background&gracePeriodSeconds=0"
                )
    cluster.api.until(PODS, lambda pods: not pods)


def alone(name: str, *, jobs: int = 2, pods: int = 4, gpus: int = 4, **options: Any) -> Document:
    document = jobset(name, "true", count=pods, on=ON_KWOK, gpus=gpus, **options)
    document["metadata"]["annotations"] = {EXCLUSIVE: ZONE}
    document["spec"]["replicatedJobs"][0]["replicas"] = jobs
    return document


def zones_of(cluster: Cluster, name: str) -> dict[str, list[str]]:
    """The Jobs of a set, and in which zones their pods are."""
    nodes = {
        one["metadata"]["name"]: one["metadata"]["labels"][ZONE] for one in cluster.api.get("/api/v1/nodes")["items"]
    }
    found: dict[str, list[str]] = {}
    for one in cluster.api.get(PODS)["items"]:
        labels = one["metadata"].get("labels", {})
        if labels.get("jobset.sigs.k8s.io/jobset-name") == name:
            zone = nodes.get(one["spec"].get("nodeName", ""), "not bound")
            found.setdefault(labels["jobset.sigs.k8s.io/job-index"], []).append(zone)
    return {job: sorted(zones) for job, zones in found.items()}


def named(server: Server, name: str, *states: str) -> Document:
    return server.until_named(name, *states, patience_s=PATIENCE_S)


EACH_ALONE = ({"0": ["a"] * 4, "1": ["b"] * 4}, {"0": ["b"] * 4, "1": ["a"] * 4})


@pytest.mark.parametrize("way", ["kubectl", "submit"])
def test_each_job_of_a_set_runs_in_a_zone_of_its_own(way: str, cluster: Cluster, server: Server) -> None:
    """It waited for ever: its gang was whole when all pods were there, and they came when one was bound."""
    if way == "kubectl":
        cluster.api.create(JOBSETS, ours(alone("by-kubectl")))
    else:
        done = server.swell("submit", "-f", "-", stdin=yaml.safe_dump(alone("by-submit")))
        assert done.code == 0, done
    named(server, f"by-{way}", "running")
    assert zones_of(cluster, f"by-{way}") in EACH_ALONE


def test_no_pod_of_a_set_is_bound_before_there_is_room_for_all(cluster: Cluster, server: Server) -> None:
    """Room in one zone is not enough, and the first pods would hold it."""
    busy = ours(pod("busy", "true", on={ZONE: "b"}, gpus=8))
    cluster.api.create(PODS, busy)
    named(server, "busy", "running")
    cluster.api.create(JOBSETS, ours(alone("waits", annotations=SHORT)))
    job = named(server, "waits", "queued")
    server.until_true(job["id"], lambda found: found["reason"]["code"] == "WaitingForRoom", patience_s=PATIENCE_S)
    assert {zone for zones in zones_of(cluster, "waits").values() for zone in zones} <= {"not bound"}
    cluster.api.delete(f"{PODS}/busy?gracePeriodSeconds=0")
    named(server, "waits", "succeeded")


def test_a_zone_that_a_set_has_to_itself_is_left_alone_by_other_sets(cluster: Cluster, server: Server) -> None:
    """Also where it has room; a pod that is of no set may go there, as Kubernetes' own rule has it."""
    cluster.api.create(JOBSETS, ours(alone("first", jobs=1, pods=2, gpus=1)))
    named(server, "first", "running")
    cluster.api.create(JOBSETS, ours(alone("second", jobs=2, pods=2, gpus=1, annotations=SHORT)))
    waits = named(server, "second", "queued")
    server.until_true(
        waits["id"],
        lambda found: "1 of those is used by other JobSets" in found["reason"]["message"],
        patience_s=PATIENCE_S,
    )
    cluster.api.create(JOBSETS, ours(jobset("shares", "true", count=2, on=ON_KWOK, gpus=8)))
    named(server, "shares", "running")
    assert zones_of(cluster, "shares")["0"] != zones_of(cluster, "first")["0"]
    for name in ("first", "shares"):
        cluster.api.delete(f"{JOBSETS}/{name}?propagationPolicy=Foreground")
    named(server, "second", "succeeded")


def test_such_a_set_goes_on_when_the_server_was_killed_between_the_binds(cluster: Cluster, server: Server) -> None:
    cluster.api.create(JOBSETS, ours(alone("again")))
    cluster.api.until(PODS, lambda pods: any(one["spec"].get("nodeName") for one in pods.values()))
    server.kill()
    server.up()
    named(server, "again", "running")
    assert zones_of(cluster, "again") in EACH_ALONE
