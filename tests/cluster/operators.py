"""How do the operators run whose kinds Swell reads? As plain processes with their CRDs and webhooks, no Deployment.

An operator's webhooks are registered under the address it listens on instead of a Service, and only once each is
served, which may be after the operator says that it is ready: they fail closed. Before it is stopped they are removed,
or nothing of its kind could be deleted any more.
"""

from __future__ import annotations

import base64
import fcntl
import json
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from swell.experiments.kubernetes.contenders import coscheduling_configuration

from .api import Api, Object
from .binaries import cache, module_file, program
from .certificates import Certificates
from .controlplane import LOOPBACK
from .processes import Process, Word, free_port, is_ready, is_served

CLIENT_RATE = ("--kube-api-qps=500", "--kube-api-burst=1000")  # the defaults, 20 and 30, make everything slow
MPI_CRD = "manifests/base/kubeflow.org_mpijobs.yaml"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"


class Operator:
    """What all have in common: CRDs, a process, a health port, webhooks."""

    name = ""
    program = ""

    def __init__(self, folder: Path, api: Api, certificates: Certificates) -> None:
        self.folder = folder
        self.api = api
        self.certificates = certificates
        self.health_port = free_port()
        self.webhook_port = free_port()
        self.process = Process(self.name, self.words(), folder)
        self._registered: list[str] = []

    def words(self) -> list[Word]:
        """How the process is started."""
        raise NotImplementedError

    def crds(self) -> list[Path]:
        """Files or folders with its CRDs."""
        raise NotImplementedError

    def webhooks(self) -> list[Object]:
        """Its webhook configurations, as its module ships them."""
        return []

    def prepare(self) -> None:
        """What must be there before it starts."""

    def start(self) -> None:
        for path in self.crds():
            self.api.kubectl("apply", "--server-side", "-f", path)
        self.prepare()
        self.process.start()
        self.process.until(partial(is_ready, self.health()))
        for document in self.webhooks():
            found = _registered_at(document, self.webhook_port, self.certificates)
            for webhook in found["webhooks"]:
                self.process.until(partial(is_served, webhook["clientConfig"]["url"]))
            self.api.apply(found)
            kind = "mutating" if document["kind"].startswith("Mutating") else "validating"
            self._registered.append(f"{WEBHOOKS}/{kind}webhookconfigurations/{document['metadata']['name']}")

    def health(self) -> str:
        return f"http://{LOOPBACK}:{self.health_port}/readyz"

    def stop(self) -> None:
        while self._registered:
            self.api.delete(self._registered.pop())
        self.process.stop()


