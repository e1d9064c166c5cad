"""What does a Kubernetes cluster's engine start and end with?

The watches, who keeps the logs, and, under a Lease, who takes in what kubectl applies, tells its users, and calls for
nodes.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from swell.api.members import Members
from swell.config import ClusterSettings, Config, UserLimits
from swell.engines.kubernetes import ApiClient, KubernetesEngine, find_access
from swell.engines.kubernetes.attempt.wanted import Wanted
from swell.engines.kubernetes.client.credentials import Headers
from swell.engines.kubernetes.client.impersonation import Impersonation
from swell.engines.kubernetes.client.reviews import BindingRights, CreationRights, KubernetesReviewer
from swell.engines.kubernetes.election.intake import Intake
from swell.engines.kubernetes.election.lease import DURATION_S, OWN_ONLY, Lease
from swell.engines.kubernetes.election.service_pod import take_requests
from swell.engines.kubernetes.logs.keeper import LogKeeper
from swell.engines.kubernetes.objects.objects import JobPlaces
from swell.engines.kubernetes.sharing.reservation_pod import IMAGE
from swell.engines.kubernetes.watch.priority_classes import PriorityClasses
from swell.engines.kubernetes.watch.quotas import read_gpu_quota
from swell.engines.logfolder import LogFolder
from swell.errors import NotFound, Rejected, Unavailable
from swell.kubectl.adoption import Adopter, JobManager
from swell.kubectl.placeholder_pods import PlaceholderPods
from swell.kubectl.recorder import StatusRecorder
from swell.kubectl.status_view import StatusView
from swell.machine.earlier_holders import earlier_holders
from swell.machine.state_folder import StateFolder
from swell.manifests import Manifest, is_in_cluster, is_native
from swell.model.cluster import PriorityClass
from swell.model.identity import Identity
from swell.model.job import AttemptId, JobId, JobState
from swell.model.quota import DiskUse
from swell.model.reason import Reason
from swell.planner import Shortage
from swell.planner.why.wording import ON_CLUSTER
from swell.server.cluster_objects import TRIAL, ClusterObjects
from swell.store import JobRecord, Store

log = logging.getLogger(__name__)
CHECKPOINTS = "/checkpoints"  # in pods, where a volume that outlives them is mounted
NOT_ANY_MORE = (
    "{!r} may not create a {} any more, so that Swell does not, either; ask for that permission, or end the job: "
    "swell cancel {}"
)
ELECTION_WAIT_S = 20.0  # longer than a server that was killed keeps its Lease
NAMESPACES_S = 60.0  # all jobs are read for it
LOOK_AGAIN_S = 0.05
FIRST_LIST_S = 60.0  # of a cluster with 50,000 pods takes some seconds


class Manager(JobManager, Protocol):
    """What the controller offers to those who stand between a cluster and us."""

    def reason(self, job: JobRecord) -> Reason | None: ...

    def shortages(self) -> tuple[Shortage, ...] | None: ...


class KubernetesBackend:
    """A Kubernetes cluster, as its API server shows it."""

    checkpoints = CHECKPOINTS
    wording = ON_CLUSTER
    workers = None

    def __init__(self, state: StateFolder, cluster: ClusterSettings, store: Store, wake: Callable[[], None]) -> None:
        access = find_access(None if cluster.kubeconfig is None else Path(cluster.kubeconfig), cluster.context)
        self._store = store
        self._namespaces: tuple[float, frozenset[str]] | None = None  #: of jobs, and since when; None: not looked yet
        self._client = ApiClient(access, guard=lambda: self._lease.guard())
        self._logs = LogKeeper(self._client, state.tasks)
        namespace = cluster.namespace or access.namespace
        places = self._places = JobPlaces.of(cluster.jobs_namespace, access.home, namespace)
        self.engine = KubernetesEngine(
            self._client,
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
            where=self.places_of,
            of_jobs=self.namespaces_of_jobs,
            on_behalf=self._on_behalf,
        )
        self._lease_client = ApiClient(access, answer_s=DURATION_S / 3)
        identity = f"{socket.gethostname()}-{store.id[:8]}"
        self._lease = Lease(self._lease_client, namespace, "swell", identity, ended=earlier_holders(state, identity))
        self._intake = Intake(self._lease_client, self._lease)
        # Calls of their own ports never take a connection from those that matter.
        self._recorder_client = ApiClient(access, guard=self._lease.guard)
        self.objects = ClusterObjects(store, self._client, self.engine.cluster, places)
        self._namespace, self._jobs_namespace = namespace, places.default
        self._pod = cluster.pod
        self._calls_for_nodes = cluster.stand_ins
        self._placeholders_client = ApiClient(access, guard=self._lease.guard)
        self._priorities = PriorityClasses(self._client)
        self._rights = CreationRights(KubernetesReviewer(self._client))
        self._impersonation = Impersonation(self._client)

    def adopt(
        self, manager: Manager, limits: Callable[[str], UserLimits], disk_use: Callable[[str], DiskUse | None]
    ) -> None:
        cluster = self.engine.cluster
        self._adopter = Adopter(
            self._client,
            cluster,
            manager,
            self._has_begun,
            self._record,
            self._priorities.table,
            self._intake,
            self._store.id,
            limits,
            disk_use,
            BindingRights(self._client).may_bind,
        )
        self.engine.on_change = self._adopter.ring
        view = StatusView(
            self._recorder_client, cluster, self._store, self._adopter, manager.reason, namespace=self._jobs_namespace
        )
        self._recorder = StatusRecorder(view, lambda: self._lease.is_held, lambda: self.engine.is_busy)
        self._placeholders = PlaceholderPods(
            self._placeholders_client,
            cluster,
            manager.shortages if self._calls_for_nodes else tuple,  # those of a server before us are removed
            store=self._store.id,
            namespace=self._namespace,
            has_pods=lambda job: self._adopter.reference(job) is not None,
            may_act=lambda: self._lease.is_held,
        )
        self._store.listen(self._placeholders.ring)

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

    def places_of(self, job: JobId) -> frozenset[str] | None:
        """The namespaces in which its objects may be; None: it was erased."""
        record = self._record(job)
        if record is None:
            return None
        return self._places_in(record.manifest)

    def _places_in(self, manifest: str) -> frozenset[str]:
        """The namespaces in which objects made from a stored manifest may be."""
        document = self._store.manifest(manifest) if manifest else {}
        return self._places.all_of({"metadata": {}} if not document or is_native(document) else document)

    def namespaces_of_jobs(self) -> frozenset[str]:
        """Those in which Swell runs jobs: of all that are known, and of those that name none.

        Looked up anew once a minute: whoever may make pods can label as many as they like with numbers of no job.
        """
        if self._namespaces is None or time.monotonic() - self._namespaces[0] > NAMESPACES_S:
            manifests = {record.manifest for page in self._store.pages(ended_since=0.0) for record in page}
            found = self._places_in("").union(*map(self._places_in, manifests))
            self._namespaces = time.monotonic(), found
        return self._namespaces[1]

    def _on_behalf(self, wanted: Wanted) -> Headers:
        """What kubectl made is there, or is not; of whoever has the server's own token nobody's rights are asked."""
        record = self._record(wanted.attempt.job)
        identity = None if record is None else record.submitter
        if record is None or identity is None:
            return ()
        document = self._store.manifest(record.manifest)
        if is_in_cluster(document):
            return ()
        for what in self.objects.created(Manifest(record.spec, document)):
            if not self._rights.may_create(identity, what):
                raise Rejected(NOT_ANY_MORE.format(identity.user, what, record.id))
        return self._impersonation.headers(identity, str(record.id))

    def _has_begun(self, job: JobId) -> bool:
        if self.engine.has_attempt_of(job):
            return True
        try:
            return self._store.job(job).attempts > 0
        except NotFound:  # erased: it has ended long ago
            return True

    def _record(self, job: JobId) -> JobRecord | None:
        """None: it was erased, long after it had ended."""
        try:
            return self._store.job(job)
        except NotFound:
            return None

    def open(self, load: Callable[[], int]) -> None:
        """What is there is known before anything is wanted of it: what is missing would be made again."""
        trouble = self.engine.cluster.start(FIRST_LIST_S)
        if trouble is not None:
            raise Unavailable(f"the cluster cannot be watched: {trouble}")
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
        self._recorder.start()
        self._placeholders.start()
        if self._pod is not None:
            take_requests(self._client, self._pod, self._namespace)

    def _await_lease(self) -> None:
        until, is_told = time.monotonic() + ELECTION_WAIT_S, False
        while not self._lease.is_held:
            if time.monotonic() > until:
                self._lease.guard()
            if not is_told and self._lease.holder:
                is_told = True
                log.info("waiting for at most %.0f s: %s", ELECTION_WAIT_S, self._lease.explain())
            time.sleep(LOOK_AGAIN_S)

    def close(self) -> None:
        self._recorder.close()
        self._placeholders.close()
        self._adopter.close()
        self.engine.close()
        self._lease.close()
        self._logs.close()
        self._lease_client.close()
        self._client.close()

    def members(self, config: Config, owner: str) -> Members:
        """Everybody whom the cluster knows."""
        return Members(
            KubernetesReviewer(self._client, config.token_audiences),
            self.objects.created,
            owner=owner,
            admin_group=config.admin_group,
            admins=config.admins,
        )

    def try_out(
        self, manifests: Sequence[Manifest], *, identity: Identity | None = None, replaces: bool = False
    ) -> None:
        headers = () if identity is None else self._impersonation.headers(identity, TRIAL)
        self.objects.try_out(manifests, headers=headers, replaces=replaces)

    def ended_objects(self, manifests: Sequence[Manifest]) -> list[dict[str, Any]]:
        return self.objects.ended(manifests)

    def with_volumes(self, manifests: Sequence[Manifest]) -> list[Manifest]:
        return self.objects.with_volumes(manifests)

    def delete_object(self, reference: Mapping[str, Any]) -> None:
        self.objects.delete(dict(reference))

    def priority_classes(self) -> Mapping[str, PriorityClass]:
        return self._priorities.table()

    def gpu_quota(self, namespace: str) -> tuple[str, str] | None:
        return read_gpu_quota(self._client, namespace)

    def intake(self) -> str:
        return self._intake.in_words()

    def trouble(self) -> str | None:
        """The Lease is renewed every few seconds, so that a credential that was revoked is noticed by it first."""
        if not self._lease.is_held:
            return self._lease.explain()
        return self._lease.trouble or self.engine.cluster.trouble

    def unreadable(self) -> list[str]:
        return [str(one) for one in self.engine.cluster.unreadable()]

    def pod_of(self, attempt: AttemptId, index: int) -> tuple[str, str] | None:
        pod = self.engine.pod_of(attempt, index)
        return None if pod is None else (pod.namespace, pod.name)

    @property
    def cluster(self) -> KubernetesBackend:
        return self

    @property
    def is_ready(self) -> bool:
        return self.engine.cluster.trouble is None
