"""Which scheduler is measured, what of it do we start and take away again, and what does it say that it decided?

    default        nothing is started: it belongs to the cluster
    coscheduling   its program, a second kube-scheduler, runs here; its CRD is made where it is missing
    kueue          its controller runs here (`kueue.py`), or the one that is installed gets a queue
    fluence        must be installed
    swell          a Swell server runs here, with a state folder of its own; also each policy of Swell
    any other      must be installed: its schedulerName is used

What runs here reaches the API server as the experiment does, so it works on every cluster on which that may do enough.
Client limits are raised for every contender that we start.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import swell
from swell.client import Client
from swell.engines.kubernetes.client.api_client import Selection
from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.client.resources import PODS
from swell.engines.kubernetes.election.lease import LABELS as LEASE_LABELS
from swell.engines.kubernetes.election.lease import LEASES
from swell.engines.kubernetes.watch.observed_objects import moment
from swell.errors import Conflict, Rejected, SwellError
from swell.experiments.experiment import ContenderWanted
from swell.experiments.kubernetes.contender import (
    CRDS,
    ClusterContender,
    Plans,
    Surroundings,
    apply_crds,
    write_kubeconfig,
)
from swell.experiments.kubernetes.kueue import Kueue
from swell.experiments.kubernetes.nodes import runs_scheduler
from swell.experiments.kubernetes.observe import GangPlan
from swell.experiments.kubernetes.programs import LOOPBACK, ContenderProgram, Module, find_module, free_port, says_ok
from swell.experiments.kubernetes.render import POD_GROUPS
from swell.machine.processes import module_argv
from swell.machine.state_folder import StateFolder

COSCHEDULING_CRD = "manifests/coscheduling/crd.yaml"
HELD_S = 60.0  # a Lease that was renewed within so long is held


def contender_of(wanted: ContenderWanted, around: Surroundings) -> ClusterContender:
    if wanted.is_custom:
        return ClusterContender(wanted, around)
    if wanted.scheduler == "swell":
        return SwellServer(wanted, around)
    known = {"coscheduling": Coscheduling, "kueue": Kueue, "fluence": Fluence}
    return known.get(wanted.name, ClusterContender)(wanted, around)


class Coscheduling(ClusterContender):
    rights = (("create", CRDS), ("create", POD_GROUPS))

    def _module(self) -> Module:
        return find_module(self.around.programs, "coscheduling")

    def version(self) -> str:
        return self._module().version

    def check(self) -> None:
        self._module()

    def start(self) -> None:
        module, scratch = self._module(), self.around.scratch
        apply_crds(self.around.client, [module.files / COSCHEDULING_CRD], (POD_GROUPS,))
        kubeconfig = write_kubeconfig(self.around.client.access, scratch / "kubeconfig")
        config = scratch / "coscheduling.json"
        self.configuration = coscheduling_configuration(kubeconfig)
        config.write_text(json.dumps(self.configuration))
        port = free_port()
        serving = (f"--bind-address={LOOPBACK}", f"--secure-port={port}", f"--cert-dir={scratch}")
        argv: list[str | Path] = [module.program, f"--config={config}", *serving]
        self.program = ContenderProgram("coscheduling", argv, scratch / "coscheduling.log")
        self.program.start()
        self.program.wait_until(lambda: says_ok(f"https://{LOOPBACK}:{port}/readyz"))


def coscheduling_configuration(kubeconfig: Path) -> Document:
    """Groups wait for 5 s for their last member, and are tried again at once."""
    waiting = {"permitWaitingTimeSeconds": 5, "podGroupBackoffSeconds": 0}
    profile = {
        "schedulerName": "coscheduling",
        "plugins": {
            "multiPoint": {"enabled": [{"name": "Coscheduling"}]},
            "queueSort": {"disabled": [{"name": "*"}], "enabled": [{"name": "Coscheduling"}]},
        },
        "pluginConfig": [{"name": "Coscheduling", "args": waiting}],
    }
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 5000, "burst": 10000},
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 2,
        "profiles": [profile],
    }


class Fluence(ClusterContender):
    def check(self) -> None:
        pods = self.around.client.list(Selection(PODS)).items
        if not any(runs_scheduler(pod, self.wanted.scheduler) for pod in pods):
            raise Rejected(
                "contender fluence is not installed: no pod of the cluster has an image of that name; install it from "
                "its helm chart (docs/experiments.md says how), or leave it out"
            )


class SwellServer(ClusterContender):
    """A server of its own: what another installation would plan is not measured."""

    rights = (("create", LEASES),)

    def __init__(self, wanted: ContenderWanted, around: Surroundings) -> None:
        super().__init__(wanted, around)
        self._state = StateFolder(around.scratch / "state")

    def version(self) -> str:
        return swell.__version__

    def check(self) -> None:
        """An older server would take in the pods first."""
        selector = ",".join(f"{name}={value}" for name, value in LEASE_LABELS.items())
        for lease in self.around.client.list(Selection(LEASES, labels=selector)).items:
            namespace = lease["metadata"]["namespace"]
            if namespace != self.around.namespace and _is_held(lease.get("spec") or {}):
                raise Conflict(
                    f"a Swell server is at work in namespace {namespace!r} and would take in the pods of contender "
                    f"{self.wanted.name}; stop it, or measure it as it is: {{name: installed, schedulerName: swell}}"
                )

    def start(self) -> None:
        self._state.prepare()
        kubeconfig = write_kubeconfig(self.around.client.access, self.around.scratch / "kubeconfig")
        self.configuration = {
            "cluster": {"kubeconfig": str(kubeconfig), "namespace": self.around.namespace},
            "policy": self.wanted.policy or "swell",
        }
        words = ("--state", str(self._state.root), "--settings", json.dumps(self.configuration))
        self.program = ContenderProgram("swell", module_argv("swell.server", *words), self._state.server_log)
        self.program.start()
        self.program.wait_until(self._has_nodes)

    def _has_nodes(self) -> bool:
        if self._state.serving():
            with suppress(SwellError, OSError):
                return len(Client(self._state).nodes()) >= self.around.capacity.nodes
        return False

    def plans(self) -> Plans:
        """When it decided where the ranks of a gang go, and where."""
        client = Client(self._state)
        found: dict[str, GangPlan] = {}
        with suppress(SwellError, OSError):
            for job in client.jobs(all=True):
                attempts = client.show(job.id)["attempts"]
                if attempts:
                    found[job.name] = GangPlan(moment(attempts[-1]["created_at"]), _nodes(attempts[-1]))
        return found

    def reasons(self) -> Mapping[str, str]:
        with suppress(SwellError, OSError):
            waiting = [job for job in Client(self._state).jobs() if job.document.get("reason")]
            return {job.name: str(job.document["reason"].get("message", "")) for job in waiting}
        return {}


def _nodes(attempt: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(sorted({str(task["node"]) for task in attempt["tasks"]}))


def _is_held(lease: Document) -> bool:
    is_fresh = bool(lease.get("renewTime")) and time.time() - moment(lease["renewTime"]) < HELD_S
    return is_fresh and bool(lease.get("holderIdentity"))
