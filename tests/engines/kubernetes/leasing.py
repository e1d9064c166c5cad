"""Servers that race for one Lease on clocks that disagree.

`.venv/bin/python -m tests.engines.kubernetes.leasing SEED…` plays one round of each seed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swell.engines.kubernetes import ApiClient, Resource
from swell.engines.kubernetes.election.lease import Lease
from swell.errors import Unavailable

from .apiserver import ApiServer
from .conftest import access_to
from .seeds import play_all

DURATION_S = 15.0
STEPS = 120


@dataclass
class Clock:
    """Counts from anywhere, a little too fast or too slow."""

    world: World
    start: float
    rate: float

    def __call__(self) -> float:
        return self.start + self.world.time * self.rate


class World:
    """Time that passes by lot, calls that take long, answers that are lost, and others that act meanwhile."""

    def __init__(self, seed: int, port: ApiClient) -> None:
        self.lots = random.Random(seed)
        self.time = 0.0
        self.is_calm = False
        self.seen: Counter[str] = Counter()
        self.broken: list[str] = []  # what must never be, and was
        self.tenures: list[tuple[int, str]] = []  # generation and identity, in the order in which they began
        self.leases: dict[str, Lease] = {}
        self._depth = 0
        self._busy: set[str] = set()
        self._port = port
        for identity in ("a", "b", "c"):
            self.join(identity)

    def join(self, identity: str) -> None:
        clock = Clock(self, self.lots.uniform(0, 1e6), self.lots.uniform(0.98, 1.02))
        slow: Any = SlowPort(self, self._port)
        self.leases[identity] = Lease(
            slow,
            "swell",
            "swell",
            identity,
            duration_s=DURATION_S,
            monotonic=clock,
            on_held=lambda: self._held(identity),
        )

    def _held(self, identity: str) -> None:
        self.tenures.append((self.leases[identity].generation, identity))
        self.seen["held"] += 1

    def step(self) -> None:
        self.pass_time()
        identity = self.lots.choice(sorted(self.leases))
        draw = self.lots.random()
        if draw < 0.03:
            self.leases[identity].close()
            self.seen["closed"] += 1
            self.join(identity)
        elif draw < 0.05:  # killed, and another of another name comes
            del self.leases[identity]
            self.join(f"{identity}'")
            self.seen["killed"] += 1
        else:
            self._tick(identity)
        self.check()

    def _tick(self, identity: str) -> None:
        """A server makes one call at a time."""
        if identity not in self._busy:
            self._busy.add(identity)
            self.leases[identity].tick()
            self._busy.discard(identity)

    def pass_time(self) -> None:
        self.time += self.lots.choice((0.0, 0.1, 1.0, 3.0, 5.0, *([] if self.is_calm else [9.0, 16.0])))
        self.check()

    def happen(self) -> None:
        """While somebody waits for an answer."""
        if self.is_calm or self._depth == 2 or self.lots.random() < 0.6:
            return
        self._depth += 1
        self.pass_time()
        if self.lots.random() < 0.7:
            self._tick(self.lots.choice(sorted(self.leases)))
        self.check()
        self._depth -= 1

    def lose(self) -> bool:
        is_lost = not self.is_calm and self.lots.random() < 0.1
        self.seen["lost"] += is_lost
        return is_lost

    def check(self) -> None:
        if len(self.holders()) > 1:
            self.broken.append(f"at {self.time:g} s {self.holders()} hold it at once")

    def calm_down(self) -> None:
        """No more faults, and time enough for everybody to notice."""
        self.is_calm = True
        for _ in range(int(3 * DURATION_S)):
            self.time += 1.0
            for lease in self.leases.values():
                lease.tick()
            self.check()
        if len(self.holders()) != 1:
            self.broken.append(f"in the end {self.holders()} hold it")
        if self.tenures != sorted(self.tenures, key=lambda tenure: tenure[0]):
            self.broken.append(f"generations do not grow: {self.tenures}")
        if len({generation for generation, _ in self.tenures}) != len(set(self.tenures)):
            self.broken.append(f"two have the same generation: {self.tenures}")

    def holders(self) -> list[str]:
        return [identity for identity, lease in self.leases.items() if lease.is_held]


class SlowPort:
    """A port whose questions and answers take time or get lost."""

    def __init__(self, world: World, port: ApiClient) -> None:
        self._world = world
        self._port = port

    def get(self, resource: Resource, name: str, namespace: str) -> dict[str, Any]:
        return self._call(lambda: self._port.get(resource, name, namespace))

    def create(self, resource: Resource, body: dict[str, Any], namespace: str) -> dict[str, Any]:
        return self._call(lambda: self._port.create(resource, body, namespace))

    def replace(self, resource: Resource, body: dict[str, Any], namespace: str) -> dict[str, Any]:
        return self._call(lambda: self._port.replace(resource, body, namespace))

    def _call(self, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        self._world.happen()
        if self._world.lose():
            raise Unavailable("it never arrived")
        answer = ask()
        self._world.happen()
        if self._world.lose():
            raise Unavailable("the answer was lost; it may have happened")
        return answer


def play(seed: int, folder: Path) -> World:
    """Never two hold it; generations grow; when faults are over one holds it for good."""
    print(f"seed {seed}")
    server = ApiServer(folder / "token")
    port = ApiClient(access_to(server))
    try:
        world = World(seed, port)
        for _ in range(STEPS):
            world.step()
        world.calm_down()
    finally:
        port.close()
        server.close()
    return world


if __name__ == "__main__":
    play_all(play)
