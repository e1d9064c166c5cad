"""Which `Run` is this process's own?"""

from __future__ import annotations

import atexit
import os
import threading
from typing import Optional

from swell_sdk import signals
from swell_sdk.environment import read_environment
from swell_sdk.run import Run

_run: Optional[Run] = None  #: None: not attached, or a forked child
_lock = threading.Lock()
_is_registered = False


def attach(*, rank: Optional[int] = None) -> Run:
    """The same `Run` every time. Outside Swell it does the same and sends nothing.

    `rank`: where a launcher knows it and the environment does not.
    """
    global _run, _is_registered
    with _lock:
        if _run is None or _run.is_closed:
            _run = Run(read_environment(), rank=rank)
        if not _is_registered:
            _is_registered = True
            atexit.register(_at_exit)
            os.register_at_fork(after_in_child=_in_child)
        return _run


def _at_exit() -> None:
    if _run is not None:
        _run.finish()


def _in_child() -> None:
    global _run, _lock
    _lock = threading.Lock()
    run, _run = _run, None
    signals.restore()
    if run is not None:
        run.fall_silent()
