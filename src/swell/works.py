"""Which engine runs the tasks, and what starts and ends with it?

On machines of our own: the worker of this machine, kept alive. On Kubernetes: the watches, who keeps the logs, and,
under a Lease, who takes in what kubectl applies, tells its users, and calls for nodes.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from swell.adopting import Adopter, Jobs
from swell.api.members import Members
from swell.clusterobjects import ClusterObjects
from swell.config import Cluster, Config
from swell.engines.kubernetes import KubernetesEngine, Port, find_access
from swell.engines.kubernetes.intake import Intake
from swell.engines.kubernetes.jobplaces import JobPlaces
from swell.engines.kubernetes.lease import DURATION_S, OWN_ONLY, Lease
from swell.engines.kubernetes.logs import LogKeeper
from swell.engines.kubernetes.priorities import PriorityClasses
from swell.engines.kubernetes.quotas import read_gpu_quota
from swell.engines.kubernetes.reservationpod import IMAGE
from swell.engines.kubernetes.reviewer import KubernetesReviewer
from swell.engines.kubernetes.wanted import Wanted
from swell.engines.logfolder import LogFolder
from swell.engines.workers import WorkersEngine
from swell.errors import NotFound, Unavailable
from swell.manifests import Manifest, is_in_cluster
from swell.model.job import JobId, JobState
from swell.model.reason import Reason
from swell.planner import Shortage
from swell.standins import StandIns
from swell.state import StateFolder
from swell.store import JobRecord, Store
from swell.supervisor import WorkerSupervisor
from swell.telling import Scene, Teller

log = logging.getLogger(__name__)
CHECKPOINTS = "/checkpoints"  # in pods, where a volume that outlives them is mounted
LEASE_S = 20.0  # longer than a server that was killed keeps its Lease
LOOK_AGAIN_S = 0.05
FIRST_LIST_S = 60.0  # of a cluster with 50,000 pods takes some seconds


class Manager(Jobs, Protocol):
    """What the controller offers to those who stand between a cluster and us."""

    def reason(self, job: JobRecord) -> Reason | None: ...

    def shortages(self) -> tuple[Shortage, ...] | None: ...


class Works(Protocol):
    @property
    def engine(self) -> WorkersEngine | KubernetesEngine: ...

    @property
    def checkpoints(self) -> str:
        """Where jobs that name no folder for them find one for each job."""

    def adopt(self, manager: Manager, priority_max: Callable[[str], int | None]) -> None:
        """Who is told of jobs that came another way, and says why one waits; and the highest priority that such a job
        may ask for, by its owner."""

    def open(self, load: Callable[[], int]) -> None:
        """`load` reads the world and tells the engine; its result is the generation to begin with."""

    def close(self) -> None: ...

    def members(self, config: Config, owner: str) -> Members | None:
        """Who may ask beside the server's owner; None: nobody whom the engine knows of."""

    def try_out(self, manifests: Sequence[Manifest]) -> None:
        """Raises what whoever runs them would refuse."""

    def delete_object(self, reference: Mapping[str, Any]) -> None:
        """What came another way, and is a job that is deleted."""

    def priority_classes(self) -> Mapping[str, int]:
        """What priorities are called where tasks run."""

    def gpu_quota(self, namespace: str) -> tuple[str, str] | None:
        """How many GPUs a namespace may use, and does; None: nothing limits it."""

    def intake(self) -> str | None:
        """Who takes in what kubectl applies, in words; None: there is no cluster."""

    @property
    def is_ready(self) -> bool: ...


class LocalWorks:
    """One worker, on this machine."""

    def __init__(self, state: StateFolder, wake: Callable[[], None]) -> None:
        self.engine = WorkersEngine(state.tasks, wake=wake)
        self._supervisor = WorkerSupervisor(state)
        self.checkpoints = str(state.checkpoints)

    def adopt(self, manager: Manager, priority_max: Callable[[str], int | None]) -> None:
        """On a machine of ours nobody leaves jobs lying about."""

    def open(self, load: Callable[[], int]) -> None:
        self.engine.open(load())
        self._supervisor.start()

    def close(self) -> None:
        self._supervisor.close()

    def members(self, config: Config, owner: str) -> None:
        """A machine's users come through its socket."""

    def try_out(self, manifests: Sequence[Manifest]) -> None:
        """A machine takes whatever was read."""

    def delete_object(self, reference: Mapping[str, Any]) -> None:
        """A machine has none."""

    def priority_classes(self) -> Mapping[str, int]:
        """A machine has numbers only."""
        return {}

    def gpu_quota(self, namespace: str) -> None:
        """A machine has no namespaces."""

    def intake(self) -> None:
        """Nobody applies anything to a machine."""

    @property
    def is_ready(self) -> bool:
        return True