class JobSet(Operator):
    """JobSets. Its mutating webhook is not optional: without the defaults the operator panics."""

    name = program = "jobset"

    def words(self) -> list[Word]:
        config = self.folder / "jobset.json"
        document = {
            "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "webhook": {"host": LOOPBACK, "port": self.webhook_port, "certDir": str(self.certificates.folder)},
            "metrics": {"bindAddress": "0"},
            "health": {"healthProbeBindAddress": f"{LOOPBACK}:{self.health_port}"},
            "clientConnection": {"qps": 500, "burst": 1000},
        }
        config.write_text(json.dumps(document))
        return [program("jobset"), f"--kubeconfig={self.api.kubeconfig}", f"--config={config}"]

    def crds(self) -> list[Path]:
        return [module_file("jobset", "config/components/crd/bases")]

    def webhooks(self) -> list[Object]:
        documents = _documents(module_file("jobset", "config/components/webhook/manifests.yaml"))
        owned = {"matchExpressions": [{"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}]}
        for document in documents:
            document["metadata"]["name"] = f"jobset-{document['metadata']['name']}"
            for webhook in document["webhooks"]:
                if "pod" in webhook["name"]:  # else every pod of the cluster would wait for JobSet
                    webhook["objectSelector"] = owned
        return documents


class TrainingOperator(Operator):
    """PyTorchJobs. It reads its certificate from one fixed folder, so it runs in a mount namespace of its own."""

    name = program = "training-operator"
    FIXED = "/tmp/k8s-webhook-server/serving-certs"

    def words(self) -> list[Word]:
        no_init_containers = self.folder / "no-init-containers.yaml"  # the default one is an image from a registry
        no_init_containers.write_text("[]\n")
        mount = f'mkdir -p {self.FIXED} && mount --bind "$0" {self.FIXED} && exec "$@"'
        enter: list[Word] = [
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            mount,
            self.certificates.folder,
        ]
        return [
            *enter,
            program("training-operator"),
            f"--kubeconfig={self.api.kubeconfig}",
            "--enable-scheme=pytorchjob",
            f"--webhook-server-port={self.webhook_port}",
            "--metrics-bind-address=0",
            f"--health-probe-bind-address={LOOPBACK}:{self.health_port}",
            f"--pytorch-init-container-template-file={no_init_containers}",
            "--controller-threads=4",
            *CLIENT_RATE,
        ]

    def crds(self) -> list[Path]:
        return [module_file("training-operator", "manifests/base/crds/kubeflow.org_pytorchjobs.yaml")]

    def prepare(self) -> None:
        keys = self.certificates
        files = (keys.authority, keys.authority_key, keys.server, keys.server_key)
        self.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubeflow"}})
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "training-operator-webhook-cert", "namespace": "kubeflow"},
            "data": {file.name: base64.b64encode(file.read_bytes()).decode() for file in files},
        }
        self.api.apply(secret, namespace="kubeflow")

    def webhooks(self) -> list[Object]:
        documents = _documents(module_file("training-operator", "manifests/base/webhook/manifests.yaml"))
        for document in documents:
            document["metadata"]["name"] = "validator.training-operator.kubeflow.org"  # its rotator looks for this
            document["webhooks"] = [entry for entry in document["webhooks"] if "pytorchjob" in entry["name"]]
        return documents


class MpiOperator(Operator):
    """MPIJobs. Its health port is fixed, so one runs on a machine at a time; others wait for it here."""

    name = "mpi"
    program = "mpi-operator"
    NAMESPACE = "mpi-operator"  # of the Lease it takes, which cannot be turned off

    def words(self) -> list[Word]:
        lock = f"--lock-namespace={self.NAMESPACE}"
        return [program("mpi-operator"), f"--kubeConfig={self.api.kubeconfig}", lock, *CLIENT_RATE]

    def crds(self) -> list[Path]:
        return [module_file("mpi-operator", MPI_CRD)]

    def prepare(self) -> None:
        self.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.NAMESPACE}})
        self._turn = (cache() / ".mpi-operator.lock").open("w")
        fcntl.flock(self._turn, fcntl.LOCK_EX)

    def health(self) -> str:
        return f"http://{LOOPBACK}:8080/healthz"

    def stop(self) -> None:
        super().stop()
        self._turn.close()


class Coscheduling(Operator):
    """A second kube-scheduler, `schedulerName: coscheduling`, that starts pod groups whole: what benchmarks race."""

    name = program = "coscheduling"

    def words(self) -> list[Word]:
        config = self.folder / "coscheduling.json"
        document = coscheduling_configuration(self.api.kubeconfig)
        config.write_text(json.dumps(document))
        ports = (f"--bind-address={LOOPBACK}", f"--secure-port={self.health_port}")
        return [program("coscheduling"), f"--config={config}", *ports, f"--cert-dir={self.folder / 'coscheduling'}"]

    def crds(self) -> list[Path]:
        return [module_file("coscheduling", "manifests/coscheduling/crd.yaml")]

    def health(self) -> str:
        return f"https://{LOOPBACK}:{self.health_port}/readyz"


OPERATORS: dict[str, type[Operator]] = {
    "jobset": JobSet,
    "training": TrainingOperator,
    "mpi": MpiOperator,
    "coscheduling": Coscheduling,
}


def _documents(file: Path) -> list[Any]:
    return [document for document in yaml.safe_load_all(file.read_text()) if document]


def _registered_at(document: Object, port: int, certificates: Certificates) -> Object:
    """The same webhooks, called at the address that the process listens on."""
    authority = base64.b64encode(certificates.authority.read_bytes()).decode()
    for webhook in document["webhooks"]:
        path = webhook["clientConfig"]["service"]["path"]
        webhook["clientConfig"] = {"url": f"https://{LOOPBACK}:{port}{path}", "caBundle": authority}
    return document
