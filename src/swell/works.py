"""Which engine runs the tasks, and what starts and ends with it?

On machines of our own: the worker of this machine, kept alive. On Kubernetes: the watches, and who keeps the logs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from swell.adopting import Adopter, Jobs
from swell.clusterobjects import ClusterObjects
from swell.config import Cluster
from swell.engines.kubernetes import KubernetesEngine, Port, find_access
from swell.engines.kubernetes.logs import LogKeeper
from swell.engines.kubernetes.reservationpod import IMAGE
from swell.engines.workers import WorkersEngine
from swell.errors import Unavailable
from swell.manifests import Manifest, is_in_cluster
from swell.process import spawn_detached, wait_for_end
from swell.state import StateFolder
from swell.store import Store

WORKER_ENDS_S = 5.0
RESPAWN_S = 1.0  # a worker that dies at once is not started again faster than this
FIRST_LIST_S = 60.0  # of a cluster with 50,000 pods takes some seconds


class Works(Protocol):
    @property
    def engine(self) -> WorkersEngine | KubernetesEngine: ...

    def adopt(self, jobs: Jobs) -> None:
        """Who is told of jobs that came another way."""

    def open(self, load: Callable[[], int]) -> None:
        """`load` reads the world and tells the engine; its result is the generation to begin with."""

    def close(self) -> None: ...

    def try_out(self, manifests: Sequence[Manifest]) -> None:
        """Raises what whoever runs them would refuse."""

    @property
    def is_ready(self) -> bool: ...


class LocalWorks:
    """One worker, on this machine."""

    def __init__(self, state: StateFolder, wake: Callable[[], None]) -> None:
        self.engine = WorkersEngine(state.tasks, wake=wake)
        self._supervisor = WorkerSupervisor(state)

    def adopt(self, jobs: Jobs) -> None:
        """On a machine of ours nobody leaves jobs lying about."""

    def open(self, load: Callable[[], int]) -> None:
        self.engine.open(load())
        self._supervisor.start()

    def close(self) -> None:
        self._supervisor.close()

    def try_out(self, manifests: Sequence[Manifest]) -> None:
        """A machine takes whatever was read."""

    @property
    def is_ready(self) -> bool:
        return True


class ClusterWorks:
    """A Kubernetes cluster, as its API server shows it."""

    def __init__(self, state: StateFolder, cluster: Cluster, store: Store, wake: Callable[[], None]) -> None:
        access = find_access(None if cluster.kubeconfig is None else Path(cluster.kubeconfig), cluster.context)
        self._store = store
        self._port = Port(access)
        self._logs = LogKeeper(self._port, state.tasks)
        namespace = cluster.namespace or access.namespace
        self.engine = KubernetesEngine(
            self._port,
            lambda wanted: self.objects.manifest(wanted),
            self._logs,
            store=store.id,
            namespace=namespace,
            wake=wake,
            reservation_image=cluster.reservation_image or IMAGE,
        )
        self.objects = ClusterObjects(store, self._port, self.engine.cluster, namespace)

    def adopt(self, jobs: Jobs) -> None:
        self._adopter = Adopter(self._port, self.engine.cluster, jobs, self.engine.has_attempt_of)
        self.engine.on_change = self._adopter.ring

    def open(self, load: Callable[[], int]) -> None:
        """What is there is known before anything is wanted of it: what is missing would be made again."""
        trouble = self.engine.cluster.start(FIRST_LIST_S)
        if trouble is not None:
            raise Unavailable(f"the cluster cannot be followed: {trouble}")
        self.engine.open(load())
        for record in self._store.active():
            if record.manifest and is_in_cluster(document := self._store.manifest(record.manifest)):
                self._adopter.know(record.id, document)
        self._adopter.start()

    def close(self) -> None:
        self._adopter.close()
        self.engine.close()
        self._logs.close()
        self._port.close()

    def try_out(self, manifests: Sequence[Manifest]) -> None:
        self.objects.try_out(manifests)

    @property
    def is_ready(self) -> bool:
        return self.engine.cluster.trouble is None


def make_works(state: StateFolder, cluster: Cluster | None, store: Store, wake: Callable[[], None]) -> Works:
    return LocalWorks(state, wake) if cluster is None else ClusterWorks(state, cluster, store, wake)


class WorkerSupervisor(threading.Thread):
    """Keeps one worker alive on this machine. It is in a session of its own: it and its tasks outlive us."""

    def __init__(self, state: StateFolder) -> None:
        super().__init__(name="worker-supervisor", daemon=True)
        self._state = state
        self.is_closing = False

    def close(self) -> None:
        """A server that ends in order takes its worker along; tasks stay, and the next worker takes them up."""
        self.is_closing = True
        holder = self._state.lock_holder("worker")
        if holder:
            os.kill(holder, signal.SIGTERM)
        self.join(WORKER_ENDS_S)

    def run(self) -> None:
        while not self.is_closing:
            holder = self._state.lock_holder("worker")
            if holder:
                wait_for_end(holder)
            else:
                self._spawn().wait()
            if not self.is_closing:
                time.sleep(RESPAWN_S)

    def _spawn(self) -> subprocess.Popen[bytes]:
        argv: list[Any] = [sys.executable, "-m", "swell.worker", "--state", str(self._state.root)]
        if self._state.socket is not None:
            argv += ["--socket", str(self._state.socket)]
        return spawn_detached(argv, self._state.worker_log)
