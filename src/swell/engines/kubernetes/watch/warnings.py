"""What warnings are there in a namespace?

The API server looks at all Events of a namespace for each list, however few it then gives. So all warnings are asked
for at once, for everybody who wants to know at that time: a thousand pods that are slow to start cost one list.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from swell.engines.kubernetes.client.api_client import ApiClient, Selection
from swell.engines.kubernetes.client.resources import EVENTS
from swell.engines.kubernetes.watch.observed_objects import moment
from swell.engines.kubernetes.watch.unreadable import readable
from swell.errors import SwellError

FRESH_S = 2.0
COST = 20  # of the time at most one part in so many is spent on lists, where they are long


@dataclass(frozen=True, slots=True, order=True)
class Warned:
    """One warning; the newest is the greatest."""

    at: float
    reason: str
    message: str

    @classmethod
    def parse(cls, event: dict[str, Any]) -> Warned:
        """One that is repeated carries its last time in one field or another."""
        series = event.get("series") or {}
        times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
        at = max((moment(time) for time in times if time), default=0.0)
        return cls(at, str(event.get("reason") or ""), str(event.get("message") or ""))


@dataclass(frozen=True, slots=True)
class _Answer:
    good_until: float
    warnings: Mapping[str, Sequence[Warned]]  #: by the uid of what they are about
    error: SwellError | None = None


class Warnings:
    """Safe for several threads: one asks, the others wait for its answer."""

    def __init__(self, port: ApiClient, monotonic: Callable[[], float]) -> None:
        self._port = port
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._answers: dict[str, _Answer] = {}  #: by namespace

    def about(self, uid: str, namespace: str) -> Sequence[Warned]:
        """Raises what went wrong with the list, for all who would have shared it."""
        with self._lock:
            now = self._monotonic()
            self._answers = {name: answer for name, answer in self._answers.items() if now < answer.good_until}
            answer = self._answers.get(namespace)
            if answer is None:
                answer = self._answers[namespace] = self._ask(namespace)
        if answer.error is not None:
            raise answer.error
        return answer.warnings.get(uid, ())

    def _ask(self, namespace: str) -> _Answer:
        began = self._monotonic()
        found: dict[str, list[Warned]] = defaultdict(list)
        error = None
        try:
            events = self._port.list(Selection(EVENTS, namespace, fields="type=Warning")).items
            for uid, warned in readable(events, _about):
                found[uid].append(warned)
        except SwellError as problem:
            error = problem
        now = self._monotonic()
        return _Answer(now + max(FRESH_S, COST * (now - began)), found, error)


def _about(event: dict[str, Any]) -> tuple[str, Warned]:
    """Whoever may write Events in a namespace may have written this one."""
    return str(event["involvedObject"].get("uid", "")), Warned.parse(event)
