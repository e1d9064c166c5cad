"""What of a job that is over is still in the cluster, and who removes it?

What we made carries our labels: objects, and pods without one. Their pods, Secrets and Services go with them. Objects
that came by kubectl carry no label of ours, and stay.

They are kept for a while: until then the object says how its job ended, to whoever looks with kubectl.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Lock

from swell.engines.kubernetes.cluster import Cluster
from swell.engines.kubernetes.objects import ObjectSeen
from swell.engines.kubernetes.picture import PodSeen
from swell.engines.kubernetes.port import Port
from swell.engines.kubernetes.resources import PODS, Resource
from swell.errors import NotFound, SwellError

log = logging.getLogger(__name__)


KEPT_S = 60.0


class Leftovers:
    """Thread-safe."""

    def __init__(self, port: Port, cluster: Cluster, store: str, kept_s: float = KEPT_S) -> None:
        self._kept_s = kept_s
        self._port = port
        self._cluster = cluster
        self._store = store
        self._lock = Lock()
        self._since: dict[int, float] = {}

    def add(self, job: int, now: float) -> None:
        with self._lock:
            self._since[job] = now

    def calls(self, is_active: Callable[[int], bool], now: float) -> list[Callable[[], None]]:
        """One for each job that is due; not of one that was started again meanwhile, which takes its object up."""
        with self._lock:
            self._since = {job: since for job, since in self._since.items() if not is_active(job)}
            due = [job for job, since in self._since.items() if now >= since + self._kept_s]
            for job in due:
                del self._since[job]
        return [self._call(job) for job in due]

    def _call(self, job: int) -> Callable[[], None]:
        return lambda: self.remove(job)

    def remove(self, job: int) -> None:
        for resource, one in self._of(job):
            try:
                self._port.delete(resource, one.name, one.namespace, propagation="Background", uid=one.uid)
            except NotFound:
                continue
            except SwellError as error:
                log.warning("%s %s/%s is left behind: %s", resource, one.namespace, one.name, error)

    def _of(self, job: int) -> list[tuple[Resource, ObjectSeen | PodSeen]]:
        key = self._store, str(job)
        objects = [(self._cluster.resources[one.kind], one) for one in self._cluster.objects_of_job(key)]
        return [*objects, *((PODS, pod) for pod in self._cluster.pods_of_job(key) if pod.owner is None)]
