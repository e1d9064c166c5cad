"""Who waits for the last report also waits for what follows from it."""

from __future__ import annotations

import threading

from swell_sdk.news import Checkpoint, News
from swell_sdk.orders import Orders
from swell_sdk.reporter import Reporter
from swell_sdk.wire import Wire

from .server import BOUND_S, Server


def test_the_end_of_a_job_waits_until_older_checkpoints_are_gone(server: Server) -> None:
    """A job that ended cleanly left fourteen checkpoints instead of two: its last report was answered, so nobody waited
    any longer, and the thread that was removing the older ones ended with the process (seed 12 of the training tier).
    """
    begun, may_end = threading.Event(), threading.Event()

    def remove_older(_: Checkpoint) -> None:
        begun.set()
        assert may_end.wait(BOUND_S)

    news = News(0, 0, 1)
    wire = Wire(server.url, token=server.token, attempt_id=server.attempt)
    reporter = Reporter(wire, news, Orders(), on_taken=remove_older, on_away=lambda _: None)
    reporter.start()
    news.add_checkpoint(Checkpoint(1, None, 0.0))
    reporter.bell.ring()
    assert begun.wait(BOUND_S)
    assert reporter.flush(0.1) is False, "it is still removing"
    may_end.set()
    assert reporter.flush(BOUND_S) is True
    reporter.end()
    reporter.join(BOUND_S)
