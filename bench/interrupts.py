"""What happens on Ctrl-C? Everything is put away first; then we end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def interrupt_on_all() -> None:
    """SIGTERM and SIGHUP are treated as Ctrl-C is."""
    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler)


@contextmanager
def undisturbed() -> Iterator[None]:
    """An interrupt is heard afterwards: a server half started or half stopped would stay behind."""
    heard: list[int] = []
    before = {number: signal.signal(number, lambda number, _: heard.append(number)) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if heard:
        raise KeyboardInterrupt
