"""What time is it? The only answer in the program; tests and simulations give another."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since 1970, for records."""

    def busy(self) -> float:
        """Seconds of CPU this thread has used, for what a cycle really cost."""


class SystemClock:
    def now(self) -> float:
        return time.time()

    def busy(self) -> float:
        return time.thread_time()
