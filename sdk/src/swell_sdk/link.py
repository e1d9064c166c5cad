"""What connects this process with the server?

The two threads and how they start, flush, end, and fall silent in a forked child. Without one (outside Swell, or
where threads or pipes are not to be had) a `Run` is the same, and nothing is sent.
"""

from __future__ import annotations

from typing import Optional

from swell_sdk.checkpoints import Checkpoints
from swell_sdk.environment import Environment
from swell_sdk.listener import Listener
from swell_sdk.news import News
from swell_sdk.orders import Orders
from swell_sdk.reporter import Reporter
from swell_sdk.voice import say
from swell_sdk.wire import Wire


class Link:
    def __init__(self, told: Environment, news: News, orders: Orders, checkpoints: Checkpoints) -> None:
        self._listener = Listener(_wire(told), news, orders)
        self._reporter: Optional[Reporter] = None  #: None: another rank than 0, which has no figures to report
        if news.rank == 0:
            self._reporter = Reporter(_wire(told), news, orders, on_taken=checkpoints.settle, on_away=checkpoints.note)
        self._listener.start()
        if self._reporter is not None:
            self._reporter.start()

    def tell(self) -> None:
        """There is news that should not wait."""
        if self._reporter is not None:
            self._reporter.bell.ring()

    def tell_begun(self) -> None:
        """An epoch has begun. Rank 0 says so in a report, the others in what they ask."""
        (self._listener if self._reporter is None else self._reporter).bell.ring()

    def ask_again(self) -> None:
        """What this process tells with its questions has changed."""
        self._listener.bell.ring()

    def flush(self, seconds: float) -> bool:
        return self._reporter is None or self._reporter.flush(seconds)

    @property
    def is_over(self) -> bool:
        """Has the server said that this attempt has nothing more to say?"""
        return self._reporter is not None and self._reporter.is_over

    def close(self) -> None:
        self._listener.end()
        if self._reporter is not None:
            self._reporter.end()

    def forget(self) -> None:
        """In a forked child: the threads are not here, and the pipes are the parent's."""
        self._listener.bell.close()
        if self._reporter is not None:
            self._reporter.bell.close()


def _wire(told: Environment) -> Wire:
    return Wire(
        told.url,
        token=told.token,
        attempt_id=told.attempt_id,
        socket_path=told.socket,
        fingerprint=told.fingerprint,
        ca=told.ca,
    )


def connect(told: Environment, news: News, orders: Orders, checkpoints: Checkpoints) -> Optional[Link]:
    """None: nobody wants to hear from us, or we cannot speak."""
    if not told.can_report:
        return None
    try:
        return Link(told, news, orders, checkpoints)
    except (ValueError, OSError, RuntimeError) as error:
        say("link", f"nothing is reported: {error}")
        return None
