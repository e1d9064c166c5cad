"""Seeds of trouble, in memory; `make soak` has ten thousand."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

import pytest

from swell.engines.simulated import SimulatedEngine
from swell.model.job import AttemptId
from swell.sim.faults import FaultyEngine, FaultySimulation, check_seed

SEEDS, BLOCK = 210, 35


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_the_promises_hold_whatever_fails(first: int) -> None:
    """One seed again: `python -c "from swell.sim.faults import check_seed; check_seed(SEED)"`."""
    for seed in range(first, first + BLOCK):
        check_seed(seed)


def test_every_kind_of_trouble_comes_up() -> None:
    seen: Counter[str] = Counter()
    for seed in range(20):
        simulation = FaultySimulation(seed)
        simulation.run()
        assert isinstance(simulation.engine, FaultyEngine)
        seen += simulation.engine.faults
    of_calls = {"died", "not done", "done, not heard", "done after the error", "said, done late", "said, never done"}
    assert set(seen) == {*of_calls, "not seen", "told again"}


def test_the_same_seed_has_the_same_story() -> None:
    assert FaultySimulation(4).run() == FaultySimulation(4).run()


def test_a_device_that_two_jobs_use_is_noticed() -> None:
    simulation = FaultySimulation(1)
    simulation.timeline.advance(simulation.timeline.now() + 600)
    while not simulation.engine.runs:
        simulation._cycle()
    run = next(iter(simulation.engine.runs.values()))
    simulation.engine.runs[AttemptId(99, 1)] = run
    with pytest.raises(AssertionError, match="a device is used by two jobs at once"):
        simulation.judge()


def test_an_attempt_that_has_ended_does_not_begin_again_when_its_start_is_carried_out_late() -> None:
    simulation = FaultySimulation(1)
    engine = simulation.engine
    simulation.timeline.advance(simulation.timeline.now() + 600)
    while not engine.runs:
        simulation._cycle()
    attempt, run = next(iter(engine.runs.items()))
    SimulatedEngine.stop(engine, attempt, 0.0, 1)
    simulation.timeline.advance(simulation.timeline.now() + 600)
    assert attempt not in engine.runs
    engine.forget(attempt)
    SimulatedEngine.start(engine, run.assignment)
    assert attempt not in engine.runs
