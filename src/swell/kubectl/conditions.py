"""Which pods wait for us, and have they been told why?

Those that came by kubectl, and those of our own that were made and found no place for a while. A cluster autoscaler
looks for the condition, a person for the Event. What a pod says already is read from the pod: nothing is repeated after
a restart of ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from swell.engines.kubernetes.client.api_client import PatchKind
from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.client.resources import PODS
from swell.engines.kubernetes.watch.observed_objects import PodSeen
from swell.errors import NotFound
from swell.kubectl.events import REMIND_S
from swell.kubectl.messages import waiting_word
from swell.kubectl.status_objects import StatusMessage, condition_patch, condition_said, shorten
from swell.kubectl.status_view import StatusView, pod_target
from swell.model.job import JobId, JobState
from swell.model.reason import Code

SETTLED_S = 2.0  # most pods are placed sooner, and nobody needs to know that they waited
OWN_SETTLED_S = 5.0  # of a job that has got its room: its pods are being made and bound
AGAIN_S = 10.0  # a reason counts what is free, which changes all the time


@dataclass(slots=True)
class Waiting:
    """A pod, as long as it waits."""

    next_at: float  #: when it is looked at
    kind: str = ""  #: of what its last Event said; empty: it has none
    told_at: float = 0.0
    count: int = 0


class Conditions:
    def __init__(self, view: StatusView) -> None:
        self._view = view
        self._waiting: dict[str, Waiting] = {}  #: by uid
        self._due: dict[str, None] = {}
        self._starting: set[JobId] = set()  #: as of the last look

    def look(self) -> None:
        now = self._view.monotonic()
        waiting = {}
        for pod, settled_s in self._pods():
            found = waiting[pod.uid] = self._waiting.get(pod.uid) or Waiting(now + settled_s)
            if found.next_at <= now:
                self._due.setdefault(pod.uid)
        self._waiting = waiting
        outlines = self._view.outlines.values()
        self._starting = {job.id for job in outlines if job.state is JobState.STARTING}

    def _pods(self) -> Iterator[tuple[PodSeen, float]]:
        """With how long nothing is said of them."""
        cluster = self._view.cluster
        for pod in cluster.waiting_pods():
            yield pod, SETTLED_S
        for job in self._starting:
            for pod in self._view.own_pods(job):
                if not pod.node and not pod.is_deleting and not pod.has_ended:
                    yield pod, OWN_SETTLED_S

    def tell(self) -> bool:
        """One of them; False: there is none."""
        if not self._due:
            return False
        uid = next(iter(self._due))
        del self._due[uid]
        waiting = self._waiting.get(uid)
        pods = self._view.cluster.pods([uid])
        if waiting is not None and pods and not pods[0].node and not pods[0].is_deleting:
            self._tell(pods[0], waiting)
        return True

    def _tell(self, pod: PodSeen, waiting: Waiting) -> None:
        now = self._view.monotonic()
        waiting.next_at = now + SETTLED_S
        said, document = self._word(pod), self._document(pod)
        if said is None or document is None:
            return
        kind, word = said
        if condition_said(document) == shorten(word.message):
            if not waiting.kind:  # an earlier server has said it
                waiting.kind, waiting.told_at, waiting.count = kind, now, 1
        else:
            patch = condition_patch(pod, document["metadata"]["resourceVersion"], word.message, self._view.now())
            if not self._view.is_heard(self, pod.namespace, lambda: self._patch(pod, patch)):
                return  # bound, or otherwise changed: the watch will show it
        waiting.next_at = now + AGAIN_S
        if kind != waiting.kind or now - waiting.told_at >= REMIND_S:
            count = waiting.count + 1 if kind == waiting.kind else 1
            say = self._view.say_again
            self._view.is_heard(self, pod.namespace, lambda: say(pod_target(pod), kind, word, count))
            waiting.kind, waiting.told_at, waiting.count = kind, now, count

    def _document(self, pod: PodSeen) -> Document | None:
        """None: it does not wait for us any more, or for somebody else first."""
        try:
            found = pod.document or self._view.port.get(PODS, pod.name, pod.namespace)
        except NotFound:
            return None
        is_waiting = not found["spec"].get("nodeName") and not found["spec"].get("schedulingGates")
        return found if is_waiting and found["metadata"]["uid"] == pod.uid else None

    def _patch(self, pod: PodSeen, patch: Document) -> None:
        self._view.port.patch(PODS, pod.name, patch, pod.namespace, "status", kind=PatchKind.STRATEGIC)

    def _word(self, pod: PodSeen) -> tuple[str, StatusMessage] | None:
        """Which kind of thing, and in words; None: nobody knows yet."""
        arrivals = self._view.arrivals
        why_not = arrivals.why_not(pod)
        if why_not is not None:
            what = "Refused" if arrivals.is_refused(pod) else "Waiting"
            return what, StatusMessage(what, why_not, is_warning=what == "Refused")
        job = arrivals.job_of(pod) or self._view.own_job(pod)
        reason = None if job is None else self._view.why(job)
        if reason is None or reason.code is Code.NOT_YET_PLANNED:
            return None
        word = waiting_word(reason)
        return str(reason.code), StatusMessage(word.reason, f"job {job}: {word.message}", word.is_warning)
