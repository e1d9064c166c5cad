"""How is a refusal written down, without a flood of them filling the disk?"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

LINES_PER_ORIGIN = 20  # enough to see who and what; the rest is counted
LINES_PER_WINDOW = 100  # of all: nobody hides others behind a flood
WINDOW_S = 60.0
LINE_MAX = 500  # characters: it may quote headers
ASKED_SHOWN_MAX = 200  # characters of a path and its query
CLIMBS = re.compile(r"(^|[/\\=])\.\.([/\\&?]|$)|\0")  # a step up, or a name that would end early in C
ADDRESS = re.compile(r"^/d/[^/]*")  # it is a token (doors/entrance.py)

Scope = dict[str, Any]


class Refusals:
    """So many lines a minute, of each and of all; after that only how many there were.

    Thread-safe: every opened door is served by a thread of its own.
    """

    def __init__(self, log: logging.Logger, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self.tell: Callable[[str, str], None] = lambda *_: None  #: as often as a line is written: origin, and what
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._began = monotonic()
        self._count = 0
        self._written: Counter[str] = Counter()  #: by origin

    def note(self, origin: str, what: str) -> None:
        with self._lock:
            self._note(origin, what, self._monotonic())

    def _note(self, origin: str, what: str, now: float) -> None:
        if now - self._began > WINDOW_S:
            if self._count > self._written.total():
                self._log.warning("and %d more refusals", self._count - self._written.total())
            self._began, self._count = now, 0
            self._written.clear()
        self._count += 1
        if self._written.total() < LINES_PER_WINDOW and self._written[origin] < LINES_PER_ORIGIN:
            self._written[origin] += 1
            self._log.warning("refused %s: %s", origin, what[:LINE_MAX])
            self.tell(origin, what[:LINE_MAX])

    def noting_climbers(self, scope: Scope, origin: str, send: Any) -> Any:
        """In place of `send`: whoever asks for a path that leads upwards, and is refused, is written down."""
        asked = f"{scope['path']}?{scope['query_string'].decode('latin-1')}".rstrip("?")
        if not CLIMBS.search(unquote(asked)):
            return send

        async def noting(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start" and message["status"] >= 400:
                self.note(origin, f"{scope['method']} {shown(asked)}: it climbs; answered {message['status']}")
            await send(message)

        return noting


def shown(asked: str) -> str:
    """Of a path: on one line, bounded, and without the token that an address is."""
    return repr(ADDRESS.sub("/d/…", asked)[:ASKED_SHOWN_MAX])
