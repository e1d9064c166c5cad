"""Whatever is killed, and whenever: training ends with the weights of an undisturbed run (invariants 5 and 6)."""

from __future__ import annotations

import pytest

from .training import play_training

SEEDS = (4, 12)  # `make soak` plays fifty; these once found bugs (see docs/testing.md)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_training_that_is_resized_and_killed_at_random_moments_loses_nothing_it_has_saved(seed: int) -> None:
    print(f"repeat with: .venv/bin/python -m tests.crash.training {seed}")
    assert play_training(seed) == []
