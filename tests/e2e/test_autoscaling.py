"""A job that waits for nodes calls a cluster's autoscaler: on a real control plane, to which we add the nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.api import Object, condition
from cluster.cluster import Cluster
from cluster.jobs import ON_KWOK, PODS, job, pod
from cluster.kwok import add_nodes, render_nodes
from cluster.starting import module_cluster
from onitscluster import server_on
from server import Server
from swell.kubectl.placeholder_pods import make_placeholder
from swell.model.placement import NODE_NAME, Company, Effect, Operator, PlacementRules, Requirement, Term, Toleration
from swell.model.resources import Resources

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
PATIENCE_S = 60.0
NODES = "/api/v1/nodes"
STAND_IN = "swell.dev/stand-in"
SPOT = {"type": "kwok", "pool": "spot"}
TAINT = {"key": "spot", "value": "yes", "effect": "NoSchedule"}
TOLERATION = {"key": "spot", "operator": "Exists"}


@dataclass(frozen=True)
class Stage:
    cluster: Cluster
    server: Server

    def submit(self, document: Object) -> int:
        done = self.server.swell("submit", "-f", "-", stdin=yaml.safe_dump(document))
        return done.id

    def until_standing(self, *jobs: int) -> list[Object]:
        """The pods that stand in, as soon as those are for these jobs, one entry a task, and all say so."""

        def is_so(items: dict[str, Object]) -> bool:
            found = standing(items)
            return [int(one["metadata"]["labels"][STAND_IN]) for one in found] == sorted(jobs) and all(
                condition(one, "PodScheduled") == "False" for one in found
            )

        return standing(self.cluster.api.until(PODS, is_so, patience_s=PATIENCE_S))

    def add_nodes(self, count: int, prefix: str, **labels: str) -> None:
        add_nodes(self.cluster.api, render_nodes(count, prefix=prefix, labels=labels, taints=[TAINT]))


def standing(items: dict[str, Object]) -> list[Object]:
    found = [one for one in items.values() if STAND_IN in one["metadata"].get("labels", {})]
    return sorted(found, key=lambda one: (int(one["metadata"]["labels"][STAND_IN]), one["metadata"]["name"]))


cluster = module_cluster(kwok=1)


@pytest.fixture
def stage(cluster: Cluster, tmp_path: Path) -> Iterator[Stage]:
    """One node, with 8 GPUs; those of the pool are added."""
    with server_on(cluster, tmp_path) as server:
        yield Stage(cluster, server)
    for name in cluster.api.until(NODES, lambda _: True):
        if not name.startswith("kwok-"):
            cluster.api.delete(f"{NODES}/{name}")


def on_spot(name: str, *, tasks: int, gpus: int) -> Object:
    """A gang that runs on nodes of a pool that is at zero."""
    made = job(name, "true", count=tasks, gpus=gpus, on=SPOT, tolerations=[TOLERATION])
    made["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": name}
    return made


def asked(one: Object) -> dict[str, Any]:
    """What an autoscaler looks at."""
    spec = one["spec"]
    fields = ("nodeSelector", "tolerations", "nodeName", "schedulerName")
    resources = spec["containers"][0]["resources"]
    return {"requests": resources["requests"], **{name: spec[name] for name in fields if name in spec}}


def test_pods_stand_in_for_a_gang_until_its_nodes_are_there(stage: Stage) -> None:
    gang = stage.submit(on_spot("gang", tasks=2, gpus=8))
    pods = stage.until_standing(gang, gang)
    tolerations = pods[0]["spec"].pop("tolerations")
    assert TOLERATION in tolerations
    pods[1]["spec"].pop("tolerations")
    assert [asked(one) for one in pods] == [
        {
            "requests": {"cpu": "10m", "memory": "64Mi", "nvidia.com/gpu": "8"},
            "nodeSelector": SPOT,
            "schedulerName": "swell",
        }
    ] * 2
    reasons = [one["reason"] for pod in pods for one in pod["status"]["conditions"] if one["type"] == "PodScheduled"]
    assert reasons == ["Unschedulable", "Unschedulable"]
    assert [document["id"] for document in stage.server.jobs()] == [gang]

    stage.add_nodes(2, "pool", pool="spot")
    stage.server.until(gang, "running", patience_s=PATIENCE_S)
    stage.until_standing()
    nodes = {one["spec"]["nodeName"] for one in stage.cluster.api.until(PODS, lambda items: len(items) == 2).values()}
    assert nodes == {"pool-0", "pool-1"}


def test_they_go_when_the_job_is_held_or_cancelled(stage: Stage) -> None:
    held, cancelled = (stage.submit(on_spot(name, tasks=1, gpus=4)) for name in ("held", "cancelled"))
    stage.until_standing(held, cancelled)
    assert stage.server.swell("hold", str(held)).code == 0
    stage.until_standing(cancelled)
    assert stage.server.swell("cancel", str(cancelled)).code == 0
    stage.until_standing()


def test_what_a_killed_server_left_is_kept_for_those_that_wait_and_removed_for_others(stage: Stage) -> None:
    waiting = stage.submit(on_spot("waits", tasks=1, gpus=7))
    starting = stage.submit(pod("starts", "true", gpus=16, on=ON_KWOK))
    before = stage.until_standing(waiting, starting)
    stage.server.kill()
    add_nodes(stage.cluster.api, render_nodes(1, prefix="large", gpus=16))
    stage.cluster.api.create(PODS, orphan(before[0]))
    stage.server.up()
    stage.server.until(starting, "running", patience_s=PATIENCE_S)
    after = stage.until_standing(waiting)
    assert [one["metadata"]["uid"] for one in after] == [before[0]["metadata"]["uid"]]


def orphan(one: Object) -> Object:
    """The same for a job that is not there."""
    labels = {**one["metadata"]["labels"], STAND_IN: "999"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "left", "labels": labels}, "spec": one["spec"]}


def test_nothing_stands_in_for_what_came_by_kubectl_or_where_the_operator_does_not_want_it(stage: Stage) -> None:
    stage.cluster.api.create(PODS, {**pod("mine", "true", gpus=3, on=SPOT, schedulerName="swell")})
    stage.cluster.api.until(PODS, lambda items: condition(items["mine"], "PodScheduled") == "False")
    ours = stage.submit(on_spot("ours", tasks=1, gpus=2))
    stage.until_standing(ours)
    assert len(stage.server.jobs()) == 2
    stage.server.down()
    state = stage.server.state
    config = state.read_json(state.config)
    state.write_json(state.config, {**config, "cluster": {**config["cluster"], "stand_ins": False}})
    stage.server.up()
    stage.until_standing()
    assert stage.server.swell("why", str(ours), "-o", "json").json["code"] == "NoSuitableNode"
    stage.cluster.api.delete(f"{PODS}/mine")


@pytest.mark.parametrize("company", list(Company))
def test_an_api_server_takes_every_rule_under_the_strictest_pod_security(cluster: Cluster, company: Company) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "strict", "labels": labels}})
    rules = PlacementRules(
        selector=(("pool", "spot"),),
        terms=(
            Term((Requirement("zone", Operator.IN, ("a", "b")), Requirement("cores", Operator.GT, ("16",)))),
            Term((Requirement("old", Operator.DOES_NOT_EXIST),), (Requirement(NODE_NAME, Operator.NOT_IN, ("n1",)),)),
            Term(),
        ),
        tolerations=(Toleration("spot", "yes", Effect.NO_SCHEDULE), Toleration("gpu", None), Toleration("", None)),
        company=company,
    )
    made = make_placeholder(
        Resources(100, 64, 0, 512), rules, job=7, role=0, rank=0, store="0123456789abcdef", namespace="strict"
    )
    taken = cluster.api.create("/api/v1/namespaces/strict/pods?dryRun=All", made)
    spec = {name: taken["spec"].get(name) for name in ("nodeSelector", "affinity")}
    assert spec == {name: made["spec"].get(name) for name in ("nodeSelector", "affinity")}
