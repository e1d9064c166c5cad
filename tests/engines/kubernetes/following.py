"""A reflector as somebody uses it: what it was told adds up to what it shows."""

from __future__ import annotations

import random
import threading
from typing import Any

from swell.engines.kubernetes import Port, Reflector
from swell.engines.kubernetes.mirror import Change, Key
from swell.engines.kubernetes.port import Selection
from swell.engines.kubernetes.reflector import Pace

QUICK = Pace(first_s=0.005, cap_s=0.05, watch_s=2, silence_s=0.3, resync_s=3600.0)
PATIENCE_S = 20.0


class Follower:
    def __init__(self, port: Port, selection: Selection, pace: Pace = QUICK, seed: int = 0) -> None:
        self.told: dict[Key, Any] = {}
        self.changes: list[Change[Any]] = []
        self._moved = threading.Condition()
        self.reflector = Reflector(port, selection, _read, self._hear, pace=pace, lots=random.Random(seed))
        self.reflector.start()

    def _hear(self, changes: tuple[Change[Any], ...]) -> None:
        with self._moved:
            for change in changes:
                assert self.told.get(change.key) == change.before, f"{change} does not follow from what was told"
                self.told.pop(change.key, None)
                if change.after is not None:
                    self.told[change.key] = change.after
            self.changes += changes
            self._moved.notify_all()

    def await_state(self, expected: dict[Key, Any]) -> dict[Key, Any]:
        """What it shows when it has been told so."""
        with self._moved:
            reached = self._moved.wait_for(lambda: self.told == expected, PATIENCE_S)
        assert reached, f"{self.told} is not {expected}; trouble: {self.reflector.trouble}"
        shown = dict(self.reflector.snapshot())
        assert shown == expected
        return shown


def _read(document: dict[str, Any]) -> tuple[str, str, Any]:
    """What is kept of a pod here: which one it is, and one thing that changes."""
    return (document["metadata"]["uid"], document["metadata"]["resourceVersion"], document.get("spec"))


def state_of(objects: dict[Key, dict[str, Any]]) -> dict[Key, Any]:
    return {key: _read(document) for key, document in objects.items()}
