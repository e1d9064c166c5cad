"""The four-job demo of genai's workload manager runs by itself and ends with real numbers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from .training import EXAMPLES

pytestmark = pytest.mark.slow

HELD = re.compile(r"GPUs held((?: +\d+)+)")


def test_four_jobs_share_six_gpus_and_nobody_is_refused(tmp_path: Path) -> None:
    """With 4, 2 and nothing left, the third job makes the first give room back at its checkpoint.

    With more epochs than the demo's three: where a process takes seconds to start, the first had ended before.
    """
    script = str(EXAMPLES / "orchestrator/orchestrator.py")
    done = subprocess.run(
        [sys.executable, script, "--epochs", "6", "0.5", "0.5", "0.5"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.findall(r"(genai-job\d) +(\w+)", done.stdout)[-4:] == [
        (f"genai-job{n}", "succeeded") for n in (1, 2, 3, 4)
    ]
    held = [[int(text) for text in found.split()] for found in HELD.findall(done.stdout)]
    assert held[0][0] == 4  # alone, it has all that it can use
    assert [2, 2, 2] in [row[:3] for row in held], done.stdout
    for *widths, free in held:
        assert sum(widths) + free <= 6, done.stdout
    assert re.search(r"\nmakespan \d+\.\d s\n", done.stdout)
