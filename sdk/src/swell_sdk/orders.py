"""What has this process been asked to do?

Written by the threads that hear the server and by the signal handler, read by training. Every field is one word of
memory and is replaced whole, so training and the signal handler need no lock; the two threads have one.

The server is heard twice, in answers to reports and in answers to questions. A report's answer may have been written
before and arrive after what a question has brought meanwhile; then it is old and not heard. Otherwise the order would
be forgotten, and the server, which was told that we know it, would not repeat it.
"""

from __future__ import annotations

import threading
from typing import Optional


class Orders:
    __slots__ = ("_lock", "heard", "stop_after_epoch", "terminated", "yield_now")

    def __init__(self) -> None:
        self.stop_after_epoch: Optional[int] = None  #: None: go on
        self.yield_now = False  #: the server's word; it may take it back
        self.terminated = False  #: SIGTERM has come; never taken back
        self._lock = threading.Lock()
        self.heard = 0  #: how often the server has been heard

    def hear(self, stop_after_epoch: Optional[int], *, yield_now: bool, asked_at: Optional[int] = None) -> None:
        """`asked_at`: what `heard` was when this was asked for; None: it cannot be old."""
        with self._lock:
            if asked_at is None or asked_at == self.heard:
                self.stop_after_epoch = stop_after_epoch
                self.yield_now = yield_now
                self.heard += 1

    def want_stop(self, epochs_done: int) -> bool:
        """Ranks agree without talking because each compares its own count with the same number."""
        if self.terminated or self.yield_now:
            return True
        stop_after = self.stop_after_epoch
        return stop_after is not None and stop_after <= epochs_done
