"""Who carries the news to the server?

A daemon thread on rank 0. It sends what is new at once when the bell rings (an epoch or a checkpoint), otherwise
every few seconds, never more than about five times a second, and keeps trying for as long as the process lives.
"""

from __future__ import annotations

import threading
import time
from typing import Callable, Optional

from swell_sdk.backoff import Backoff
from swell_sdk.bell import Bell
from swell_sdk.news import EPOCHS_PER_REPORT_MAX, Checkpoint, News, Report
from swell_sdk.orders import Orders
from swell_sdk.voice import say
from swell_sdk.wire import Answer, Verdict, Wire

ANSWER_S = 10.0  # the server answers when the report is on its disk; longer than any disk we have seen
LAZY_S = 5.0  # steps and metrics alone are worth a report this often
BETWEEN_S = 0.2  # at most five reports a second
BUSY_S = 1.0
HURRY_S = 0.1  # between tries while somebody waits
GLANCE_S = 0.02  # how often a flush looks


class Reporter(threading.Thread):
    def __init__(
        self,
        wire: Wire,
        news: News,
        orders: Orders,
        *,
        on_taken: Callable[[Checkpoint], None],
        on_away: Callable[[Checkpoint], None],
    ) -> None:
        super().__init__(name="swell-reporter", daemon=True)
        self.bell = Bell()
        self._wire, self._news, self._orders = wire, news, orders
        self._on_taken, self._on_away = on_taken, on_away
        self._backoff = Backoff()
        self._is_over = False
        self._hurry = threading.Event()  #: set: somebody waits in `flush`

    def flush(self, seconds: float) -> bool:
        """Wait until the server knows everything, at most this long. Does it?"""
        deadline = time.monotonic() + seconds
        self._hurry.set()
        try:
            while self._news.take() is not None:
                if self._is_over or not self.is_alive() or time.monotonic() > deadline:
                    return False
                self.bell.ring()
                time.sleep(GLANCE_S)
            return True
        finally:
            self._hurry.clear()

    def end(self) -> None:
        self._is_over = True
        self._hurry.set()
        self.bell.ring()

    def run(self) -> None:
        pause_s = 0.0
        while not self._is_over:
            self.bell.wait(pause_s)
            try:
                pause_s = self._turn()
            except Exception as error:  # noqa: BLE001  a bug of ours must not end the reports
                say("reporter", f"reporting failed and is retried: {type(error).__name__}: {error}")
                pause_s = self._rest(self._backoff.draw_s())
        self._wire.close()

    def _turn(self) -> float:
        """Send what is new. How long to wait for the next turn?"""
        report = self._news.take()
        if report is None or self._is_over:
            return LAZY_S
        began = time.monotonic()
        heard = self._orders.heard
        answer = self._wire.send_report(report.to_document(), within_s=ANSWER_S)
        if answer.verdict is Verdict.TAKEN:
            self._orders.hear(answer.asked, asked_at=heard)
        pause_s = self._hear(report, answer)
        if not self._is_over:
            self._hurry.wait(max(0.0, began + BETWEEN_S - time.monotonic()))
        return pause_s

    def _hear(self, report: Report, answer: Answer) -> float:
        if answer.verdict is Verdict.TAKEN:
            self._backoff.reset()
            try:  # before it is settled: who flushes then waits for this too, and the process does not end in its midst
                if report.checkpoint is not None:
                    self._on_taken(report.checkpoint)
            finally:
                self._news.settle(report)
            return 0.0 if len(report.epochs) == EPOCHS_PER_REPORT_MAX else LAZY_S  # there may be more of them
        if answer.verdict is Verdict.REFUSED:
            say("refused", f"the server refused a report, which is dropped; {answer.reason}")
            self._news.refuse(report)
            return 0.0
        if answer.verdict is Verdict.OVER:
            say("over", f"this attempt no longer reports; {answer.reason}")
            self._is_over = True
            return 0.0
        return self._wait_for_server(report.checkpoint, answer)

    def _wait_for_server(self, checkpoint: Optional[Checkpoint], answer: Answer) -> float:
        if checkpoint is not None:
            self._on_away(checkpoint)
        if answer.verdict is Verdict.BUSY:
            return self._rest(BUSY_S)
        say("away", f"the server does not answer; training continues and reports are retried; {answer.reason}")
        return self._rest(self._backoff.draw_s())

    def _rest(self, seconds: float) -> float:
        """In full, also when the bell rings: short epochs must not turn patience into haste. Only a flush may."""
        if self._hurry.wait(seconds) and not self._is_over:
            time.sleep(HURRY_S)
        return 0.0

    @property
    def is_over(self) -> bool:
        return self._is_over
