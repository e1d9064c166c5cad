"""A reflector as somebody uses it: what it was told adds up to what it shows."""

from __future__ import annotations

import random
import threading
from typing import Any

from swell.engines.kubernetes import ApiClient, Reflector
from swell.engines.kubernetes.client.api_client import Selection
from swell.engines.kubernetes.watch.mirror import Key, WatchChange
from swell.engines.kubernetes.watch.reflector import WatchPace

QUICK = WatchPace(first_s=0.005, cap_s=0.05, watch_s=2, silence_s=0.3, resync_s=3600.0)
PATIENCE_S = 20.0


class Follower:
    def __init__(self, port: ApiClient, selection: Selection, pace: WatchPace = QUICK, seed: int = 0) -> None:
        self.told: dict[Key, Any] = {}
        self.changes: list[WatchChange[Any]] = []
        self._moved = threading.Condition()
        self.reflector = Reflector(port, selection, _read, self._hear, pace=pace, lots=random.Random(seed))
        self.reflector.start()

    def _hear(self, changes: tuple[WatchChange[Any], ...]) -> None:
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
