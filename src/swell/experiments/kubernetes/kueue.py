"""Kueue as a contender: it admits a gang when its quota has room for the whole, and the cluster's scheduler places it.

The quota is what all nodes together have left beside pods of the system. Its controller runs here without its
webhooks, whose two services Jobs of an experiment do not need: they are created suspended, with the label of the queue.
Where Kueue is installed, nothing of it is started, and it only gets a queue. A gang that was admitted and of which not
all pods are ready after a minute is evicted and tried again (`waitForPodsReady`), as Kueue's own page on all-or-nothing
scheduling has it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from swell.engines.kubernetes.client.api_client import PatchKind, Selection
from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.client.failures import AlreadyExists
from swell.engines.kubernetes.client.resources import SECRETS, Resource
from swell.engines.kubernetes.watch.observed_objects import moment
from swell.errors import NotFound, SwellError, Unavailable
from swell.experiments.kubernetes.contender import (
    CRDS,
    MANAGER,
    ClusterContender,
    Plans,
    apply_crds,
    has_crd,
    write_kubeconfig,
)
from swell.experiments.kubernetes.namespace import EXPERIMENT, NAMESPACES
from swell.experiments.kubernetes.observe import GangPlan
from swell.experiments.kubernetes.programs import (
    LOOK_S,
    LOOPBACK,
    ContenderProgram,
    Module,
    find_module,
    free_port,
    says_ok,
)
from swell.machine.certificate import own_certificate
from swell.machine.state_folder import StateFolder
from swell.model.kubernetes_quantity import GPU

GROUP = "kueue.x-k8s.io"
FLAVORS = Resource(GROUP, "v1beta1", "resourceflavors", "ResourceFlavor", is_namespaced=False)
CLUSTER_QUEUES = Resource(GROUP, "v1beta1", "clusterqueues", "ClusterQueue", is_namespaced=False)
LOCAL_QUEUES = Resource(GROUP, "v1beta1", "localqueues", "LocalQueue")
WORKLOADS = Resource(GROUP, "v1beta1", "workloads", "Workload")
QUEUE = "experiment"
SYSTEM = "kueue-system"
SECRET = "kueue-webhook-server-cert"  # noqa: S105  a name
CRD_FOLDER = "config/components/crd/bases"
READY_TIMEOUT = "60s"
QUEUE_S_MAX = 30.0
TRIES_MAX = 4
GONE_S_MAX = 20.0


class Kueue(ClusterContender):
    rights = (("create", CRDS), ("create", NAMESPACES), ("create", CLUSTER_QUEUES))

    def _is_installed(self) -> bool:
        name = f"{WORKLOADS.plural}.{GROUP}"
        return has_crd(self.around.client, name) and not has_crd(self.around.client, name, is_ours=True)

    def _module(self) -> Module:
        return find_module(self.around.programs, "kueue")

    def version(self) -> str:
        return "as installed" if self._is_installed() else self._module().version

    def check(self) -> None:
        if not self._is_installed():
            self._module()

    def start(self) -> None:
        if not self._is_installed():
            self._start_program()
        client = self.around.client
        for resource, document in self._queues():
            with suppress(AlreadyExists):
                client.create(resource, document, self.around.namespace if resource.is_namespaced else None)
        self._await_queue()

    def _start_program(self) -> None:
        module, scratch = self._module(), self.around.scratch
        files = sorted((module.files / CRD_FOLDER).glob("*.yaml"))
        apply_crds(self.around.client, files, (FLAVORS, CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS))
        self._prepare_certificates()
        kubeconfig = write_kubeconfig(self.around.client.access, scratch / "kubeconfig")
        health = f"{LOOPBACK}:{free_port()}"
        config = scratch / "kueue.json"
        self.configuration = self._configuration(health)
        config.write_text(json.dumps(self.configuration))
        argv: list[str | Path] = [module.program, f"--kubeconfig={kubeconfig}", f"--config={config}"]
        for tries_left in reversed(range(TRIES_MAX)):
            self.program = ContenderProgram("kueue", argv, scratch / "kueue.log")
            self.program.start()
            try:
                self.program.wait_until(lambda: says_ok(f"http://{health}/readyz"))
                break
            except Unavailable:  # new kinds are served before the list of all kinds has them, and it looks once
                if not tries_left:
                    raise

    def _prepare_certificates(self) -> None:
        """Its webhooks are not registered, but its server wants a pair, and its rotator a Secret to fill."""
        folder = self.around.scratch
        pair = own_certificate(StateFolder(folder), [LOOPBACK])
        for name, path in (("tls.crt", pair.chain), ("tls.key", pair.key)):
            (folder / name).write_bytes(path.read_bytes())
        labels = {EXPERIMENT: "yes"}
        client = self.around.client
        with suppress(AlreadyExists):
            metadata = {"name": SYSTEM, "labels": labels}
            client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        with suppress(AlreadyExists):
            metadata = {"name": SECRET, "namespace": SYSTEM}
            client.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}, SYSTEM)

    def _configuration(self, health: str) -> Document:
        requeuing = {"timestamp": "Eviction", "backoffBaseSeconds": 2, "backoffMaxSeconds": 10}
        return {
            "apiVersion": f"config.{GROUP}/v1beta1",
            "kind": "Configuration",
            "namespace": SYSTEM,
            "leaderElection": {"leaderElect": False},
            "health": {"healthProbeBindAddress": health},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": LOOPBACK, "port": free_port(), "certDir": str(self.around.scratch)},
            "internalCertManagement": {
                "enable": True,
                "webhookServiceName": "kueue-webhook-service",
                "webhookSecretName": SECRET,
            },
            "clientConnection": {"qps": 5000, "burst": 10000},
            "featureGates": {"VisibilityOnDemand": False},
            "waitForPodsReady": {
                "enable": True,
                "timeout": READY_TIMEOUT,
                "blockAdmission": False,
                "requeuingStrategy": requeuing,
            },
            "integrations": {"frameworks": ["batch/job"]},
        }

    def _queues(self) -> Iterator[tuple[Resource, Document]]:
        yield FLAVORS, _document(FLAVORS, {})
        quota = {"cpu": f"{self.around.capacity.cpus_milli}m", "memory": f"{self.around.memory_mib}Mi"}
        quota |= {GPU: str(self.around.capacity.gpus)}
        resources = [{"name": name, "nominalQuota": amount} for name, amount in quota.items()]
        group = {"coveredResources": list(quota), "flavors": [{"name": QUEUE, "resources": resources}]}
        spec = {"namespaceSelector": {}, "queueingStrategy": "BestEffortFIFO", "resourceGroups": [group]}
        yield CLUSTER_QUEUES, _document(CLUSTER_QUEUES, {"spec": spec})
        yield LOCAL_QUEUES, _document(LOCAL_QUEUES, {"spec": {"clusterQueue": QUEUE}})

    def _await_queue(self) -> None:
        until = time.monotonic() + QUEUE_S_MAX
        while time.monotonic() < until:
            found = self.around.client.get(LOCAL_QUEUES, QUEUE, self.around.namespace)
            if any(one["type"] == "Active" and one["status"] == "True" for one in _conditions(found)):
                return
            time.sleep(LOOK_S)
        raise Unavailable(
            f"Kueue's queue was not active after {QUEUE_S_MAX:.0f} s; see `kubectl describe clusterqueue`"
        )

    def stop(self) -> None:
        """Its queues first, while it runs: it holds on to them until nothing uses them."""
        for resource in (CLUSTER_QUEUES, FLAVORS):
            with suppress(SwellError):
                self._remove(resource)
        super().stop()
        with suppress(SwellError):
            found = self.around.client.get(NAMESPACES, SYSTEM)
            if EXPERIMENT in (found["metadata"].get("labels") or {}):
                self.around.client.delete(NAMESPACES, SYSTEM)

    def _remove(self, resource: Resource) -> None:
        client = self.around.client
        client.delete(resource, QUEUE)
        until = time.monotonic() + GONE_S_MAX
        while time.monotonic() < until:
            try:
                client.get(resource, QUEUE)
            except NotFound:
                return
            time.sleep(LOOK_S)
        client.patch(resource, QUEUE, {"metadata": {"finalizers": None}}, kind=PatchKind.MERGE, manager=MANAGER)

    def plans(self) -> Plans:
        found: dict[str, GangPlan] = {}
        for job, conditions in self._workloads().items():
            for one in conditions:
                if one["type"] == "Admitted" and one["status"] == "True":
                    found[job] = GangPlan(moment(one["lastTransitionTime"]), detail="admitted by Kueue")
        return found

    def reasons(self) -> Mapping[str, str]:
        return {
            job: one["message"]
            for job, conditions in self._workloads().items()
            for one in conditions
            if one["type"] == "QuotaReserved" and one["status"] == "False"
        }

    def _workloads(self) -> dict[str, list[Document]]:
        """By the Job that each is of."""
        with suppress(SwellError):
            items = self.around.client.list(Selection(WORKLOADS, self.around.namespace)).items
            owners = ((item, item["metadata"].get("ownerReferences") or ()) for item in items)
            return {owner["name"]: _conditions(item) for item, found in owners for owner in found[:1]}
        return {}


def _conditions(document: Document) -> list[Document]:
    return list((document.get("status") or {}).get("conditions") or ())


def _document(resource: Resource, body: Document) -> Document:
    metadata = {"name": QUEUE, "labels": {EXPERIMENT: "yes"}}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **body}
