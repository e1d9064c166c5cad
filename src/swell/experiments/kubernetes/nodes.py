"""Which nodes does the cluster have, what do they hold, and what is kept of them with the results?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.objects.amounts import pod_resources
from swell.engines.kubernetes.watch.observed_objects import read_node
from swell.experiments.experiment import Experiment
from swell.experiments.figures import Capacity
from swell.model.resources import Resources

SIMULATED = "kwok.x-k8s.io/node"  # annotation of kwok's nodes, and the key of the taint that many give them
TOPOLOGY = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone", "node.kubernetes.io/instance-type")
KEEPS_OUT = ("NoSchedule", "NoExecute")
SYSTEM_NAMESPACES = ("kube-system", "kube-node-lease", "kube-public", "kueue-system")


@dataclass(frozen=True, slots=True)
class UsableNode:
    """One that takes pods of an experiment."""

    name: str
    is_simulated: bool
    room: Resources  #: what others leave of it: of the system, DaemonSets, schedulers


def usable_nodes(documents: Iterable[Document], pods: Iterable[Document], namespace: str) -> tuple[UsableNode, ...]:
    """Ready, not cordoned, and without a taint that keeps pods out, but for kwok's own. `namespace`: the experiment's,
    whose pods are gone before anything is measured."""
    taken = _taken_by_node(pods, namespace)
    found = []
    for document in documents:
        seen = read_node(document)
        is_kept_out = any(taint.effect in KEEPS_OUT and taint.key != SIMULATED for taint in seen.taints)
        if seen.is_ready and not seen.is_cordoned and not is_kept_out:
            room = _left(seen.room, taken.get(seen.name, Resources()))
            found.append(UsableNode(seen.name, SIMULATED in _annotations(document), room))
    return tuple(sorted(found, key=lambda node: node.name))


def _taken_by_node(pods: Iterable[Document], namespace: str) -> dict[str, Resources]:
    taken: dict[str, Resources] = {}
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node and pod["metadata"]["namespace"] != namespace and not _has_ended(pod):
            taken[node] = taken.get(node, Resources()) + pod_resources(pod["spec"])
    return taken


def _left(room: Resources, taken: Resources) -> Resources:
    """A node may hold more than it has, if it was made smaller since."""
    left = room - taken
    return Resources(max(0, left.cpus_milli), max(0, left.memory_mib), max(0, left.gpus))


def _annotations(document: Document) -> dict[str, str]:
    return document["metadata"].get("annotations") or {}


def capacity_of(nodes: Sequence[UsableNode]) -> Capacity:
    return Capacity(len(nodes), sum(node.room.cpus_milli for node in nodes), sum(node.room.gpus for node in nodes))


@dataclass(frozen=True, slots=True)
class SystemPods:
    """Which pods belong to the cluster, or are what its schedulers consist of?"""

    namespaces: frozenset[str]
    schedulers: frozenset[str]  #: by schedulerName, of all contenders

    @classmethod
    def of(cls, experiment: Experiment) -> SystemPods:
        namespaces = (*SYSTEM_NAMESPACES, *experiment.cluster.system_namespaces)
        return cls(frozenset(namespaces), frozenset(one.scheduler for one in experiment.contenders))

    def has(self, pod: Document) -> bool:
        is_scheduler = any(runs_scheduler(pod, name) for name in self.schedulers)
        return pod["metadata"]["namespace"] in self.namespaces or is_scheduler


def runs_scheduler(pod: Document, name: str) -> bool:
    """Has it a container whose image is called as the scheduler, or begins so (fluence, fluence-sidecar)?"""
    images = (str(container.get("image", "")) for container in pod["spec"]["containers"])
    called = (image.partition("@")[0].rpartition("/")[2].partition(":")[0] for image in images)
    return any(one == name or one.startswith(f"{name}-") for one in called)


def foreign_pods(documents: Iterable[Document], namespace: str, system: SystemPods) -> tuple[str, ...]:
    """Pods that take room on nodes and are none of ours: by which a cluster is not clean."""
    return tuple(
        f"{one['metadata']['namespace']}/{one['metadata']['name']}"
        for one in documents
        if one["metadata"]["namespace"] != namespace
        and not system.has(one)
        and not _has_ended(one)
        and not _is_of_every_node(one)
        and _takes_room(one)
    )


def _has_ended(pod: Document) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _is_of_every_node(pod: Document) -> bool:
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(owner.get("kind") in ("DaemonSet", "Node") for owner in owners)


def _takes_room(pod: Document) -> bool:
    needs = pod_resources(pod["spec"])
    return bool(needs.cpus_milli or needs.memory_mib or needs.gpus)


# -- what is kept ----------------------------------------------------------------------------------------------


def describe_nodes(documents: Iterable[Document]) -> list[dict[str, Any]]:
    return [
        {
            "name": one["metadata"]["name"],
            "labels": one["metadata"].get("labels") or {},
            "taints": (one.get("spec") or {}).get("taints") or [],
            "allocatable": (one.get("status") or {}).get("allocatable") or {},
            "capacity": (one.get("status") or {}).get("capacity") or {},
            "nodeInfo": (one.get("status") or {}).get("nodeInfo") or {},
            "simulated": SIMULATED in _annotations(one),
        }
        for one in documents
    ]


def describe_topology(documents: Iterable[Document]) -> dict[str, Any]:
    """Nodes by region, zone and type of machine: who is near whom."""
    found: dict[str, list[str]] = {}
    for one in documents:
        labels = one["metadata"].get("labels") or {}
        place = "/".join(labels.get(name, "-") for name in TOPOLOGY)
        found.setdefault(place, []).append(one["metadata"]["name"])
    return {"levels": list(TOPOLOGY), "nodes": {place: sorted(names) for place, names in sorted(found.items())}}


def describe_scheduler_pods(documents: Iterable[Document]) -> list[dict[str, Any]]:
    """What runs in the system's namespaces, and those of schedulers, with the digests of their images."""
    return [
        {
            "name": f"{one['metadata']['namespace']}/{one['metadata']['name']}",
            "node": one["spec"].get("nodeName", ""),
            "containers": [
                {
                    "name": state["name"],
                    "image": state.get("image", ""),
                    "imageID": state.get("imageID", ""),
                    "restarts": state.get("restartCount", 0),
                }
                for state in (one.get("status") or {}).get("containerStatuses") or ()
            ],
            "args": [
                container.get("args") or container.get("command") or [] for container in one["spec"]["containers"]
            ],
        }
        for one in documents
    ]
