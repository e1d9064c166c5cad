"""How does a job give its room back where its exit code would be taken for a verdict?

On Kubernetes the controller of the job's own object reads the code: 0 is a success, everything else a failure. So with
SWELL_ON_YIELD=wait a job that was asked to yield says that it is ready to be stopped, and waits for that: what it did
is durable and reported. SIGTERM ends the wait, and so does a server that does not know the word or the attempt.
"""

from __future__ import annotations

import time

from swell_sdk import signals
from swell_sdk.link import Link
from swell_sdk.news import News
from swell_sdk.orders import Orders

WAIT_S_MAX = 86400.0  # a server that is away over night finds the job waiting; after a day the GPUs are worth more
GLANCE_S = 0.1  # how often it looks whether it may end


def wait_to_be_stopped(link: Link, news: News, orders: Orders, *, seconds: float = WAIT_S_MAX) -> None:
    """Until somebody ends this process, which then has nothing left to do."""
    signals.take_over(orders)
    news.is_ready = True
    link.tell()
    deadline = time.monotonic() + seconds
    while news.is_ready and not (orders.terminated or link.is_over) and time.monotonic() < deadline:
        time.sleep(GLANCE_S)
