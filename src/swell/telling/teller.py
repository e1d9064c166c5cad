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
from typing import Protocol, TypeVar

from swell.engines.kubernetes.failures import Busy
from swell.errors import Denied, Unavailable
from swell.telling.conditions import Conditions
from swell.telling.history import History
from swell.telling.marks import Marks
from swell.telling.scene import DENIED_S, Scene
from swell.telling.unread import Unread
from swell.telling.waits import Waits

T = TypeVar("T")
log = logging.getLogger(__name__)

LOOK_S = 1.0
TURNS_PER_S = 50
TURNS_PER_S_BUSY = 5  # beside hundreds of binds a second it is not noticed
CORE_SHARE = 0.05  # of looking, and as much of telling: a look at 10,000 jobs takes a tenth of a second
LOOK_SHARE_BUSY = 0.02  # of looking, while pods are being bound
BUSY_S = 5.0


class Channel(Protocol):
    def look(self) -> None:
        """What is due now?"""

    def tell(self) -> bool:
        """Say one thing; False: nothing is due."""


class Teller(threading.Thread):
    def __init__(
        self,
        scene: Scene,
        may_tell: Callable[[], bool] = lambda: True,
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(name="teller", daemon=True)
        self._scene = scene
        self._may_tell = may_tell  #: are we the server that acts?
        self._is_busy = is_busy  #: are pods being bound?
        self._channels: tuple[Channel, ...] = (
            Conditions(scene),
            History(scene),
            Waits(scene),
            Marks(scene),
            Unread(scene),
        )
        self._turns = itertools.count()
        self._silent_until: dict[Channel, float] = {}
        self._has_news = threading.Event()
        self._has_news.set()
        self._is_closing = threading.Event()
        scene.store.listen(self._has_news.set)

    def close(self) -> None:
        """What is not said yet is not said."""
        self._is_closing.set()
        self._scene.port.close()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        look_at = 0.0
        while not self._is_closing.is_set():
            try:
                if time.monotonic() >= look_at:
                    share = LOOK_SHARE_BUSY if self._is_busy() else CORE_SHARE
                    look_at = time.monotonic() + max(LOOK_S, _seconds(self.look)[1] / share)
                has_told, spent_s = _seconds(self._turn)
                pause_s = max(1 / (TURNS_PER_S_BUSY if self._is_busy() else TURNS_PER_S), spent_s / CORE_SHARE)
                self._is_closing.wait(pause_s if has_told else max(pause_s, look_at - time.monotonic()))
            except Unavailable as trouble:
                pause_s = pause_after(trouble)
                log.info("nothing is told for %.0f s: %s", pause_s, trouble)
                self._is_closing.wait(pause_s)
            except Exception:  # whatever is said is said again; a thread that ends would never
                log.exception("telling failed in a way we did not think of; going on")
                self._is_closing.wait(BUSY_S)

    def _turn(self) -> bool:
        return self._may_tell() and self.tell()

    def look(self) -> None:
        if self._has_news.is_set():
            self._has_news.clear()
            if self._scene.look():
                self._has_news.set()
        for channel in self._channels:
            try:
                channel.look()
            except Exception:  # what one of them stumbles over must not keep the others silent
                log.exception("what %s would tell cannot be found out; going on", type(channel).__name__)
        self._scene.news = []

    def tell(self) -> bool:
        """One thing, of each channel in turn; False: nothing is due."""
        first = next(self._turns)
        now = self._scene.monotonic()
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


def _seconds(do: Callable[[], T]) -> tuple[T, float]:
    """What it returned, and how much of a core it took."""
    began = time.thread_time()
    result = do()
    return result, time.thread_time() - began


def pause_after(trouble: Unavailable) -> float:
    return max(BUSY_S, trouble.retry_after_s) if isinstance(trouble, Busy) else BUSY_S
