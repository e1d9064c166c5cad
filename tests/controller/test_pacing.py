"""A rest is a few times what the cycle cost, has an end, and does not keep the server from ending."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest

from controller.stage import Stage
from swell.controller.loop import Loop, rest_s

HOUR = 3600.0


@pytest.mark.parametrize(
    ("busy_s", "expected_s"),
    [
        (0.0, 0.0),
        (0.01, 0.03),
        (0.025, 0.075),
        (0.06, 0.54),
        (0.1, 0.9),
        (0.2, 1.8),
        (0.23, 2.0),  # 50,000 jobs, nothing new
        (3.0, 2.0),  # a burst of thousands was started
        (HOUR, 2.0),
    ],
)
def test_how_long_a_cycle_is_rested_after(busy_s: float, expected_s: float) -> None:
    assert rest_s(busy_s) == pytest.approx(expected_s)


def test_a_longer_cycle_is_never_followed_by_a_shorter_rest() -> None:
    rests = [rest_s(thousandths / 1000) for thousandths in range(500)]
    assert all(before <= after for before, after in pairwise(rests))


def test_a_server_that_rests_ends_at_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a burst of thousands it rested for half a minute, and `swell down` gave up on it."""
    rests = threading.Event()

    def endless(_: float) -> float:
        rests.set()
        return HOUR

    monkeypatch.setattr("swell.controller.loop.rest_s", endless)
    loop = Loop(stage.controller, stage.clock)
    loop.start()
    stage.controller.look()
    assert rests.wait(20.0)
    ending = threading.Thread(target=loop.close, daemon=True)
    ending.start()
    ending.join(20.0)
    assert not ending.is_alive()
