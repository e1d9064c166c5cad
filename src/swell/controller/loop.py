"""When is there a cycle?

One thread runs them. The first event plans at once; while events keep coming there is a rest after each cycle, so a
busy server spends most of its time elsewhere; a slow timer finds what no event tells.
"""

from __future__ import annotations

import logging
import threading

from swell.controller.clock import Clock
from swell.controller.controller import Controller
from swell.errors import SwellError

TIMER_S = 15.0  # finds silent workers and old history; nothing urgent waits for it
RETRY_S = 2.0  # after a cycle that could not be recorded (disk full …)
SPACING = 3.0  # at most a quarter of one core goes into planning,
SPACING_MAX = 9.0  # and a tenth of it where a cycle takes long: thousands of pods, and others need the core as well
SHORT_S, LONG_S = 0.025, 0.06  # up to here it does not, from here on it does
REST_S_MAX = 2.0  # a tenth is kept with 50,000 jobs: a cycle that finds nothing new takes 0.23 s there

log = logging.getLogger(__name__)


class Loop:
    """The cycles of one controller, from `start` until `close`."""

    def __init__(self, controller: Controller, clock: Clock) -> None:
        self._controller = controller
        self._clock = clock
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="controller", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._controller.look()
        self._thread.join()
        self._controller.refuse_more()

    def _run(self) -> None:
        wanted = self._controller.wanted
        while not self._closing.is_set():
            wanted.wait(self._patience_s())
            wanted.clear()
            self._closing.wait(self._cycle())

    def _patience_s(self) -> float:
        """Until something is due, at most."""
        due = self._controller.next_due()
        return TIMER_S if due is None else max(0.0, min(TIMER_S, due - self._clock.now()))

    def _cycle(self) -> float:
        """How long to rest after it."""
        began = self._clock.busy()
        try:
            self._controller.cycle()
            return rest_s(self._clock.busy() - began)
        except SwellError as error:
            log.warning("nothing could be recorded (%s), trying again in %s s", error, RETRY_S)
        except Exception:
            log.exception("a cycle failed; nothing of it was applied, trying again in %s s", RETRY_S)
        self._controller.look()
        return RETRY_S


def rest_s(busy_s: float) -> float:
    """After a cycle that took so much of a core."""
    length = min(1.0, max(0.0, (busy_s - SHORT_S) / (LONG_S - SHORT_S)))
    return min(REST_S_MAX, busy_s * (SPACING + (SPACING_MAX - SPACING) * length))
