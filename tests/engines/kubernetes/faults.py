"""What goes wrong between an API server and us?"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum


class Fault(Enum):
    # of any answer
    DROPPED = "the connection is closed before the answer"
    TORN = "the connection is closed in the middle of the answer"
    HALF_OPEN = "nothing comes any more, and nobody closes"
    SLOW = "the answer comes in small pieces"
    SERVER_ERROR = "500"
    TOO_MANY = "429 with Retry-After"
    NO_TOKEN = "401 until the next token is read"
    NO_HTTP = "something that is no HTTP"
    # of a list
    STALE = "a list of an older moment"
    GONE = "410"
    # of a line of a watch
    REPEATED = "a line comes twice"
    SWAPPED = "two lines come in the wrong order"
    GARBAGE = "a line that is no JSON"
    ERROR_EVENT = "410 as an event"
    ODD_ERROR_EVENT = "500 as an event"
    ENDED = "the watch ends in peace"


ANSWER = (Fault.DROPPED, Fault.TORN, Fault.HALF_OPEN, Fault.SLOW, Fault.SERVER_ERROR, Fault.TOO_MANY, Fault.NO_TOKEN)
LIST = (*ANSWER, Fault.NO_HTTP, Fault.STALE, Fault.GONE)
LINE = (
    Fault.TORN,
    Fault.DROPPED,
    Fault.HALF_OPEN,
    Fault.SLOW,
    Fault.REPEATED,
    Fault.SWAPPED,
    Fault.GARBAGE,
    Fault.ERROR_EVENT,
    Fault.ODD_ERROR_EVENT,
    Fault.ENDED,
)


@dataclass
class Scripted:
    """Those that are written down, one for each answer; then none."""

    answers: deque[Fault | None] = field(default_factory=deque)
    lines: deque[Fault | None] = field(default_factory=deque)

    def answer(self, kinds: Sequence[Fault]) -> Fault | None:
        return self.answers.popleft() if self.answers else None

    def line(self) -> Fault | None:
        return self.lines.popleft() if self.lines else None


class Drawn:
    """By lot, until they are over."""

    def __init__(self, seed: int, rate: float) -> None:
        self._lots = random.Random(seed)
        self._rate = rate
        self.is_over = False
        self.seen: Counter[Fault] = Counter()

    def answer(self, kinds: Sequence[Fault]) -> Fault | None:
        return self._draw(kinds)

    def line(self) -> Fault | None:
        return self._draw(LINE)

    def _draw(self, kinds: Sequence[Fault]) -> Fault | None:
        if self.is_over or self._lots.random() >= self._rate:
            return None
        fault = self._lots.choice(kinds)
        self.seen[fault] += 1
        return fault


Faults = Scripted | Drawn
