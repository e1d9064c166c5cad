"""How is a control plane started, disturbed and stopped? Four plain processes, each of which may be killed alone."""

from __future__ import annotations

import base64
import json
import secrets
from functools import partial
from pathlib import Path

from .api import Api
from .binaries import program
from .certificates import Certificates, make_certificates
from .identity import ISSUER, POLICY
from .processes import Process, Word, free_port, is_ready

LOOPBACK = "127.0.0.1"
NOWHERE = "192.0.2.1"  # must not be loopback; nobody is sent there, because nothing reconciles the endpoints
SERVICES = "10.96.0.0/16"  # cluster addresses are handed out but lead nowhere: there is no kube-proxy
NODE_GRACE_S = 50  # Kubernetes' own default
APISERVER_GRACE_S = 1.0  # it does not leave within 5 s of SIGTERM; nothing is lost by killing it
CLIENT_RATE = ("--kube-api-qps=1000", "--kube-api-burst=2000")  # the defaults, 20 and 30, are what a test would measure


class ControlPlane:
    """A whole control plane in a folder; its parts may be killed, paused and started again one by one."""

    def __init__(
        self, folder: Path, *, address: str = LOOPBACK, scheduler: bool = True, node_grace_s: int = NODE_GRACE_S
    ) -> None:
        self.folder = folder
        self.address = address
        self.port = free_port(address)
        self.kubeconfig = folder / "kubeconfig"
        self.audit = folder / "audit.log"  #: what service accounts have asked
        self.certificates: Certificates = make_certificates(folder / "certificates", LOOPBACK, address)
        self._token = secrets.token_hex(16)
        self._write_access()
        self.etcd, self._etcd_port = self._make_etcd()
        self.apiserver = self._make_apiserver()
        self.controller_manager = self._make_controller_manager(node_grace_s)
        self.scheduler = self._make_scheduler() if scheduler else None

    def start(self) -> None:
        """From nothing to a cluster that takes pods."""
        self.etcd.start()
        self.apiserver.start()  # it waits for etcd by itself
        self.until_ready()
        self.controller_manager.start()
        if self.scheduler:
            self.scheduler.start()
        self.api = Api(self.kubeconfig)
        accounts = "/api/v1/namespaces/default/serviceaccounts"
        self.api.until(accounts, lambda items: "default" in items)  # without it no pod is admitted

    def until_ready(self) -> None:
        """Until the API server answers; after a restart too."""
        self.apiserver.until(partial(is_ready, f"https://{self.address}:{self.port}/readyz"))

    def restart_apiserver(self) -> None:
        """On the same port, with the same keys and data."""
        self.apiserver.start()
        self.until_ready()

    def stop(self) -> None:
        """Whoever calls first, the data last; a part that is paused or dead is stopped like the others."""
        for process in (self.scheduler, self.controller_manager):
            if process:
                process.stop()
        self.apiserver.stop(APISERVER_GRACE_S)
        self.etcd.stop()

    @property
    def processes(self) -> list[Process]:
        parts = [self.etcd, self.apiserver, self.controller_manager]
        return [*parts, self.scheduler] if self.scheduler else parts

    # -- what each is told -------------------------------------------------------------------------------------

    def _write_access(self) -> None:
        (self.folder / "tokens.csv").write_text(f'{self._token},admin,admin,"system:masters"\n')
        authority = base64.b64encode(self.certificates.authority.read_bytes()).decode()
        server = f"https://{self.address}:{self.port}"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "swell-tests",
            "clusters": [
                {"name": "swell-tests", "cluster": {"server": server, "certificate-authority-data": authority}}
            ],
            "users": [{"name": "admin", "user": {"token": self._token}}],
            "contexts": [{"name": "swell-tests", "context": {"cluster": "swell-tests", "user": "admin"}}],
        }
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(json.dumps(document, indent=1))
        (self.folder / "audit.json").write_text(json.dumps(POLICY))

    def _make_etcd(self) -> tuple[Process, int]:
        port = free_port()
        client, peer = f"http://{LOOPBACK}:{port}", f"http://{LOOPBACK}:{free_port()}"
        words: list[Word] = [
            program("etcd"),
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",  # a test's cluster does not outlive a power cut
            "--log-level=warn",
        ]
        return Process("etcd", words, self.folder), port

    def _make_apiserver(self) -> Process:
        keys = self.certificates
        words: list[Word] = [
            program("kube-apiserver"),
            f"--etcd-servers=http://{LOOPBACK}:{self._etcd_port}",
            f"--bind-address={self.address}",
            f"--secure-port={self.port}",
            f"--advertise-address={NOWHERE if self.address == LOOPBACK else self.address}",
            "--endpoint-reconciler-type=none",
            f"--tls-cert-file={keys.server}",
            f"--tls-private-key-file={keys.server_key}",
            f"--cert-dir={self.folder / 'apiserver'}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            f"--service-account-key-file={keys.account_key}",
            f"--service-account-signing-key-file={keys.account_key}",
            f"--service-account-issuer={ISSUER}",
            f"--service-cluster-ip-range={SERVICES}",
            "--kubelet-preferred-address-types=InternalIP",  # nobody resolves a test node's name
            "--allow-privileged=true",
            "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",  # as OpenShift has it
            f"--audit-policy-file={self.folder / 'audit.json'}",
            f"--audit-log-path={self.audit}",
        ]
        return Process("kube-apiserver", words, self.folder)

    def _make_controller_manager(self, node_grace_s: int) -> Process:
        words: list[Word] = [
            program("kube-controller-manager"),
            f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={free_port()}",
            f"--cert-dir={self.folder / 'controller-manager'}",
            f"--service-account-private-key-file={self.certificates.account_key}",
            f"--root-ca-file={self.certificates.authority}",
            f"--node-monitor-grace-period={node_grace_s}s",
            "--concurrent-job-syncs=20",
            *CLIENT_RATE,
        ]
        return Process("kube-controller-manager", words, self.folder)

    def _make_scheduler(self) -> Process:
        config = self.folder / "kube-scheduler.json"
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(self.kubeconfig), "qps": 5000, "burst": 10000},
        }
        config.write_text(json.dumps(document))
        words: list[Word] = [
            program("kube-scheduler"),
            f"--config={config}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={free_port()}",
            f"--cert-dir={self.folder / 'scheduler'}",
        ]
        return Process("kube-scheduler", words, self.folder)
