"""How does a long poll learn that something happened, without asking again and again?"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Collection

from swell.api.turns import at_rest

EVERYBODY = ""  # the name of those who wait under none


class Bell:
    """Rung from any thread; coroutines wait for the next ring. Ringing a bell nobody waits for costs nothing.

    Who waits under a name hears what is rung for that name, and what is rung for everybody.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._mutex = threading.Lock()
        self._due: set[str] = set()  #: names that were rung and have not been told; one of them may be everybody's
        self.is_closed = False  #: the server is going down: whoever waits should answer now

    def ring(self, names: Collection[str] = (EVERYBODY,)) -> None:
        with self._mutex:
            if self._loop is None or self._due.issuperset(names):
                return
            is_on_its_way = bool(self._due)
            self._due.update(names)
            loop = self._loop
        if is_on_its_way:
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(self._strike)

    def close(self) -> None:
        self.is_closed = True
        self.ring()

    async def wait(self, timeout_s: float, name: str = EVERYBODY) -> None:
        """Until the next ring, or so long. May return early; the caller looks again."""
        if self.is_closed or timeout_s <= 0:
            return
        loop = asyncio.get_running_loop()
        with self._mutex:
            is_first, self._loop = self._loop is None, loop
        if is_first:  # a ring from before this moment went unheard: let the caller look again
            return
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(name, set()).add(future)
        timer = loop.call_later(timeout_s, _resolve, future)
        try:
            async with at_rest():
                await future
        finally:
            timer.cancel()
            self._waiting[name].discard(future)
            if not self._waiting[name]:
                del self._waiting[name]

    def _strike(self) -> None:
        with self._mutex:
            due, self._due = self._due, set()
        for name in self._waiting.keys() if EVERYBODY in due else due & self._waiting.keys():
            for future in self._waiting[name]:
                _resolve(future)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
