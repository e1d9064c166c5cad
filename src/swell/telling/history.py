"""What has happened to a job that its object has not been told yet?

Each Event once, in order. Only what happens while we run is told: a server that begins with the whole history would
repeat it, and Kubernetes itself forgets Events after an hour.
"""

from __future__ import annotations

from collections import deque

from swell.engines.kubernetes.notices import event_name, make_event
from swell.engines.kubernetes.resources import EVENTS
from swell.errors import SwellError
from swell.model.job import JobId
from swell.store import EventRecord
from swell.telling.scene import Scene
from swell.telling.words import is_told, word_of

Happened = deque[tuple[float, EventRecord]]  # since when it is due, and what

KEPT_MAX = 1000  # of those that wait to be told; in a flood the oldest are dropped, and the newest word counts
PATIENCE_S = 10.0  # within this an object is made after its job has started


class History:
    def __init__(self, scene: Scene, *, kept_max: int = KEPT_MAX) -> None:
        self._scene = scene
        self._kept_max = kept_max
        self._due: dict[JobId, Happened] = {}
        self._absent: dict[JobId, Happened] = {}  #: of jobs without an object, at the last look

    def look(self) -> None:
        now = self._scene.monotonic()
        self._due, self._absent = {**self._absent, **self._due}, {}
        for event in self._scene.news:
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
        if is_told or self._scene.monotonic() - since > PATIENCE_S:
            events.popleft()
        if events:
            (self._due if is_told else self._absent)[job] = events  # behind the others
        return True

    def _is_told(self, job: JobId, event: EventRecord) -> bool:
        """False: there is nothing yet that it could be told."""
        scene = self._scene
        record = scene.record(job)
        if record is None:
            return True
        target = scene.target(job, attempts=record.attempts)
        if target is None:
            return False
        word = word_of(event, scene.why(job) if event.kind == "Ended" else None)
        if word is not None:
            name = event_name(target, scene.store.id, event.id)
            made = make_event(target, name, word, at=event.at, instance=scene.store.id)
            scene.is_heard(self, target.namespace, lambda: scene.port.create(EVENTS, made, target.namespace))
        return True
