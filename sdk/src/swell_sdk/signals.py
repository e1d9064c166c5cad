"""What does SIGTERM mean to a job that can yield?

"End at the next good place." The handler sets one word and does nothing else. It is put in place only in the main
thread and only where the script has not its own, and taken out again in forked children: who ends a data loader's
worker with SIGTERM wants it gone.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Optional

from swell_sdk.orders import Orders

_orders: Optional[Orders] = None  #: None: the handler is not ours
_theirs: Any = None  #: the script's own handler, which ours calls; None: it has none


def heed(orders: Orders) -> None:
    global _orders
    if threading.current_thread() is not threading.main_thread():
        return
    if _orders is not None or signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        _orders = orders
        signal.signal(signal.SIGTERM, _on_sigterm)


def take_over(orders: Orders) -> None:
    """Also where the script has a handler of its own, which is called then: this process only waits for its end."""
    global _orders, _theirs
    if threading.current_thread() is not threading.main_thread():
        return
    present = signal.getsignal(signal.SIGTERM)
    if present is not _on_sigterm:
        _theirs = present if callable(present) else None
    _orders = orders
    signal.signal(signal.SIGTERM, _on_sigterm)


def restore() -> None:
    """As it was before, if it is ours that is in place."""
    global _orders, _theirs
    before, _theirs = _theirs or signal.SIG_DFL, None
    _orders = None
    try:
        if signal.getsignal(signal.SIGTERM) is _on_sigterm:
            signal.signal(signal.SIGTERM, before)
    except ValueError:
        return  # not the main thread: it stays in place and has nobody to tell


def _on_sigterm(number: int, frame: Optional[FrameType]) -> None:
    if _orders is not None:
        _orders.terminate()
    if _theirs is not None:
        _theirs(number, frame)
