"""When will waiting jobs start, as far as anybody can say, and how good were earlier answers?

The planner is run forward (`planner/forecast.py`) when somebody asks, in their thread, never in the loop's. One answer
is good for a while, the longer the more work it was (`REST`); while one thread works it out, others get the last one.
What was said first of a job is kept, and when it starts both are written down as an event (`StartForeseen`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from swell.model.job import JobId
from swell.model.plan import Plan, Snapshot
from swell.planner.forecast import StartRange, forecast
from swell.store import EventRecord

TOLERANCE_S = 5.0  # a start takes a cycle; earlier or later by less is within the range
REST = 20.0  # times what an answer took: a twentieth of one processor at the most
REST_S_MIN = 2.0
SAID_MAX = 10_000  # jobs of which it is remembered what was said
EVENT = "StartForeseen"


@dataclass(frozen=True, slots=True)
class StartForeseen:
    """Moments between which a job is expected to start, and when that was said."""

    said_at: float
    earliest: float
    latest: float | None  #: None: nobody can say

    @classmethod
    def of(cls, now: float, said: StartRange) -> StartForeseen | None:
        if said.earliest_s is None:
            return None
        return cls(now, now + said.earliest_s, None if said.latest_s is None else now + said.latest_s)


class Foresight:
    """What was foreseen last."""

    def __init__(self, policy: Callable[[Snapshot], Plan], *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._policy, self._monotonic = policy, monotonic
        self._working = threading.Lock()
        self._snapshot: Snapshot | None = None
        self._good_until = 0.0
        self._found: Mapping[JobId, StartForeseen] = {}
        self._said: dict[JobId, StartForeseen] = {}

    def of(self, job: JobId, snapshot: Snapshot) -> StartForeseen | None:
        """None: nobody can say anything."""
        if snapshot is not self._snapshot and self._monotonic() >= self._good_until:
            self._look(snapshot)
        found = self._found.get(job)
        if found is not None and len(self._said) < SAID_MAX:
            self._said.setdefault(job, found)
        return found

    def _look(self, snapshot: Snapshot) -> None:
        if not self._working.acquire(blocking=False):
            return
        try:
            began = self._monotonic()
            ranges = forecast(snapshot, self._policy)
            found = {job: StartForeseen.of(snapshot.now, said) for job, said in ranges.items()}
            self._found = {job: said for job, said in found.items() if said is not None}
            self._snapshot = snapshot
            now = self._monotonic()
            self._good_until = now + max(REST_S_MIN, REST * (now - began))
        finally:
            self._working.release()

    def came_true(self, begun: Iterable[JobId], now: float) -> list[EventRecord]:
        """For the record: of those that start now and of which something was said."""
        said = ((job, self._said.pop(job, None)) for job in begun)
        return [EventRecord(EVENT, job, detail=_detail(one, now)) for job, one in said if one is not None]

    def keep_only(self, jobs: Iterable[JobId]) -> None:
        """Of those that have ended nothing need be remembered."""
        said = list(self._said)  # readers add to it meanwhile
        there = set(jobs) if said else ()
        for job in said:
            if job not in there:
                self._said.pop(job, None)


def _detail(said: StartForeseen, now: float) -> dict[str, object]:
    """In seconds since it was said."""
    return {
        "said_s_before": round(now - said.said_at, 1),
        "earliest_s": round(said.earliest - said.said_at, 1),
        "latest_s": None if said.latest is None else round(said.latest - said.said_at, 1),
    }


@dataclass(frozen=True, slots=True)
class StartAccuracy:
    """How good what was said of starts has been."""

    foreseen: int = 0
    within: int = 0  #: of these: started within the range that was said
    earlier: int = 0
    later: int = 0


def accuracy_of_starts(details: Iterable[Mapping[str, object]]) -> StartAccuracy:
    """Of events of the kind `EVENT`."""
    found = [_side(detail) for detail in details]
    return StartAccuracy(len(found), found.count(0), found.count(-1), found.count(1))


def _side(detail: Mapping[str, object]) -> int:
    waited, earliest, latest = (detail.get(name) for name in ("said_s_before", "earliest_s", "latest_s"))
    assert isinstance(waited, (int, float))
    assert isinstance(earliest, (int, float))
    if waited < earliest - TOLERANCE_S:
        return -1
    return 1 if isinstance(latest, (int, float)) and waited > latest + TOLERANCE_S else 0
