"""Swell as a pod on a real kubelet: the plain manifests with an image and a disk of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from cluster.api import condition
from cluster.cluster import Cluster
from cluster.images import name_of

from .chart import NAMESPACE, Document, of_kind, rendered

DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
PATIENCE_S = 60.0  # it takes ten seconds; a loaded machine is slow


class Installed:
    """An installation in a cluster with one real node; `remove` takes it and its disk away."""

    def __init__(self, cluster: Cluster, values: Document, *, uid: int) -> None:
        self.uid = uid
        self.api = cluster.api
        self.node = cluster.nodes[0].name
        self.volume = cluster.folder / "state"
        image = {"repository": name_of("swell").rpartition(":")[0], "tag": "1", "pullPolicy": "Never"}
        documents = rendered({**values, "image": image})
        deployment = of_kind(documents, "Deployment")["swell"]
        as_on_this_machine(deployment["spec"]["template"]["spec"], uid, urlsplit(self.api.server))
        self._documents = [namespace(), disk(self.volume, self.node), *documents]

    def install(self) -> None:
        self.volume.mkdir(mode=0o755)
        self.api.apply(*self._documents, namespace=NAMESPACE)
        self.until_available()

    def until_available(self) -> None:
        """Its probes are content; else what it said."""
        try:
            self.api.until(
                DEPLOYMENTS, lambda items: condition(items["swell"], "Available") == "True", patience_s=PATIENCE_S
            )
        except AssertionError as unready:
            said = self.api.kubectl("logs", "--namespace", NAMESPACE, "deploy/swell", "--tail=50")
            raise AssertionError(f"the pod is not ready; it said:\n{said}\n{self.pod()['status']}") from unready

    def pod(self) -> Document:
        return next(iter(self.api.until(PODS, bool).values()))

    def inside(self, *words: str) -> str:
        return self.api.kubectl("exec", "--namespace", NAMESPACE, "deploy/swell", "--", *words)

    def replace_pod(self) -> None:
        """As a drained node would."""
        before = self.pod()
        self.api.kubectl("delete", "pod", "--namespace", NAMESPACE, "--wait", before["metadata"]["name"])
        self.api.until(PODS, lambda items: any(is_ready(item) for item in items.values()), patience_s=PATIENCE_S)

    def remove(self) -> None:
        self.api.kubectl("delete", "namespace", NAMESPACE, "--wait")
        self.api.kubectl("delete", "persistentvolume", "swell", "--wait")


def is_ready(pod: Document) -> bool:
    return condition(pod, "Ready") == "True"


def as_on_this_machine(pod: dict[str, Any], uid: int, server: SplitResult) -> None:
    """Cluster addresses lead nowhere here: the pod is told the API server's own.

    Where no group is named, OpenShift's admission writes user and group of the namespace's range into the pod.
    """
    [container] = pod["containers"]
    container["env"] += [
        {"name": "KUBERNETES_SERVICE_HOST", "value": server.hostname},
        {"name": "KUBERNETES_SERVICE_PORT", "value": str(server.port)},
    ]
    if "fsGroup" not in pod["securityContext"]:
        pod["securityContext"] |= {"runAsUser": uid, "fsGroup": uid}


def namespace() -> Document:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}


def disk(folder: Path, node: str) -> Document:
    """There is no provisioner here; a local volume is given to its group (fsGroup) as others are."""
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "swell"},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "claimRef": {"namespace": NAMESPACE, "name": "swell"},
            "local": {"path": str(folder)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    }
