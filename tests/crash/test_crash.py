"""Kill -9 at any point, then start again: nothing is lost, nothing runs twice (invariants 3 and 5)."""

from __future__ import annotations

import pytest

from .rounds import play

SEEDS = (1, 14, 15)  # `make soak` plays fifty; 14 and 15 once found bugs (see docs/testing.md)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_killing_server_and_worker_at_random_moments_loses_nothing(seed: int) -> None:
    print(f"repeat with: .venv/bin/python -m tests.crash.rounds {seed}")
    assert play(seed) == []
