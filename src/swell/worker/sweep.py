"""Is nothing of an attempt left, wherever it went?"""

from __future__ import annotations

from collections.abc import Iterable

from swell.worker.handling import Handling

LEFTOVER_GRACE_S = 5.0  # for what a task left behind when it ended by itself
KILL_AGAIN_S = 0.1  # what dies may still fork; look again this soon


class Sweep:
    """The last look at a run whose tasks have all ended."""

    def __init__(self, handling: Handling) -> None:
        self._handling = handling
        self.kill_at: float | None = None  #: monotonic; None: no leftovers seen

    def step(self, ended: Iterable[int], grace_s: float, now: float) -> bool:
        """True: nothing is left."""
        if self.kill_at is None and not self._handling.remove(ended):
            return False
        if not self._handling.members():
            self._handling.clean_up()
            return True
        if self.kill_at is None:
            self._handling.ask_all()
            self.kill_at = now + min(grace_s, LEFTOVER_GRACE_S)
        elif now >= self.kill_at:
            self._handling.kill_all()
            self.kill_at = now + KILL_AGAIN_S
        return False
