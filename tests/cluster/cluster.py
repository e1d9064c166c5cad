"""What does a whole test cluster consist of, and in which order does it come and go?

with Cluster(tmp_path, kwok=100, kubelets=1, operators=("training",)) as cluster:
    cluster.api.create(...)
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from . import nodes
from .api import Api
from .binaries import ensure, missing
from .controlplane import LOOPBACK, NODE_GRACE_S, ControlPlane
from .dns import Dns
from .kwok import Kwok, add_nodes, render_nodes
from .network import Network
from .nodes import RealNode
from .operators import OPERATORS, Operator
from .processes import Failed

KUBELETS_MAX = 3
CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "etcd")


class Cluster:
    """A control plane with simulated nodes, real ones and operators, as many as asked for."""

    def __init__(
        self,
        folder: Path,
        *,
        kwok: int = 0,
        kwok_gpus: int = 8,
        kwok_cpus: int = 64,
        kubelets: int = 0,
        gpus: int = 0,
        operators: Sequence[str] = (),
        images: Sequence[str] = (),
        scheduler: bool = True,
        node_grace_s: int = NODE_GRACE_S,
    ) -> None:
        self.folder = folder
        self._kwok_nodes = kwok
        self._kwok_gpus = kwok_gpus  #: of each simulated node
        self._kwok_cpus = kwok_cpus
        self._kubelets = kubelets
        self._gpus = gpus  #: of each real node
        self._operators = operators
        self._images = images
        self._scheduler = scheduler
        self._node_grace_s = node_grace_s
        self._undo = contextlib.ExitStack()
        self.nodes: list[RealNode] = []
        self.operators: dict[str, Operator] = {}

    def __enter__(self) -> Cluster:
        check_machine(kubelets=self._kubelets, operators=self._operators)
        ensure(missing(programs(kwok=self._kwok_nodes, kubelets=self._kubelets, operators=self._operators)))
        self.folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as undo:  # half a cluster is taken down again
            self._start(undo)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    @property
    def api(self) -> Api:
        return self.control_plane.api

    @property
    def kubeconfig(self) -> Path:
        return self.control_plane.kubeconfig

    def _start(self, undo: contextlib.ExitStack) -> None:
        self.network = Network() if self._kubelets else None
        if self.network:
            undo.callback(self.network.stop)
            self.network.start()
        self.control_plane = ControlPlane(
            self.folder,
            address=self.network.gateway if self.network else LOOPBACK,
            scheduler=self._scheduler,
            node_grace_s=self._node_grace_s,
        )
        undo.callback(self.control_plane.stop)
        self.control_plane.start()
        if self.network:
            self._start_real_nodes(self.network, undo)
        if self._kwok_nodes:
            self._start_kwok(undo)
        for name in self._operators:
            operator = OPERATORS[name](self.folder, self.api, self.control_plane.certificates)
            undo.callback(operator.stop)
            operator.start()
            self.operators[name] = operator
        for node in self.nodes:
            node.until_ready()

    def _start_kwok(self, undo: contextlib.ExitStack) -> None:
        self.kwok = Kwok(self.folder, self.api)
        undo.callback(self.kwok.stop)
        self.kwok.start()
        add_nodes(self.api, render_nodes(self._kwok_nodes, cpus=self._kwok_cpus, gpus=self._kwok_gpus))

    def _start_real_nodes(self, network: Network, undo: contextlib.ExitStack) -> None:
        self.dns = Dns(self.folder, self.kubeconfig, network.gateway)
        undo.callback(self.dns.stop)
        self.dns.start()
        for number in range(1, self._kubelets + 1):
            node = RealNode(self.folder, network, number, self.api, gpus=self._gpus)
            undo.callback(node.stop)
            node.start(self._kubelets, self._images)
            self.nodes.append(node)


def programs(*, kwok: int, kubelets: int, operators: Sequence[str]) -> tuple[str, ...]:
    """What must be built for such a cluster."""
    wanted = [*CONTROL_PLANE, *(OPERATORS[name].program for name in operators)]
    wanted += ["kwok"] if kwok else []
    wanted += ["kubelet", "coredns", "gpu-plugin"] if kubelets else []
    return tuple(wanted)


def check_machine(*, kubelets: int, operators: Sequence[str]) -> None:
    """Refuse what this machine cannot do, before anything is started."""
    if unknown := sorted(set(operators) - set(OPERATORS)):
        raise Failed(f"no operator is called {', '.join(unknown)}; there are {', '.join(OPERATORS)}")
    if not 0 <= kubelets <= KUBELETS_MAX:
        raise Failed(f"{kubelets} real nodes were asked for; 0 to {KUBELETS_MAX} are possible")
    if os.geteuid() != 0 and (kubelets or "training" in operators):
        raise Failed("real nodes and the training operator need root, for namespaces and mounts; run it as root")
    absent = nodes.missing() if kubelets else []
    absent += [tool for tool in ("openssl", "setpriv") if shutil.which(tool) is None]
    if absent:
        raise Failed(f"the test cluster needs: apt-get install -y {' '.join(absent)}")
