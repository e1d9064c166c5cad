"""At which moment is Swell killed? At any, or at a chosen one of its requests: before it is done, or right after."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

from engines.kubernetes.wire import Request

from .arena import Arena
from .cast import RESIZED, WIDTHS
from .proxy import Act, is_bind, resizes

RESIZE_WRITES = 5  # suspend, tell, change and resume, and a bind for each of two pods
FIRES_S = 6.0  # a trap that nothing has stepped into by then is given up


def killed(arena: Arena, lots: random.Random) -> str:
    with arena.outage("killed"):
        arena.kill()
        time.sleep(lots.uniform(0.0, 1.5))
        arena.revive()
    return "Swell was killed"


def killed_at_a_bind(arena: Arena, lots: random.Random) -> str:
    count, is_done = lots.randint(1, 4), lots.random() < 0.5
    with arena.outage("killed at a bind"):
        fired = kill_at_bind(arena, count, is_done=is_done).wait(FIRES_S)
        arena.kill()
        time.sleep(lots.uniform(0.0, 1.0))
        arena.revive()
    return f"Swell was killed at bind {count} ({'done' if is_done else 'not done'}, {fired})"


def killed_at_a_resize(arena: Arena, lots: random.Random) -> str:
    """At one of the writes of a resize, which follows from the seed: many rounds go through all of them."""
    count, is_done = 1 + arena.seed // 2 % RESIZE_WRITES, arena.seed % 2 == 0
    is_there = arena.until(RESIZED, lambda job: bool(job["state"] == "running"), FIRES_S)
    job = arena.job(RESIZED)
    if not is_there or job is None:
        return f"{RESIZED} did not run, so it could not be killed at its resize"
    width = lots.choice([one for one in WIDTHS if one != job["width"]])
    with arena.outage("killed at a resize"):
        trap = kill_at(arena, lambda request: resizes(request, RESIZED, job["id"]), count, is_done=is_done)
        # The answer may be lost with the server that it kills; and another resize may be what it is killed at.
        arena.ask(RESIZED, lambda client: client.scale(RESIZED, width, now=True), trap.is_set)
        fired = trap.wait(FIRES_S)
        arena.kill()
        time.sleep(lots.uniform(0.0, 1.0))
        arena.revive()
    return f"Swell was killed at write {count} of a resize to {width} ({'done' if is_done else 'not done'}, {fired})"


def kill_at_bind(arena: Arena, count: int, *, is_done: bool, patience_s: float = FIRES_S) -> threading.Event:
    return kill_at(arena, is_bind, count, is_done=is_done, patience_s=patience_s)


def kill_at(
    arena: Arena, is_meant: Callable[[Request], bool], count: int, *, is_done: bool, patience_s: float = FIRES_S
) -> threading.Event:
    """Sets the trap: the request of that number is the last thing it asks for. The event: it was."""
    fired = threading.Event()

    def act() -> None:
        arena.kill()
        fired.set()

    is_it = counter(is_meant, count)
    arena.proxy.meddle(lambda request: Act(act, is_done) if is_it(request) else None, patience_s)
    return fired


def counter(is_meant: Callable[[Request], bool], count: int) -> Callable[[Request], bool]:
    """Is it the one of that number?"""
    met = [0]

    def is_it(request: Request) -> bool:
        met[0] += is_meant(request)
        return met[0] == count and is_meant(request)

    return is_it
