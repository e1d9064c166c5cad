"""How is a refusal written down, without a flood of them filling the disk?"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

LINES_PER_WINDOW = 20  # enough to see who and what; the rest is counted
WINDOW_S = 60.0


class Refusals:
    """So many lines a minute; after that only how many there were."""

    def __init__(self, log: logging.Logger, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._monotonic = monotonic
        self._began = monotonic()
        self._count = 0

    def note(self, origin: str, what: str) -> None:
        now = self._monotonic()
        if now - self._began > WINDOW_S:
            if self._count > LINES_PER_WINDOW:
                self._log.warning("and %d more refusals", self._count - LINES_PER_WINDOW)
            self._began, self._count = now, 0
        self._count += 1
        if self._count <= LINES_PER_WINDOW:
            self._log.warning("refused %s: %s", origin, what)
