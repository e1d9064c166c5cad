"""Why does the job of an object wait?

Told when its code changes, and again before Kubernetes forgets; pods that wait are told by `conditions.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from swell.engines.kubernetes.resources import PODS
from swell.model.job import JobId, JobState
from swell.model.reason import Code
from swell.store import Outline
from swell.telling.scene import Scene
from swell.telling.words import waiting_word

SETTLED_S = 2.0  # a job that is resized waits for a moment; nobody wants to hear of it
REMIND_S = 1800.0  # the API server keeps an Event for an hour


@dataclass(slots=True)
class Wait:
    code: Code
    since: float
    told_at: float | None = None  #: None: not yet
    count: int = 0


class Waits:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._waits: dict[JobId, Wait] = {}
        self._due: dict[JobId, None] = {}

    def look(self) -> None:
        now = self._scene.monotonic()
        waits = {}
        for job, outline in self._scene.outlines.items():
            code = waiting_code(outline)
            if code is None:
                continue
            known = self._waits.get(job)
            waits[job] = known if known is not None and known.code is code else Wait(code, now)
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

    def _tell(self, job: JobId, wait: Wait) -> None:
        target = self._scene.target(job, attempts=self._scene.outlines[job].attempts)
        if target is None or target.resource == PODS:
            return
        reason = self._scene.why(job)
        if reason is None or reason.code is not wait.code:
            return  # it has changed since, and will be looked at again
        count = wait.count + 1
        say = self._scene.say_again
        self._scene.is_heard(self, target.namespace, lambda: say(target, str(wait.code), waiting_word(reason), count))
        wait.told_at, wait.count = self._scene.monotonic(), count


def waiting_code(job: Outline) -> Code | None:
    """None: it does not wait, or nobody knows yet why."""
    is_waiting = job.state in (JobState.QUEUED, JobState.HELD)
    return job.reason_code if is_waiting and job.reason_code is not Code.NOT_YET_PLANNED else None


def _is_due(wait: Wait, now: float) -> bool:
    if wait.told_at is None:
        return now - wait.since >= SETTLED_S
    return now - wait.told_at >= REMIND_S
