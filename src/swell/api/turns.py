"""How many requests of one user are worked on at once?

The event loop and the interpreter are everybody's. Of one user a few requests are in work; what they send beyond that
waits in a line of their own, and nobody else stands behind it. A request that only waits for something to happen (a
long poll, a stream) gives its turn back meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

from swell.errors import TooMany

AT_ONCE = 8  # enough to fill a commit; the loop's work for each is a few milliseconds
WAITING_MAX = 1024  # requests of one user in line, also those whose client has gone: memory must end somewhere
LOOKS_PER_S = 50.0  # at logs and events, of all long polls and streams of one user together


class RequestTurn:
    """Of one request."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._is_held = False

    @property
    def is_held(self) -> bool:
        """False: it is in line, or at rest."""
        return self._is_held

    async def take(self) -> None:
        await self._line.places.acquire()
        self._is_held = True

    def give_back(self) -> None:
        """Giving back what is not held changes nothing."""
        if self._is_held:
            self._is_held = False
            self._line.places.release()

    async def look_again(self) -> None:
        """Until this one may look for news; however many wait, their user looks so often a second and no more."""
        await self._line.look_again()


CURRENT: ContextVar[RequestTurn | None] = ContextVar("turn", default=None)  #: None: nobody's, as a worker's


class Line:
    """Of one user."""

    def __init__(self) -> None:
        self.places = asyncio.Semaphore(AT_ONCE)
        self.requests = 0  #: in work, at rest and in line
        self.waiting = 0  #: in line
        self._next_look = 0.0

    async def look_again(self) -> None:
        now = asyncio.get_running_loop().time()
        self._next_look = max(now, self._next_look) + 1 / LOOKS_PER_S
        await asyncio.sleep(self._next_look - 1 / LOOKS_PER_S - now)


class Turns:
    """Of one event loop."""

    def __init__(self) -> None:
        self._lines: dict[str, Line] = {}

    @asynccontextmanager
    async def one(self, user: str) -> AsyncIterator[None]:
        """Raises `TooMany` where their line is too long already."""
        line = self._lines.setdefault(user, Line())
        if line.waiting >= WAITING_MAX:
            raise TooMany(
                f"{WAITING_MAX} requests of {user} are already waiting, {AT_ONCE} at a time; wait for some "
                "answers before you send more"
            )
        turn = RequestTurn(line)
        line.requests += 1
        line.waiting += 1
        try:
            try:
                await turn.take()
            finally:
                line.waiting -= 1
            CURRENT.set(turn)
            yield
        finally:
            turn.give_back()
            line.requests -= 1
            if not line.requests:
                self._lines.pop(user, None)


@asynccontextmanager
async def at_rest() -> AsyncIterator[None]:
    """While a request waits for something to happen, another of its user's may have its turn.

    Who is at rest already stays so: the outermost ends it.
    """
    turn = CURRENT.get()
    if turn is None or not turn.is_held:
        yield
        return
    turn.give_back()
    yield
    await turn.take()


async def look_again() -> None:
    """Before a long poll or a stream looks once more; at rest."""
    turn = CURRENT.get()
    if turn is not None:
        await turn.look_again()
