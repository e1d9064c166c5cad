"""One round of faults, drawn from a seed: `.venv/bin/python -m tests.engines.kubernetes.rounds SEED [SEED...]`."""

from __future__ import annotations

import random
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swell.engines.kubernetes import ApiClient
from swell.engines.kubernetes.client.api_client import Selection
from swell.engines.kubernetes.client.resources import PODS
from swell.engines.kubernetes.watch.mirror import Key

from .apiserver import ApiServer
from .conftest import access_to
from .faults import Drawn
from .following import Follower, state_of
from .seeds import play_all

STEPS = 100  # at least
FAULTS = 15  # at least, while there are steps left
STEPS_MAX = 1000
NAMES = tuple(("ab"[number % 2], f"pod-{number}") for number in range(12))


@dataclass(frozen=True)
class Played:
    seen: Counter[str]
    shown: dict[Key, Any]
    there: dict[Key, Any]

    @property
    def broken(self) -> list[str]:
        return [] if self.shown == self.there else [f"{self.shown} is shown of {self.there}"]


def play(seed: int, folder: Path) -> Played:
    """Objects come, change and go while everything fails; then faults stop, and the two must be the same."""
    print(f"seed {seed}")
    lots = random.Random(seed)
    faults = Drawn(seed, rate=lots.choice((0.1, 0.25, 0.5)))
    server = ApiServer(folder / "token", faults=faults)
    port = ApiClient(access_to(server), answer_s=0.3)
    follower = Follower(port, Selection(PODS), seed=seed)
    try:
        for number in range(STEPS_MAX):
            if number >= STEPS and faults.seen.total() >= FAULTS:
                break
            _step(server, lots)
        faults.is_over = True
        there = state_of(server.storage.state("pods"))
        shown = follower.await_state(there)
    finally:
        assert follower.reflector.stop()
        port.close()
        server.close()
    seen = Counter({fault.name.lower(): count for fault, count in faults.seen.items()})
    return Played(seen, shown, there)


def _step(server: ApiServer, lots: random.Random) -> None:
    """Something happens, and then for a moment nothing does."""
    key = lots.choice(NAMES)
    storage = server.storage
    with storage.moved:
        if key not in storage.state("pods"):
            storage.create("pods", key, {"spec": {"n": lots.random()}})
        elif lots.random() < 0.4:
            storage.delete("pods", key, {})
        else:
            storage.update(
                "pods", key, {"metadata": {"namespace": key[0], "name": key[1]}, "spec": {"n": lots.random()}}
            )
        if lots.random() < 0.03:
            storage.compact()
    threading.Event().wait(lots.choice((0.0, 0.0, 0.001, 0.01)))


if __name__ == "__main__":
    play_all(play)
