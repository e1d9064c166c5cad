"""What of a job that is over is still in the cluster, and who removes it?

What we made carries our labels: objects, and pods without one. Their pods, Secrets and Services go with them. Objects
that came by kubectl carry no label of ours, and stay.

They are kept for a while: until then the object says how its job ended, to whoever looks with kubectl. The volume that
was made for a job is not: it goes when the job has ended, however it did, and with it the ended pods that mount it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from functools import partial
from threading import Lock

from swell.engines.kubernetes.client.api_client import ApiClient
from swell.engines.kubernetes.client.resources import CLAIMS, PODS, Resource
from swell.engines.kubernetes.objects.objects import DEPENDANTS_FIRST, ObjectSeen
from swell.engines.kubernetes.watch.cluster import Cluster
from swell.engines.kubernetes.watch.observed_objects import PodSeen, labelled_job
from swell.errors import NotFound, SwellError

log = logging.getLogger(__name__)

Places = frozenset[str]  # namespaces in which objects of a job may be
KEPT_S = 60.0
AGAIN_S = 10.0  # after a removal that failed


class Leftovers:
    """Thread-safe."""

    def __init__(
        self,
        port: ApiClient,
        cluster: Cluster,
        store: str,
        is_over: Callable[[int], bool],
        where: Callable[[int], Places | None],
        has_ended: Callable[[int], bool] = lambda _: True,
        of_jobs: Callable[[], Places] = frozenset,
    ) -> None:
        self._port = port
        self._cluster = cluster
        self._store = store
        self._is_over = is_over  #: is the job cancelled, or not even known?
        self._where = where  #: None: the job is not known any more
        self._has_ended = has_ended  #: in whatever way; one that is to run again has its volume still
        self._of_jobs = of_jobs  #: the namespaces of the jobs that are known
        self._lock = Lock()
        self._due: dict[int, tuple[float, Places]] = {}  #: when it goes, by job
        self._claims: dict[int, tuple[float, str, str]] = {}  #: of a job's own: when to look, namespace and name
        self._has_looked = False

    def add(self, job: int, due: float) -> None:
        """While the job is known: later nobody can tell where its objects are, only where those of others are."""
        places = self._where(job)
        self._add(job, due, self._of_jobs() if places is None else places)

    def _add(self, job: int, due: float, places: Places) -> None:
        with self._lock:
            self._due[job] = due, places

    def add_claim(self, job: int, due: float, namespace: str, name: str) -> None:
        """The attempt that used it is over."""
        with self._lock:
            self._claims[job] = due, namespace, name

    def calls(self, is_active: Callable[[int], bool], now: float) -> list[Callable[[], None]]:
        """One for each job that is due; not of one that was started again meanwhile, which takes its object up."""
        if not self._has_looked:
            self._look(now)
        with self._lock:
            self._due = {job: due for job, due in self._due.items() if not is_active(job)}
            found = [(job, places) for job, (due, places) in self._due.items() if now >= due]
            for job, _ in found:
                del self._due[job]
            claims = {job: rest for job, (due, *rest) in self._claims.items() if now >= due}
            for job in claims:
                del self._claims[job]
        unused = [partial(self._remove_claim, job, now, *one) for job, one in claims.items() if self._has_ended(job)]
        return [*unused, *(partial(self._remove, job, places, now) for job, places in found)]

    def _look(self, now: float) -> None:
        """What a server before us did not live to remove. What runs stays: a store may have been restored."""
        self._has_looked = True
        for job in sorted(self._cluster.jobs_of(self._store)):
            pods = self._cluster.pods_of_job((self._store, str(job)))
            if not all(pod.has_ended for pod in pods):
                continue
            for one in self._cluster.objects_of_job((self._store, str(job))):
                if one.claim:
                    self.add_claim(job, now, one.namespace, one.claim)
            if self._is_over(job):
                self.add(job, now)

    def _remove(self, job: int, places: Places, now: float) -> None:
        for resource, one in self._of(job):
            if one.namespace not in places:
                continue  # a copy of somebody's, with the labels
            if isinstance(one, ObjectSeen) and one.claim:
                self._remove_claim(job, now, one.namespace, one.claim)
            try:
                self._port.delete(resource, one.name, one.namespace, propagation=DEPENDANTS_FIRST, uid=one.uid)
            except NotFound:
                continue
            except SwellError as error:
                log.warning("%s %s/%s is still there: %s", resource, one.namespace, one.name, error)
                self._add(job, now + AGAIN_S, places)

    def _remove_claim(self, job: int, now: float, namespace: str, name: str) -> None:
        """If it is the job's: another may have the name. Pods that mount it keep it, also those that have ended."""
        try:
            there = self._port.get(CLAIMS, name, namespace)["metadata"]
            if labelled_job(there.get("labels") or {}, self._store) == job:
                self._port.delete(CLAIMS, name, namespace, uid=there["uid"])
                self._remove_pods_that_mount(job, now, namespace, name)
        except NotFound:
            return
        except SwellError as error:
            log.warning("%s %s/%s is still there: %s", CLAIMS, namespace, name, error)
            self.add_claim(job, now + AGAIN_S, namespace, name)

    def _remove_pods_that_mount(self, job: int, now: float, namespace: str, claim: str) -> None:
        """Their logs are kept. Looked at again until there is none: one may still be being stopped."""
        mounting = [
            pod
            for pod in self._cluster.pods_of_job((self._store, str(job)))
            if claim in pod.claims and pod.namespace == namespace
        ]
        for pod in mounting:
            if pod.has_ended:
                with contextlib.suppress(NotFound):
                    self._port.delete(PODS, pod.name, namespace, uid=pod.uid)
        if mounting:
            self.add_claim(job, now + AGAIN_S, namespace, claim)

    def _of(self, job: int) -> list[tuple[Resource, ObjectSeen | PodSeen]]:
        key = self._store, str(job)
        objects = [(self._cluster.resources[one.kind], one) for one in self._cluster.objects_of_job(key)]
        return [*objects, *((PODS, pod) for pod in self._cluster.pods_of_job(key) if pod.owner is None)]
