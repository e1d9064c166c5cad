"""A thread that makes one thing like another: when it takes a turn, how it rests, and what it logs."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from swell.engines.kubernetes.client.failures import Busy
from swell.engines.kubernetes.converger import Converger, TurnPace, TurnTime
from swell.errors import Denied, Rejected, Unavailable

PATIENCE_S = 20.0
NEVER_S = 3600.0
Turn = Callable[[], bool]


class Turns:
    """Takes its turns from a list, and is awaited with a bound."""

    def __init__(self, *turns: Turn) -> None:
        self._turns = list(turns)
        self._condition = threading.Condition()
        self.count = 0
        self.times: list[float] = []

    def __call__(self) -> bool:
        turn = self._turns[self.count] if self.count < len(self._turns) else nothing
        try:
            return turn()
        finally:
            with self._condition:
                self.count += 1
                self.times.append(time.monotonic())
                self._condition.notify_all()

    def reach(self, count: int) -> None:
        with self._condition:
            assert self._condition.wait_for(lambda: self.count >= count, PATIENCE_S), self.count


def nothing() -> bool:
    return False


def more() -> bool:
    return True


def fail(error: Exception) -> Turn:
    def turn() -> bool:
        raise error

    return turn


@pytest.fixture
def run() -> Iterator[Callable[..., Converger]]:
    made: list[Converger] = []

    def start(turns: Turns, pace: TurnPace) -> Converger:
        made.append(Converger("test", "counting", turns, pace))
        made[-1].start()
        return made[-1]

    yield start
    for one in made:
        one.close()


def test_a_bell_brings_a_turn_and_no_bell_brings_none(run: Callable[..., Converger]) -> None:
    turns = Turns()
    one = run(turns, TurnPace(look_s=NEVER_S))
    assert turns.count == 0
    one.ring()
    turns.reach(1)
    one.ring()
    turns.reach(2)


def test_without_a_bell_a_turn_follows_after_a_while(run: Callable[..., Converger]) -> None:
    turns = Turns()
    run(turns, TurnPace(look_s=0.01))
    turns.reach(3)


def test_a_turn_that_leaves_more_to_do_is_followed_by_another(run: Callable[..., Converger]) -> None:
    turns = Turns(more, more, more, nothing)
    one = run(turns, TurnPace(look_s=NEVER_S))
    one.ring()
    turns.reach(4)


def test_between_two_turns_it_rests_as_long_as_its_pace_says(run: Callable[..., Converger]) -> None:
    asked: list[TurnTime] = []

    def rest_s(took: TurnTime) -> float:
        asked.append(took)
        return 0.05

    turns = Turns(more, more)
    run(turns, TurnPace(look_s=NEVER_S, rest_s=rest_s)).ring()
    turns.reach(3)
    assert [later - earlier >= 0.05 for earlier, later in zip(turns.times, turns.times[1:], strict=False)] == [True] * 2
    assert all(took.elapsed_s >= 0 and took.core_s >= 0 for took in asked)


@pytest.mark.parametrize(
    "error",
    [Unavailable("away"), Busy("asked too much", 0.0), Denied("not allowed"), Rejected("never"), KeyError("a bug")],
    ids=lambda error: type(error).__name__,
)
def test_no_failure_ends_the_thread(run: Callable[..., Converger], error: Exception) -> None:
    turns = Turns(fail(error), fail(error))
    run(turns, TurnPace(look_s=0.001, trouble_s=0.001, denied_s=0.001))
    turns.reach(4)


def test_the_same_failure_is_logged_once_until_a_turn_has_worked(
    run: Callable[..., Converger], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "swell.engines.kubernetes.converger")
    away = fail(Unavailable("no route"))
    turns = Turns(away, away, away, nothing, away, fail(Unavailable("another")), nothing)
    run(turns, TurnPace(look_s=0.001, trouble_s=0.001))
    turns.reach(8)
    said = [record.getMessage().split(";")[0] for record in caplog.records]
    assert said == [
        "counting failed: no route",
        "counting works again",
        "counting failed: no route",
        "counting failed: another",
        "counting works again",
    ]


@pytest.mark.parametrize(
    ("error", "rest_s"),
    [(Unavailable("away"), 5.0), (Busy("busy", 30.0), 30.0), (Busy("busy", 1.0), 5.0), (Denied("no"), 600.0)],
    ids=lambda value: str(value),
)
def test_how_long_it_rests_is_told(
    run: Callable[..., Converger], caplog: pytest.LogCaptureFixture, error: Exception, rest_s: float
) -> None:
    turns = Turns(fail(error))
    one = run(turns, TurnPace(look_s=0.001, denied_s=600.0))
    turns.reach(1)
    one.close()
    assert caplog.messages == [f"counting failed: {error}; trying again in {rest_s:.0f} s"]


def test_closing_does_not_wait_for_a_rest(run: Callable[..., Converger]) -> None:
    turns = Turns(fail(Unavailable("away")))
    one = run(turns, TurnPace(look_s=0.001, trouble_s=NEVER_S))
    turns.reach(1)
    began = time.monotonic()
    one.close()
    assert time.monotonic() - began < PATIENCE_S


def test_one_that_was_never_started_can_be_closed() -> None:
    Converger("test", "counting", nothing, TurnPace(look_s=NEVER_S)).close()


def test_whatever_turns_do_every_bell_is_followed_by_a_turn(run: Callable[..., Converger]) -> None:
    seed = random.randrange(2**32)
    chosen = random.Random(seed)
    choices = [nothing, more, fail(Unavailable("away")), fail(Denied("no")), fail(ValueError("a bug"))]
    turns = Turns(*(chosen.choice(choices) for _ in range(200)))
    one = run(turns, TurnPace(look_s=NEVER_S, trouble_s=0.0, denied_s=0.0))
    while turns.count < 200:
        before = turns.count
        one.ring()
        turns.reach(before + 1)
    print(f"seed {seed}")
