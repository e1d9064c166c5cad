"""The demo's script is run by its path, so the folder it lies in comes first where Python looks for modules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from swell.cli import demo


def test_no_command_hides_a_module_of_pythons_own():
    """`cli/token.py` did: every job of the demo failed before its first epoch."""
    named = {path.stem for path in demo.SCRIPT.parent.glob("*.py")}
    assert named & (sys.stdlib_module_names - {"__init__"}) == set()


def test_the_script_of_the_demo_runs_by_its_path(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, str(demo.SCRIPT)], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert "ValueError" in done.stderr.splitlines()[-1], done.stderr  # outside Swell it is not told how many epochs
