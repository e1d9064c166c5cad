"""What of a job that is over is still in the cluster, and who removes it?

What we made carries our labels: objects, and pods without one. Their pods, Secrets and Services go with them. Objects
that came by kubectl carry no label of ours, and stay.

They are kept for a while: until then the object says how its job ended, to whoever looks with kubectl.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from threading import Lock

from swell.engines.kubernetes.cluster import Cluster
from swell.engines.kubernetes.objects import DEPENDANTS_FIRST, ObjectSeen
from swell.engines.kubernetes.picture import PodSeen
from swell.engines.kubernetes.port import Port
from swell.engines.kubernetes.resources import PODS, Resource
from swell.errors import NotFound, SwellError

log = logging.getLogger(__name__)

KEPT_S = 60.0
AGAIN_S = 10.0  # after a removal that failed


class Leftovers:
    """Thread-safe."""

    def __init__(self, port: Port, cluster: Cluster, store: str, is_over: Callable[[int], bool]) -> None:
        self._port = port
        self._cluster = cluster
        self._store = store
        self._is_over = is_over  #: is the job cancelled, or not even known?
        self._lock = Lock()
        self._due: dict[int, float] = {}  #: when it goes, by job
        self._has_looked = False

    def add(self, job: int, due: float) -> None:
        with self._lock:
            self._due[job] = due

    def calls(self, is_active: Callable[[int], bool], now: float) -> list[Callable[[], None]]:
        """One for each job that is due; not of one that was started again meanwhile, which takes its object up."""
        if not self._has_looked:
            self._look(now)
        with self._lock:
            self._due = {job: due for job, due in self._due.items() if not is_active(job)}
            found = [job for job, due in self._due.items() if now >= due]
            for job in found:
                del self._due[job]
        return [partial(self._remove, job, now) for job in found]

    def _look(self, now: float) -> None:
        """What a server before us did not live to remove. What runs stays: a store may have been restored."""
        self._has_looked = True
        for job in sorted(self._cluster.jobs_of(self._store)):
            pods = self._cluster.pods_of_job((self._store, str(job)))
            if all(pod.has_ended for pod in pods) and self._is_over(job):
                self.add(job, now)

    def _remove(self, job: int, now: float) -> None:
        for resource, one in self._of(job):
            try:
                self._port.delete(resource, one.name, one.namespace, propagation=DEPENDANTS_FIRST, uid=one.uid)
            except NotFound:
                continue
            except SwellError as error:
                log.warning("%s %s/%s is still there: %s", resource, one.namespace, one.name, error)
                self.add(job, now + AGAIN_S)

    def _of(self, job: int) -> list[tuple[Resource, ObjectSeen | PodSeen]]:
        key = self._store, str(job)
        objects = [(self._cluster.resources[one.kind], one) for one in self._cluster.objects_of_job(key)]
        return [*objects, *((PODS, pod) for pod in self._cluster.pods_of_job(key) if pod.owner is None)]
