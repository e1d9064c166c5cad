"""Who says it, and how fast?

One thread, one thing after the other. It takes no more than a tenth of a core and takes no more than fifty turns a
second, of a call or two each, whatever there is to be said, and far fewer while pods are being bound: those go first,
and most of what could be said of them is no longer true a moment later. An API server that is busy is left alone for a
while; where our role does not allow a call it is said once in our log, and tried again much later.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from swell.engines.kubernetes.converger import DENIED_S, Converger, TurnPace, TurnTime
from swell.errors import Denied
from swell.kubectl.annotations import AnnotationWriter
from swell.kubectl.conditions import Conditions
from swell.kubectl.events import JobEvents, UnreadableEvents, WaitEvents
from swell.kubectl.status_view import StatusView

log = logging.getLogger(__name__)

LOOK_S = 1.0
TURNS_PER_S = 50
TURNS_PER_S_BUSY = 5  # beside hundreds of binds a second it is not noticed
CORE_SHARE = 0.05  # of looking, and as much of telling: a look at 10,000 jobs takes a tenth of a second
LOOK_SHARE_BUSY = 0.02  # of looking, while pods are being bound
TASK = "telling users of kubectl what becomes of their jobs"


class Channel(Protocol):
    def look(self) -> None:
        """What is due now?"""

    def tell(self) -> bool:
        """Say one thing; False: nothing is due."""


class StatusRecorder:
    def __init__(
        self,
        view: StatusView,
        may_tell: Callable[[], bool] = lambda: True,
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._view = view
        self._may_tell = may_tell  #: are we the server that acts?
        self._is_busy = is_busy  #: are pods being bound?
        self._channels: tuple[Channel, ...] = (
            Conditions(view),
            JobEvents(view),
            WaitEvents(view),
            AnnotationWriter(view),
            UnreadableEvents(view),
        )
        self._turns = itertools.count()
        self._silent_until: dict[Channel, float] = {}
        self._look_at = 0.0
        self._has_news = threading.Event()
        self._has_news.set()
        view.store.listen(self._has_news.set)
        self._converger = Converger("kubectl-status", TASK, self._turn, TurnPace(look_s=LOOK_S, rest_s=self._rest_s))

    def start(self) -> None:
        self._converger.ring()
        self._converger.start()

    def close(self) -> None:
        """What is not said yet is not said."""
        self._converger.end()
        self._view.port.close()
        self._converger.close()

    def _rest_s(self, took: TurnTime) -> float:
        return 1 / (TURNS_PER_S_BUSY if self._is_busy() else TURNS_PER_S)

    def _turn(self) -> bool:
        """Look when it is time to, and say one thing; is there more to say?"""
        if time.monotonic() >= self._look_at:
            share = LOOK_SHARE_BUSY if self._is_busy() else CORE_SHARE
            self._look_at = time.monotonic() + max(LOOK_S, _core_seconds(self.look) / share)
        began = time.thread_time()
        has_told = self._may_tell() and self.tell()
        self._converger.pause((time.thread_time() - began) / CORE_SHARE)
        return has_told

    def look(self) -> None:
        if self._has_news.is_set():
            self._has_news.clear()
            if self._view.look():
                self._has_news.set()
        for channel in self._channels:
            try:
                channel.look()
            except Exception:  # what one of them stumbles over must not keep the others silent
                log.exception("what %s would tell cannot be found out; going on", type(channel).__name__)
        self._view.news = []

    def tell(self) -> bool:
        """One thing, of each channel in turn; False: nothing is due."""
        first = next(self._turns)
        now = self._view.monotonic()
        for number in range(len(self._channels)):
            channel = self._channels[(first + number) % len(self._channels)]
            if self._silent_until.get(channel, 0.0) > now:
                continue
            try:
                if channel.tell():
                    return True
            except Denied as refusal:
                self._silent_until[channel] = now + DENIED_S
                log.warning("users of kubectl are not told something: %s", refusal)
        return False


def _core_seconds(do: Callable[[], None]) -> float:
    began = time.thread_time()
    do()
    return time.thread_time() - began
