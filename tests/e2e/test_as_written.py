"""The commands of examples/README.md as they are written; those of frameworks are run by `tools/soak.py frameworks`."""

from __future__ import annotations

import sys

import pytest
from tools.soak import WRITTEN

from .as_written import play_written, written

HERE = {
    "plain/train.py": sys.executable,
    "kubeprofiler/plain.py": sys.executable,
    "kubeprofiler/keras_style.py": sys.executable,  # a plain loop where there is no TensorFlow
}
#: It reports a URL and prints no epochs: tests/e2e/test_orchestrator.py runs it.
ELSEWHERE = {"orchestrator/train.py"}


@pytest.mark.slow
@pytest.mark.parametrize("script", HERE)
def test_the_command_of_an_example_runs_as_it_is_written(script: str) -> None:
    """All of them were only ever tried with a Python and a path of the test's own."""
    assert play_written(script, HERE[script]) == []


def test_every_command_of_the_examples_is_run_by_a_test() -> None:
    soaked = {script for scripts in WRITTEN.values() for script in scripts}
    assert written().keys() == HERE.keys() | soaked | ELSEWHERE
