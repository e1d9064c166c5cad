"""How does a long poll learn that something happened, without asking again and again?"""

from __future__ import annotations

import asyncio
import contextlib
import threading

from swell.api.turns import at_rest


class Bell:
    """Rung from any thread; coroutines wait for the next ring. Ringing a bell nobody waits for costs nothing."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._mutex = threading.Lock()
        self._is_due = False
        self.is_closed = False  #: the server is going down: whoever waits should answer now

    def ring(self) -> None:
        with self._mutex:
            if self._loop is None or self._is_due:
                return
            self._is_due = True
            loop = self._loop
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(self._strike)

    def close(self) -> None:
        self.is_closed = True
        self.ring()

    async def wait(self, timeout_s: float) -> None:
        """Until the next ring, or so long. May return early; the caller looks again."""
        if self.is_closed or timeout_s <= 0:
            return
        loop = asyncio.get_running_loop()
        with self._mutex:
            is_first, self._loop = self._loop is None, loop
        if is_first:  # a ring from before this moment went unheard: let the caller look again
            return
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.add(future)
        timer = loop.call_later(timeout_s, _resolve, future)
        try:
            async with at_rest():
                await future
        finally:
            timer.cancel()
            self._waiting.discard(future)

    def _strike(self) -> None:
        with self._mutex:
            self._is_due = False
        for future in self._waiting:
            _resolve(future)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
