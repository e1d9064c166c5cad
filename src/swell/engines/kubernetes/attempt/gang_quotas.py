"""Have the quotas of a namespace room for all pods of a gang, beside the gangs that start just now?

A quota counts pods when they are made. Those of two gangs that start at one moment are made by turns, so each could
find room for itself, and neither become whole. So a gang is noted before the quotas are asked, until all its pods are
there, and who asks counts what those that were noted before it will request. Pods of them that are made already count
twice for that moment: a gang may be refused that would just have had room, and is tried again a second later.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from swell.engines.kubernetes.client.api_client import ApiClient, Selection
from swell.engines.kubernetes.client.resources import QUOTAS
from swell.engines.kubernetes.watch.quotas import Pods, refusal_of_gang
from swell.errors import Rejected
from swell.model.job import AttemptId

STARTING_S = 60.0  # a gang whose pods are not all there after that gives its room back


class GangQuotas:
    """Thread-safe."""

    def __init__(self, port: ApiClient, monotonic: Callable[[], float]) -> None:
        self._port = port
        self._monotonic = monotonic
        self._lock = Lock()
        self._starting: dict[AttemptId, tuple[float, str, Pods]] = {}  #: since when, namespace and pods, oldest first

    def check(self, attempt: AttemptId, namespace: str, find_pods: Callable[[], Pods]) -> None:
        """Raises where not all of a gang's pods may be made now; otherwise it counts as starting."""
        if not self._port.list(Selection(QUOTAS, namespace)).items:
            return
        pods = find_pods()
        others = self._note(attempt, namespace, pods)
        quotas = self._port.list(Selection(QUOTAS, namespace)).items  # after it was noted: nobody falls in between
        if said := refusal_of_gang(quotas, pods, others):
            self.end(attempt)
            count = sum(number for _, number in pods)
            raise Rejected(f"its {count} pods start together or not at all, and together they {said}")

    def _note(self, attempt: AttemptId, namespace: str, pods: Pods) -> Pods:
        """Answers the pods of those that were noted before it in its namespace."""
        now = self._monotonic()
        with self._lock:
            self._starting = {one: told for one, told in self._starting.items() if now - told[0] < STARTING_S}
            self._starting.setdefault(attempt, (now, namespace, pods))
            order = list(self._starting)
            before = [self._starting[one] for one in order[: order.index(attempt)]]
            return [pod for _, where, theirs in before if where == namespace for pod in theirs]

    def end(self, attempt: AttemptId) -> None:
        """Its pods are there, or will not be made."""
        with self._lock:
            self._starting.pop(attempt, None)
