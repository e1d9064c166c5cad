"""What is there to be told, and what is known of its job?"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol

from swell.engines.kubernetes.client.api_client import ApiClient
from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.client.failures import AlreadyExists
from swell.engines.kubernetes.client.resources import EVENTS, PODS
from swell.engines.kubernetes.converger import DENIED_S
from swell.engines.kubernetes.objects.kinds import KINDS
from swell.engines.kubernetes.watch.cluster import Cluster
from swell.engines.kubernetes.watch.observed_objects import RANK, PodSeen, labelled_job, parse_number
from swell.errors import Conflict, Denied, NotFound, Rejected
from swell.kubectl.status_objects import ObjectTarget, StatusMessage, make_event, repeat_patch, repeated_name
from swell.manifests import is_native
from swell.model.job import JobId
from swell.model.reason import Reason
from swell.store import EventRecord, JobRecord, Outline, Store

log = logging.getLogger(__name__)
NEWS_MAX = 1000


class Arrivals(Protocol):
    """What came by kubectl, as the adopter knows it."""

    def job_of(self, pod: PodSeen) -> JobId | None: ...

    def why_not(self, pod: PodSeen) -> str | None: ...

    def is_refused(self, pod: PodSeen) -> bool: ...

    def reference(self, job: JobId) -> Document | None: ...

    def takes(self, namespace: str) -> bool: ...


class StatusView:
    """The cluster and the store, as of the last look."""

    def __init__(
        self,
        port: ApiClient,
        cluster: Cluster,
        store: Store,
        arrivals: Arrivals,
        reason: Callable[[JobRecord], Reason | None],
        *,
        namespace: str,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.port = port
        self.cluster = cluster
        self.store = store
        self.arrivals = arrivals
        self.now = now
        self.monotonic = monotonic
        self.outlines: dict[JobId, Outline] = {}  #: of the active jobs
        self.news: list[EventRecord] = []  #: what has happened between the last two looks
        self._reason = reason
        self._namespace = namespace  #: of objects that name none
        self._namespaces: dict[JobId, str] = {}
        self._denied_until: dict[tuple[str, str], float] = {}  #: channel and namespace where our role lacks a verb
        self._after = store.last_event_id()  # what happened before was told by the server of that time

    def look(self) -> bool:
        """Is there more than was read?"""
        self.outlines = {outline.id: outline for outline in self.store.outlines()}
        self.news = self.store.events(after=self._after, limit=NEWS_MAX)
        if self.news:
            self._after = self.news[-1].id
        for job in self._namespaces.keys() - self.outlines.keys():
            del self._namespaces[job]
        return len(self.news) == NEWS_MAX

    # -- jobs ------------------------------------------------------------------------------------------------------

    def record(self, job: JobId) -> JobRecord | None:
        """None: it was deleted."""
        try:
            return self.store.job(job)
        except NotFound:
            return None

    def why(self, job: JobId) -> Reason | None:
        record = self.record(job)
        return None if record is None else self._reason(record)

    def target(self, job: JobId, *, attempts: int) -> ObjectTarget | None:
        """Its object, or its first pod where it has none; None: there is neither."""
        reference = self.arrivals.reference(job)
        if reference is not None:
            return self._referenced(reference)
        if attempts == 0:
            return None  # nothing of it was ever made
        for found in self.cluster.objects_of_job((self.store.id, str(job))):
            if found.namespace == self._namespace_of(job):
                return self._object(found.kind, found.namespace, found.name, found.uid)
        pods = [pod for pod in self.own_pods(job) if pod.owner is None]
        return None if not pods else pod_target(min(pods, key=_rank))

    def own_pods(self, job: JobId) -> list[PodSeen]:
        """Those with its labels, where it belongs: labels are easily written elsewhere by somebody else."""
        pods = self.cluster.pods_of_job((self.store.id, str(job)))
        return [pod for pod in pods if pod.namespace == self._namespace_of(job)] if pods else []

    def own_job(self, pod: PodSeen) -> JobId | None:
        job = labelled_job(pod.labels, self.store.id)
        return job if job is not None and pod.namespace == self._namespace_of(job) else None

    def _namespace_of(self, job: JobId) -> str:
        """Where its objects are; empty: it was deleted."""
        if job not in self._namespaces:
            record = self.record(job)
            if record is None:
                return ""
            document = self.store.manifest(record.manifest) if record.manifest else {}
            named = None if is_native(document) else (document.get("metadata") or {}).get("namespace")
            self._namespaces[job] = str(named or self._namespace)
        return self._namespaces[job]

    def _referenced(self, reference: Document) -> ObjectTarget | None:
        metadata = reference["metadata"]
        if reference["kind"] == "Pods":
            pods = self.cluster.pods([pod["uid"] for pod in reference["pods"]])
            return pod_target(pods[0]) if pods else None
        found = self.cluster.object(reference["kind"], metadata["namespace"], metadata["name"])
        if found is None or found.uid != metadata["uid"]:
            return None
        return self._object(found.kind, found.namespace, found.name, found.uid)

    def _object(self, kind: str, namespace: str, name: str, uid: str) -> ObjectTarget:
        return ObjectTarget(self.cluster.resources[KINDS[kind].name], namespace, name, uid)

    # -- saying it -------------------------------------------------------------------------------------------------

    def is_heard(self, channel: object, namespace: str, say: Callable[[], object]) -> bool:
        """False: it is not there any more, or not as it was, or our role does not allow it in that namespace, where the
        channel is silent for a while then: whoever uses us where we may do nothing must not silence us elsewhere."""
        key = type(channel).__name__, namespace
        if self._denied_until.get(key, 0.0) > self.monotonic():
            return False
        try:
            return is_heard(say)
        except Denied as refusal:
            self._denied_until[key] = self.monotonic() + DENIED_S
            log.warning("users of kubectl are not told something: %s", refusal)
            return False

    def say_again(self, target: ObjectTarget, kind: str, word: StatusMessage, count: int) -> None:
        """One Event for each kind of thing, however often it is said: this is the so-manieth time."""
        at, name = self.now(), repeated_name(target, kind)
        event = make_event(target, name, word, at=at, instance=self.store.id, count=count)
        try:
            self.port.create(EVENTS, event, target.namespace)
        except AlreadyExists:  # an hour after it was last said the API server forgets it
            patch = repeat_patch(word, at=at, count=max(count, 2))
            self.port.patch(EVENTS, name, patch, target.namespace)


def pod_target(pod: PodSeen) -> ObjectTarget:
    return ObjectTarget(PODS, pod.namespace, pod.name, pod.uid)


def is_heard(say: Callable[[], object]) -> bool:
    """False: it is not there any more, or not as it was; what lies with us, or may pass, is raised."""
    try:
        say()
    except Denied:
        raise
    except (NotFound, Conflict, AlreadyExists):
        return False
    except Rejected as refusal:
        log.info("not told: %s", refusal)
        return False
    return True


def _rank(pod: PodSeen) -> tuple[int, float, str]:
    return parse_number(pod.annotations.get(RANK, "")) or 0, -pod.created_at, pod.uid
