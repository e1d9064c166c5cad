"""What has happened to a job that its object has not been told yet?

Each Event once, in order. Only what happens while we run is told: a server that begins with the whole history would
repeat it, and Kubernetes itself forgets Events after an hour.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from swell.engines.kubernetes.client.resources import EVENTS, NODES, PODS
from swell.engines.kubernetes.watch.unreadable import Unreadable
from swell.errors import SwellError
from swell.kubectl.messages import is_told, waiting_word, word_of
from swell.kubectl.status_objects import ObjectTarget, StatusMessage, event_name, make_event
from swell.kubectl.status_view import StatusView
from swell.model.job import JobId, JobState
from swell.model.reason import Code
from swell.store import EventRecord, Outline

Happened = deque[tuple[float, EventRecord]]  # since when it is due, and what

KEPT_MAX = 1000  # of those that wait to be told; in a flood the oldest are dropped, and the newest word counts
PATIENCE_S = 10.0  # within this an object is made after its job has started


class JobEvents:
    def __init__(self, view: StatusView, *, kept_max: int = KEPT_MAX) -> None:
        self._view = view
        self._kept_max = kept_max
        self._due: dict[JobId, Happened] = {}
        self._absent: dict[JobId, Happened] = {}  #: of jobs without an object, at the last look

    def look(self) -> None:
        now = self._view.monotonic()
        self._due, self._absent = {**self._absent, **self._due}, {}
        for event in self._view.news:
            if is_told(event) and event.job_id is not None:
                self._due.setdefault(event.job_id, deque()).append((now, event))
        surplus = sum(map(len, self._due.values())) - self._kept_max
        while surplus > 0:
            surplus -= len(self._due.pop(next(iter(self._due))))

    def tell(self) -> bool:
        """The oldest of one job; False: there is none, or nobody to hear it."""
        if not self._due:
            return False
        job = next(iter(self._due))
        events = self._due.pop(job)
        since, event = events[0]
        try:
            is_told = self._is_told(job, event)
        except SwellError:
            self._due[job] = events
            raise
        if is_told or self._view.monotonic() - since > PATIENCE_S:
            events.popleft()
        if events:
            (self._due if is_told else self._absent)[job] = events  # behind the others
        return True

    def _is_told(self, job: JobId, event: EventRecord) -> bool:
        """False: there is nothing yet that it could be told."""
        view = self._view
        record = view.record(job)
        if record is None:
            return True
        target = view.target(job, attempts=record.attempts)
        if target is None:
            return False
        word = word_of(event, view.why(job) if event.kind == "Ended" else None)
        if word is not None:
            name = event_name(target, view.store.id, event.id)
            made = make_event(target, name, word, at=event.at, instance=view.store.id)
            view.is_heard(self, target.namespace, lambda: view.port.create(EVENTS, made, target.namespace))
        return True


SETTLED_S = 2.0  # a job that is resized waits for a moment; nobody wants to hear of it
REMIND_S = 1800.0  # the API server keeps an Event for an hour


@dataclass(slots=True)
class WaitEvent:
    code: Code
    since: float
    told_at: float | None = None  #: None: not yet
    count: int = 0


class WaitEvents:
    def __init__(self, view: StatusView) -> None:
        self._view = view
        self._waits: dict[JobId, WaitEvent] = {}
        self._due: dict[JobId, None] = {}

    def look(self) -> None:
        now = self._view.monotonic()
        waits = {}
        for job, outline in self._view.outlines.items():
            code = waiting_code(outline)
            if code is None:
                continue
            known = self._waits.get(job)
            waits[job] = known if known is not None and known.code is code else WaitEvent(code, now)
            if _is_due(waits[job], now):
                self._due.setdefault(job)
        self._waits = waits

    def tell(self) -> bool:
        """One of them; False: there is none."""
        if not self._due:
            return False
        job = next(iter(self._due))
        del self._due[job]
        wait = self._waits.get(job)
        if wait is not None:
            self._tell(job, wait)
        return True

    def _tell(self, job: JobId, wait: WaitEvent) -> None:
        target = self._view.target(job, attempts=self._view.outlines[job].attempts)
        if target is None or target.resource == PODS:
            return
        reason = self._view.why(job)
        if reason is None or reason.code is not wait.code:
            return  # it has changed since, and will be looked at again
        count = wait.count + 1
        say = self._view.say_again
        self._view.is_heard(self, target.namespace, lambda: say(target, str(wait.code), waiting_word(reason), count))
        wait.told_at, wait.count = self._view.monotonic(), count


def waiting_code(job: Outline) -> Code | None:
    """None: it does not wait, or nobody knows yet why."""
    is_waiting = job.state in (JobState.QUEUED, JobState.HELD)
    return job.reason_code if is_waiting and job.reason_code is not Code.NOT_YET_PLANNED else None


def _is_due(wait: WaitEvent, now: float) -> bool:
    if wait.told_at is None:
        return now - wait.since >= SETTLED_S
    return now - wait.told_at >= REMIND_S


KIND = "Unreadable"


class UnreadableEvents:
    def __init__(self, view: StatusView) -> None:
        self._view = view
        self._due: dict[str, Unreadable] = {}  #: by uid
        self._told: dict[str, tuple[str, float, int]] = {}  #: uid → what was said, when, and how often

    def look(self) -> None:
        now = self._view.monotonic()
        found = {one.uid: one for one in self._view.cluster.unreadable() if self._is_ours(one)}
        self._told = {uid: told for uid, told in self._told.items() if uid in found}
        self._due = {uid: one for uid, one in found.items() if self._is_news(one, now)}

    def _is_ours(self, one: Unreadable) -> bool:
        return one.is_for_us and one.kind != NODES.kind and self._view.arrivals.takes(one.namespace)

    def _is_news(self, one: Unreadable, now: float) -> bool:
        said, at, _ = self._told.get(one.uid, ("", 0.0, 0))
        return said != one.problem or now - at >= REMIND_S

    def tell(self) -> bool:
        """One of them; False: there is none."""
        if not self._due:
            return False
        uid, one = next(iter(self._due.items()))
        del self._due[uid]
        count = self._told.get(uid, ("", 0.0, 0))[2] + 1
        self._told[uid] = one.problem, self._view.monotonic(), count
        target = ObjectTarget(self._view.cluster.resources[one.kind], one.namespace, one.name, one.uid)
        word = StatusMessage(
            KIND, f"Swell cannot read it, and leaves it alone until it changes: {one.problem}", is_warning=True
        )
        self._view.is_heard(self, one.namespace, lambda: self._view.say_again(target, KIND, word, count))
        return True