class ClusterWorks:
    """A Kubernetes cluster, as its API server shows it."""

    checkpoints = CHECKPOINTS

    def __init__(self, state: StateFolder, cluster: Cluster, store: Store, wake: Callable[[], None]) -> None:
        access = find_access(None if cluster.kubeconfig is None else Path(cluster.kubeconfig), cluster.context)
        self._store = store
        self._port = Port(access, guard=lambda: self._lease.guard())
        self._logs = LogKeeper(self._port, state.tasks)
        namespace = cluster.namespace or access.namespace
        places = JobPlaces.of(cluster.jobs_namespace, access.home, namespace)
        self.engine = KubernetesEngine(
            self._port,
            self._manifest,
            self._logs,
            LogFolder(state.tasks),
            store=store.id,
            namespace=namespace,
            places=places,
            wake=wake,
            reservation_image=cluster.reservation_image or IMAGE,
            is_over=self._is_over,
            has_ended=self._has_ended,
        )
        self._lease_port = Port(access, answer_s=DURATION_S / 3)
        identity = f"{socket.gethostname()}-{store.id[:8]}"
        self._lease = Lease(self._lease_port, namespace, "swell", identity)
        self._intake = Intake(self._lease_port, self._lease)
        # Calls of their own ports never take a connection from those that matter.
        self._teller_port = Port(access, guard=self._lease.guard)
        self.objects = ClusterObjects(store, self._port, self.engine.cluster, places)
        self._namespace, self._jobs_namespace = namespace, places.default
        self._calls_for_nodes = cluster.stand_ins
        self._stand_ins_port = Port(access, guard=self._lease.guard)
        self._priorities = PriorityClasses(self._port)

    def adopt(self, manager: Manager, priority_max: Callable[[str], int | None]) -> None:
        cluster = self.engine.cluster
        self._adopter = Adopter(
            self._port,
            cluster,
            manager,
            self._has_begun,
            self._priorities.table,
            self._intake,
            self._store.id,
            priority_max,
        )
        self.engine.on_change = self._adopter.ring
        scene = Scene(
            self._teller_port, cluster, self._store, self._adopter, manager.reason, namespace=self._jobs_namespace
        )
        self._teller = Teller(scene, lambda: self._lease.is_held, lambda: self.engine.is_busy)
        self._stand_ins = StandIns(
            self._stand_ins_port,
            cluster,
            manager.shortages if self._calls_for_nodes else tuple,  # those of a server before us are removed
            store=self._store.id,
            namespace=self._namespace,
            has_pods=lambda job: self._adopter.reference(job) is not None,
            may_act=lambda: self._lease.is_held,
        )
        self._store.listen(self._stand_ins.ring)

    def _manifest(self, wanted: Wanted) -> dict[str, Any]:
        return self._adopter.reference(wanted.attempt.job) or self.objects.manifest(wanted)

    def _is_over(self, job: JobId) -> bool:
        """Nobody looks at its object any more."""
        try:
            return self._store.job(job).state is JobState.CANCELLED
        except NotFound:
            return True

    def _has_ended(self, job: JobId) -> bool:
        """One that only waits may find its object again when its turn comes."""
        try:
            return self._store.job(job).state.has_ended
        except NotFound:
            return True

    def _has_begun(self, job: JobId) -> bool:
        if self.engine.has_attempt_of(job):
            return True
        try:
            return self._store.job(job).attempts > 0
        except NotFound:  # erased: it has ended long ago
            return True

    def open(self, load: Callable[[], int]) -> None:
        """What is there is known before anything is wanted of it: what is missing would be made again."""
        trouble = self.engine.cluster.start(FIRST_LIST_S)
        if trouble is not None:
            raise Unavailable(f"the cluster cannot be followed: {trouble}")
        self._intake.look()
        self._lease.notes = {} if self._intake.may_list else OWN_ONLY
        self._lease.start()
        try:
            self._begin(load)
        except BaseException:
            self._lease.close()  # given back: another one need not wait until it runs out
            raise

    def _begin(self, load: Callable[[], int]) -> None:
        self._await_lease()
        self._intake.look()
        self.engine.open(load())
        for record in self._store.active():
            if record.manifest and is_in_cluster(document := self._store.manifest(record.manifest)):
                self._adopter.know(record.id, document)
        self._adopter.start()
        self._teller.start()
        self._stand_ins.start()

    def _await_lease(self) -> None:
        until, is_told = time.monotonic() + LEASE_S, False
        while not self._lease.is_held:
            if time.monotonic() > until:
                self._lease.guard()
            if not is_told and self._lease.holder:
                is_told = True
                log.info("waiting for at most %.0f s: %s", LEASE_S, self._lease.explain())
            time.sleep(LOOK_AGAIN_S)

    def close(self) -> None:
        self._teller.close()
        self._stand_ins.close()
        if self._adopter.is_alive():
            self._adopter.close()
        self.engine.close()
        self._lease.close()
        self._logs.close()
        self._lease_port.close()
        self._port.close()

    def members(self, config: Config, owner: str) -> Members:
        """Everybody whom the cluster knows."""
        return Members(
            KubernetesReviewer(self._port, config.token_audiences),
            self.objects.created,
            owner=owner,
            admin_group=config.admin_group,
            admins=config.admins,
        )

    def try_out(self, manifests: Sequence[Manifest]) -> None:
        self.objects.try_out(manifests)

    def delete_object(self, reference: Mapping[str, Any]) -> None:
        self.objects.delete(dict(reference))

    def priority_classes(self) -> Mapping[str, int]:
        return self._priorities.table()

    def gpu_quota(self, namespace: str) -> tuple[str, str] | None:
        return read_gpu_quota(self._port, namespace)

    def intake(self) -> str:
        return self._intake.in_words()

    @property
    def is_ready(self) -> bool:
        return self.engine.cluster.trouble is None


def make_works(state: StateFolder, cluster: Cluster | None, store: Store, wake: Callable[[], None]) -> Works:
    return LocalWorks(state, wake) if cluster is None else ClusterWorks(state, cluster, store, wake)
