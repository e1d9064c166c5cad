"""Who greets over TLS and does not go on is bounded, and does not keep the others out for long."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from swell.api.serving import HANDSHAKE_S, HANDSHAKES_MAX, Handshakes


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_handshakes_under_way_are_bounded_and_make_room_when_they_end_or_take_too_long():
    clock, made = Clock(), []

    def make() -> Any:
        made.append(SimpleNamespace(transport=None))
        return made[-1]

    greet = Handshakes(make, monotonic=clock)
    for _ in range(HANDSHAKES_MAX):
        greet()
    with pytest.raises(ConnectionAbortedError):
        greet()
    made[0].transport = object()  # this one has gone on, and is counted elsewhere from now on
    greet()
    with pytest.raises(ConnectionAbortedError):
        greet()
    clock.now += HANDSHAKE_S
    greet()
    assert len(made) == HANDSHAKES_MAX + 2
