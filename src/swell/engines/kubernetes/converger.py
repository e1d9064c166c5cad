"""How does a thread keep making one thing like another?

It waits until a bell rings or a while has passed, takes a turn, and rests. It never ends before it is closed: a turn
that fails is logged once, however often it fails in the same words, and is taken again after a pause.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from swell.engines.kubernetes.client.failures import Busy
from swell.errors import Denied, SwellError

log = logging.getLogger(__name__)

DENIED_S = 600.0  # a role that lacks a verb is given it by a person
TROUBLE_S = 5.0  # an API server that is busy, or away, is left alone for so long


@dataclass(frozen=True, slots=True)
class TurnTime:
    """What one turn took."""

    elapsed_s: float
    core_s: float  #: seconds of a core


@dataclass(frozen=True, slots=True)
class TurnPace:
    """How often a thread takes its turn."""

    look_s: float  #: without a bell, a turn follows this long after the last one
    rest_s: Callable[[TurnTime], float] = lambda _: 0.0  #: at least this long between two turns
    trouble_s: float = TROUBLE_S  #: rest after a turn that failed
    denied_s: float = TROUBLE_S  #: rest after a turn that our role does not allow


class Converger:
    """One thread that takes turns. A turn returns True when there is more to do at once."""

    def __init__(
        self, name: str, task: str, turn: Callable[[], bool], pace: TurnPace, *, bell: threading.Event | None = None
    ) -> None:
        self._task = task  #: what a turn does, in words, for the log
        self._turn = turn
        self._pace = pace
        self._bell = threading.Event() if bell is None else bell
        self._closing = threading.Event()
        self._trouble = ""  #: how the last turn failed; empty: it did not
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ring(self) -> None:
        """Something has changed: take a turn."""
        self._bell.set()

    def end(self) -> None:
        """Take no further turn; what the present one still fails at is not logged."""
        self._closing.set()
        self._bell.set()

    def close(self) -> None:
        """End, and wait for the present turn. A thread that was never started is closed as well."""
        self.end()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def is_closing(self) -> bool:
        return self._closing.is_set()

    def pause(self, seconds: float) -> bool:
        """Inside a turn: wait, but not when the thread is to end. True: it is to end."""
        return self._closing.wait(seconds)

    def _run(self) -> None:
        rest_s = 0.0
        while not self.pause(rest_s):
            self._bell.wait(self._pace.look_s)
            self._bell.clear()
            if self.is_closing:
                return
            began, core = time.monotonic(), time.thread_time()
            trouble_s = self._take_turn()
            took = TurnTime(time.monotonic() - began, time.thread_time() - core)
            rest_s = max(trouble_s, self._pace.rest_s(took))

    def _take_turn(self) -> float:
        """How long to rest because it failed; 0: it did not."""
        try:
            if self._turn():
                self._bell.set()
        except SwellError as trouble:
            rest_s = self._rest_after(trouble)
            self._note(str(trouble), rest_s)
            return rest_s
        except Exception as error:  # a thread that ends would leave everything as it is for ever
            if self._is_new(repr(error)):
                log.exception("%s failed in a way we did not think of; trying again", self._task)
            return self._pace.trouble_s
        if self._trouble:
            log.info("%s works again", self._task)
            self._trouble = ""
        return 0.0

    def _rest_after(self, trouble: SwellError) -> float:
        if isinstance(trouble, Denied):
            return self._pace.denied_s
        if isinstance(trouble, Busy):
            return max(self._pace.trouble_s, trouble.retry_after_s)
        return self._pace.trouble_s

    def _note(self, trouble: str, rest_s: float) -> None:
        if self._is_new(trouble):
            log.warning("%s failed: %s; trying again in %.0f s", self._task, trouble, rest_s)

    def _is_new(self, trouble: str) -> bool:
        is_new, self._trouble = trouble != self._trouble, trouble
        return is_new and not self.is_closing
