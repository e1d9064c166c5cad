"""Swell as a pod on a real kubelet: the chart, installed by helm, with an image and a disk of this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cluster.api import condition
from cluster.cluster import Cluster
from cluster.images import name_of

from .chart import CHART, JOBS_NAMESPACE, NAMESPACE, Document, helm

DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
SERVERS = f"{PODS}?labelSelector=app.kubernetes.io/name%3Dswell"  # not those of its jobs
PATIENCE_S = 60.0  # it takes ten seconds; a loaded machine is slow


class Installed:
    """An installation in a cluster with one real node; `remove` takes it and its disk away."""

    def __init__(self, cluster: Cluster, values: Document, *, uid: int) -> None:
        self.uid = uid
        self.api = cluster.api
        self.node = cluster.nodes[0].name
        self.volume = cluster.folder / "state"
        image = {"repository": name_of("swell").rpartition(":")[0], "tag": "1", "pullPolicy": "Never"}
        self._values = {**values, "image": image}

    def install(self) -> None:
        self.volume.mkdir(mode=0o755)
        self.api.apply(namespace(), disk(self.volume, self.node))
        self._helm("install", "swell", CHART, *self._as_here(), values=self._values)
        self.until_available()

    def upgrade(self, **values: Any) -> None:
        """Until the next pod is ready."""
        before = self.pod()["metadata"]["name"]
        self._helm("upgrade", "swell", CHART, *self._as_here(), values={**self._values, **values})
        self._until_replaced(before)

    def upgrade_all(self, **values: Any) -> None:
        """Of several pods: until none of the old ones is left and all new ones are ready."""
        before = set(self.api.until(SERVERS, bool))
        self._helm("upgrade", "swell", CHART, *self._as_here(), values={**self._values, **values})
        self.api.until(
            SERVERS,
            lambda items: not before & set(items) and all(map(is_ready, items.values())),
            patience_s=2 * PATIENCE_S,
        )

    def uninstall(self) -> None:
        self._helm("uninstall", "swell", "--ignore-not-found")
        self.api.until(SERVERS, lambda items: not items)

    def _helm(self, *words: str | Path, values: Document | None = None) -> None:
        done = helm(*words, "--namespace", NAMESPACE, "--kubeconfig", self.api.kubeconfig, values=values)
        assert done.returncode == 0, done.stderr

    def _as_here(self) -> list[str]:
        server = urlsplit(self.api.server)
        program = (str(Path(__file__).with_name("as_here.py")), str(self.uid), str(server.hostname), str(server.port))
        return ["--post-renderer", sys.executable, *(f"--post-renderer-args={word}" for word in program)]

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
        return next(iter(self.api.until(SERVERS, bool).values()))

    def inside(self, *words: str) -> str:
        return self.api.kubectl("exec", "--namespace", NAMESPACE, "deploy/swell", "--", *words)

    def replace_pod(self) -> None:
        """As a drained node would."""
        before = self.pod()["metadata"]["name"]
        self.api.kubectl("delete", "pod", "--namespace", NAMESPACE, "--wait", before)
        self._until_replaced(before)

    def _until_replaced(self, before: str) -> None:
        self.api.until(
            SERVERS,
            lambda items: before not in items and any(is_ready(item) for item in items.values()),
            patience_s=PATIENCE_S,
        )

    def remove(self) -> None:
        self.uninstall()
        self.api.kubectl("delete", "namespace", NAMESPACE, JOBS_NAMESPACE, "--wait", "--ignore-not-found")
        self.api.kubectl("delete", "persistentvolume", "swell", "--wait")


def is_ready(pod: Document) -> bool:
    return condition(pod, "Ready") == "True"


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
