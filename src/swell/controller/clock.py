"""What time is it? The only answer in the program; tests and simulations give another."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since 1970, for records."""

    def monotonic(self) -> float:
        """Seconds that never go back, for waiting."""


class SystemClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()
