"""Scripts that know only what the original KubeProfiler offers are resized while they run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from server import Gate

from .kubeprofiler import resized

pytestmark = pytest.mark.slow

EPOCHS, STEPS, RATE = 40, 50, 0.001


def uninterrupted() -> list[float]:
    """What the scripts print when nobody stops them: the weight comes nearer to 1 by a thousandth in every step."""
    weight, losses = 0.0, []
    for _ in range(EPOCHS):
        for _ in range(STEPS):
            weight += RATE * (1.0 - weight)
        losses.append((1.0 - weight) ** 2)
    return losses


@pytest.mark.parametrize("script", ["plain", "lightning_style", "keras_style"])
def test_a_script_for_kubeprofiler_ends_with_0_when_asked_to_stop_and_goes_on_at_another_width(
    tmp_path: Path, gate: Gate, script: str
) -> None:
    story = resized(tmp_path, gate, python=sys.executable, script=script, epochs=EPOCHS)
    assert [life.width for life in story.lives] == [2, 1, 2]
    assert story.losses == pytest.approx(uninterrupted(), abs=1e-9)
