"""What time is it in a simulation, and what happens next?"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

BEGIN = 1_000_000.0  # seconds since 1970: a moment of 0 would look like none at all


class Timeline:
    """A clock that jumps from one event to the next. Of one moment, what was scheduled first happens first."""

    def __init__(self, begin: float = BEGIN) -> None:
        self._now = begin
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()

    def now(self) -> float:
        return self._now

    def busy(self) -> float:
        """No CPU time passes: the same simulation always has the same result."""
        return 0.0

    def at(self, moment: float, act: Callable[[], None]) -> None:
        """An event of the past happens now."""
        heapq.heappush(self._events, (max(moment, self._now), next(self._number), act))

    @property
    def next_moment(self) -> float | None:
        """When something happens next; None: nothing ever will."""
        return self._events[0][0] if self._events else None

    def advance(self, moment: float) -> None:
        """Go on to a moment; everything until then happens, in order."""
        while self._events and self._events[0][0] <= moment:
            self._now, _, act = heapq.heappop(self._events)
            act()
        self._now = max(self._now, moment)
