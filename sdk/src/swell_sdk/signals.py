"""What does SIGTERM mean to a job that can yield?

"End at the next good place." The handler sets one word and does nothing else. It is put in place only in the main
thread and only where the script has not its own, and taken out again in forked children: who ends a data loader's
worker with SIGTERM wants it gone.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Optional

from swell_sdk.orders import Orders

_orders: Optional[Orders] = None  #: None: the handler is not ours


def heed(orders: Orders) -> None:
    global _orders
    if threading.current_thread() is not threading.main_thread():
        return
    if _orders is not None or signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        _orders = orders
        signal.signal(signal.SIGTERM, _on_sigterm)


def restore() -> None:
    """The default again, if it is ours that is in place."""
    global _orders
    _orders = None
    try:
        if signal.getsignal(signal.SIGTERM) is _on_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
    except ValueError:
        return  # not the main thread: it stays in place and has nobody to tell


def _on_sigterm(number: int, frame: Optional[FrameType]) -> None:  # noqa: ARG001
    if _orders is not None:
        _orders.terminated = True
