"""Which nodes and how much of them is there for an experiment, and what is kept of them? No cluster is needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from swell.experiments.experiment import parse_experiment
from swell.experiments.kubernetes.nodes import (
    SystemPods,
    UsableNode,
    capacity_of,
    describe_scheduler_pods,
    describe_topology,
    foreign_pods,
    usable_nodes,
)
from swell.experiments.measure import GangAsked
from swell.experiments.too_large import too_large

GANG = GangAsked("gang-1", 2, cpus_milli=500, memory_mib=64, gpus=1, duration_s=5.0)


def node(name: str, *, cpus: str = "4", ready: bool = True, simulated: bool = False, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"} if simulated else {},
            "labels": {"topology.kubernetes.io/zone": "z1"},
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": spec,
        "status": {
            "allocatable": {"cpu": cpus, "memory": "1Gi", "nvidia.com/gpu": "2"},
            "conditions": [{"type": "Ready", "status": str(ready)}],
        },
    }


def usable(*nodes: dict[str, Any], pods: Sequence[dict[str, Any]] = ()) -> tuple[UsableNode, ...]:
    return usable_nodes(nodes, pods, "race")


def test_nodes_that_take_no_pods_are_no_part_of_the_cluster() -> None:
    nodes = usable(
        node("b"),
        node("a", simulated=True, taints=[{"key": "kwok.x-k8s.io/node", "effect": "NoSchedule"}]),
        node("cordoned", unschedulable=True),
        node("lost", ready=False),
        node("control", taints=[{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]),
    )
    assert [(one.name, one.is_simulated) for one in nodes] == [("a", True), ("b", False)]
    assert (capacity_of(nodes).cpus_milli, capacity_of(nodes).gpus) == (8000, 4)


def test_a_gang_that_would_not_fit_into_the_empty_cluster_is_named() -> None:
    nodes = [one.room for one in usable(node("a"), node("b"))]
    assert too_large([GANG], nodes) == ""
    assert "gang-2 has 5 ranks" in too_large([GANG, GangAsked("gang-2", 5, cpus_milli=1, gpus=1)], nodes)
    assert "hold 4" in too_large([GangAsked("gang-2", 5, cpus_milli=1500)], nodes)  # 1.5 CPUs: two on each node


def test_what_pods_of_the_system_hold_is_no_room_for_gangs() -> None:
    """Kueue admitted gangs for all that nodes have; on a real cluster a part of each is taken."""
    pods = [
        taking("kube-system", "dns", cpu="250m"),
        taking("monitoring", "exporter", owner="DaemonSet", cpu="1"),
        taking("kube-system", "ended", phase="Succeeded"),
        taking("kube-system", "waiting", node=""),
        taking("race", "gang-1-0"),
        taking("kube-system", "large", node="b", cpu="5"),
    ]
    nodes = usable(node("a"), node("b"), pods=pods)
    assert [(one.name, one.room.cpus_milli, one.room.memory_mib, one.room.gpus) for one in nodes] == [
        ("a", 2750, 1024, 2),
        ("b", 0, 1024, 2),
    ]
    assert capacity_of(nodes).cpus_milli == 2750
    whole = GangAsked("gang-2", 1, cpus_milli=3000)
    assert "hold 0" in too_large([whole], [one.room for one in nodes])
    assert too_large([whole], [one.room for one in usable(node("a"))]) == ""


def taking(
    namespace: str,
    name: str,
    *,
    phase: str = "Running",
    owner: str = "",
    cpu: str = "1",
    image: str = "x",
    node: str = "a",
) -> dict[str, Any]:
    metadata = {"namespace": namespace, "name": name, "ownerReferences": [{"kind": owner}] if owner else []}
    containers = [{"name": "main", "image": image, "resources": {"requests": {"cpu": cpu}}}]
    return {"metadata": metadata, "spec": {"nodeName": node, "containers": containers}, "status": {"phase": phase}}


def system_pods(cluster: str, *contenders: str) -> SystemPods:
    named = ", ".join(contenders or ("default",))
    text = f"workload: tiny\ncluster: {{kubernetes: {cluster}}}\ncontenders: [{named}]\n"
    return SystemPods.of(parse_experiment(text, Path()))


def test_pods_of_the_system_and_of_every_node_do_not_make_a_cluster_unclean() -> None:
    pods = [
        taking("kube-system", "dns"),
        taking("race", "gang-1-0"),
        taking("default", "exporter", owner="DaemonSet"),
        taking("default", "old", phase="Succeeded"),
        taking("default", "idle", cpu="0"),
        taking("team", "train"),
    ]
    assert foreign_pods(pods, "race", system_pods("{}")) == ("team/train",)


def test_pods_of_which_a_scheduler_consists_do_not_make_a_cluster_unclean() -> None:
    """The chart of Fluence asks for a tenth of a CPU in a namespace of its own: no run of it was possible."""
    pods = [
        taking("flux", "fluence-1", cpu="100m", image="ghcr.io/flux-framework/fluence-sidecar@sha256:abc"),
        taking("flux", "controller", image="localhost:5000/fluence-controller:v1"),
        taking("certs", "webhook", image="quay.io/jetstack/cert-manager-webhook:v1"),
        taking("team", "train", image="registry/fluence/lammps:latest"),
        taking("team", "like", image="fluency"),
    ]
    assert foreign_pods(pods, "race", system_pods("{}")) == (
        *("flux/fluence-1", "flux/controller", "certs/webhook", "team/train", "team/like"),
    )
    assert foreign_pods(pods, "race", system_pods("{}", "fluence")) == ("certs/webhook", "team/train", "team/like")
    named = system_pods("{systemNamespaces: [certs, flux]}")
    assert foreign_pods(pods, "race", named) == ("team/train", "team/like")
    assert [named.has(pod) for pod in pods] == [True, True, True, False, False]
    mine = system_pods("{}", "{name: mine, schedulerName: fluency}")
    assert [one["metadata"]["name"] for one in pods if mine.has(one)] == ["like"]


def test_what_is_kept_of_schedulers_has_the_digests_of_their_images() -> None:
    state = {"name": "main", "image": "kube-scheduler:v1", "imageID": "sha256:abc", "restartCount": 2}
    pod = {
        "metadata": {"namespace": "kube-system", "name": "kube-scheduler-a"},
        "spec": {"nodeName": "a", "containers": [{"name": "main", "command": ["kube-scheduler", "--v=2"]}]},
        "status": {"containerStatuses": [state]},
    }
    [found] = describe_scheduler_pods([pod])
    assert found["containers"] == [
        {"name": "main", "image": "kube-scheduler:v1", "imageID": "sha256:abc", "restarts": 2}
    ]
    assert found["args"] == [["kube-scheduler", "--v=2"]]
    assert describe_topology([node("b"), node("a")])["nodes"] == {"-/z1/-": ["a", "b"]}
