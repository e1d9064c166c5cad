"""Who hears when the server wants this job to stop?

A daemon thread on every rank that asks and is answered as soon as there is something to hear. Other ranks than 0 also
tell this way how many epochs they have begun: a new number ends the question under way and asks again.
"""

from __future__ import annotations

import threading
import time
from urllib.parse import quote

from swell_sdk.backoff import Backoff
from swell_sdk.bell import Bell
from swell_sdk.news import News
from swell_sdk.orders import Orders
from swell_sdk.voice import say
from swell_sdk.wire import Verdict, Wire

HOLD_S = 25.0
SLACK_S = 10.0  # a server that is busy answers later than it was asked to
BETWEEN_S = 0.5  # epochs of milliseconds must not become a thousand questions a second


class Listener(threading.Thread):
    def __init__(self, wire: Wire, news: News, orders: Orders) -> None:
        super().__init__(name="swell-listener", daemon=True)
        self.bell = Bell()
        self._wire, self._news, self._orders = wire, news, orders
        self._backoff = Backoff()
        self._is_over = False

    def end(self) -> None:
        self._is_over = True
        self.bell.ring()

    def run(self) -> None:
        while not self._is_over:
            try:
                pause_s = self._turn()
            except Exception as error:  # noqa: BLE001  a bug of ours must not make the job deaf
                say("listener", f"listening failed and is retried: {type(error).__name__}: {error}")
                pause_s = self._backoff.draw_s()
            self._rest(pause_s)
        self._wire.close()

    def _rest(self, seconds: float) -> None:
        """In full, also when the bell rings: what it rang for is asked afterwards."""
        deadline = time.monotonic() + seconds
        while not self._is_over and time.monotonic() < deadline:
            self.bell.wait(deadline - time.monotonic() + 0.001)

    def _turn(self) -> float:
        """Ask once. How long to wait before the next question?"""
        known = self._orders.asked
        began = time.monotonic()
        query = f"rank={self._news.rank}&begun={self._news.begun}&known={quote(known.known)}{self._position()}"
        answer = self._wire.ask_control(f"{query}&hold_s={HOLD_S:g}", within_s=HOLD_S + SLACK_S, unless=self.bell)
        rest_s = max(0.0, began + BETWEEN_S - time.monotonic())
        if answer.verdict is Verdict.TAKEN:
            self._backoff.reset()
            self._orders.hear(answer.asked)
            return 0.0 if answer.asked.known != known.known else rest_s
        if answer.verdict is Verdict.INTERRUPTED:
            return rest_s
        if answer.verdict is Verdict.OVER:
            say("over", f"this attempt no longer reports; {answer.reason}")
            self._is_over = True
            return 0.0
        return self._backoff.draw_s()

    def _position(self) -> str:
        """Where this rank is, if it can stop at a step."""
        news = self._news
        if not news.can_stop_at_steps:
            return ""
        epoch, step = news.position
        return f"&epoch={epoch}&step={step}&of={news.world_size}&step_s={news.step_mean_s:.6g}"
