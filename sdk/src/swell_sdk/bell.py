"""How does training wake a thread that is waiting, also one that waits for the network?

A pipe: ringing is one small write that cannot block, may happen inside a signal handler that interrupted another
ring, and ends a `poll` that watches a socket at the same time. `threading.Event` can do none of the three.
"""

from __future__ import annotations

import os
import select
from typing import Optional


class Bell:
    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._is_rung = False  #: true: a byte is in the pipe, or about to be

    def ring(self) -> None:
        if self._is_rung:
            return
        self._is_rung = True
        try:
            os.write(self._writer, b"!")
        except OSError:
            return  # full, or closed: whoever waits wakes up anyway, or is gone

    def wait(self, seconds: float, beside: Optional[int] = None) -> bool:
        """Until it rings, or the descriptor `beside` has something to read. Was it the bell?"""
        waiting = select.poll()
        waiting.register(self._reader, select.POLLIN)
        if beside is not None:
            waiting.register(beside, select.POLLIN)
        ready = [descriptor for descriptor, _ in waiting.poll(max(0, int(1000 * seconds)))]
        if self._reader not in ready:
            return False
        self._is_rung = False  # before the read: a ring in between is one wake-up too many, never one too few
        try:
            os.read(self._reader, 64)
        except OSError:
            return False
        return True

    def close(self) -> None:
        self._is_rung = True
        for descriptor in (self._reader, self._writer):
            try:
                os.close(descriptor)
            except OSError:
                continue
