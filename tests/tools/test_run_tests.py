"""What the test runner makes of tests that always fail, and of those that fail now and then."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # each starts pytest several times

TOOL = Path(__file__).parent.parent.parent / "tools" / "run_tests.py"

PASSES = "def test_passes(): pass\n"
FAILS = "def test_fails(): assert False\n"
#: fails until it has been run once
FLAKY = """
from pathlib import Path

def test_flaky_{n}():
    seen = Path(__file__).with_name("seen-{n}")
    was_seen = seen.exists()
    seen.touch()
    assert was_seen
"""
DIES = """
import os
from pathlib import Path

def test_dies_once():
    seen = Path(__file__).with_name("seen")
    if not seen.exists():
        seen.touch()
        os._exit(1)
"""


ENVIRONMENT = """
import os

def test_has_what_a_shell_has():
    assert not {name for name in os.environ if name.startswith(("PYTHONUNB", "PYTHONDONT"))}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with this runner and no tests yet."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tests").mkdir()
    shutil.copy(TOOL, tmp_path / "tools")
    markers = "[pytest]\nmarkers =\n    slow\n    cluster\n    soak\n"
    (tmp_path / "pytest.ini").write_text(f"{markers}addopts = -p xdist.plugin\n")
    return tmp_path


def run(
    project: Path, *, flakes: Path | None = None, env: dict[str, str] | None = None, **files: str
) -> tuple[int, list[str]]:
    """The exit code, and the lines that tell of flakes."""
    for name, text in files.items():
        (project / "tests" / f"test_{name}.py").write_text(text)
    own = {name: text for name, text in os.environ.items() if not name.startswith(("PYTEST_", "FLAKES"))}
    own["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # other plugins take most of the time of so small a project
    done = subprocess.run(
        [sys.executable, str(project / "tools" / "run_tests.py"), "fast"],
        env={**own, **({} if flakes is None else {"FLAKES": str(flakes)}), **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, [line for line in done.stdout.splitlines() if "FLAKE" in line or "tolerated" in line]


def test_a_run_without_failures_passes(project: Path):
    assert run(project, good=PASSES) == (0, [])


def test_a_test_that_fails_twice_fails_the_run(project: Path):
    assert run(project, good=PASSES, bad=FAILS) == (1, [])


def test_a_test_that_passes_the_second_time_is_named_and_does_not_fail_the_run(project: Path):
    found = run(project, good=PASSES, odd=FLAKY.format(n=1))
    assert found == (0, ["FLAKE: tests/test_odd.py::test_flaky_1"])


def test_a_test_that_ends_its_process_is_run_again_too(project: Path):
    assert run(project, good=PASSES, dying=DIES) == (0, ["FLAKE: tests/test_dying.py::test_dies_once"])


def test_what_a_dead_process_had_not_run_is_run_by_the_others(project: Path):
    """A test that ended its process left the others waiting for ever: they were handed files that it had finished."""
    many = {f"good_{n}": PASSES for n in range(40)}
    assert run(project, **many, zz_dying=DIES + PASSES) == (0, ["FLAKE: tests/test_zz_dying.py::test_dies_once"])


def test_a_flake_does_not_hide_a_failure(project: Path):
    assert run(project, odd=FLAKY.format(n=1), bad=FAILS) == (1, ["FLAKE: tests/test_odd.py::test_flaky_1"])


def test_more_flakes_than_are_tolerated_fail_the_run(project: Path):
    code, lines = run(project, odd="".join(FLAKY.format(n=n) for n in range(4)))
    named = [f"FLAKE: tests/test_odd.py::test_flaky_{n}" for n in range(4)]
    assert (code, lines) == (1, [*named, "4 tests failed only now and then; 3 are tolerated"])


def test_flakes_of_several_calls_are_counted_together(project: Path):
    counted = project / "flakes"
    counted.write_text("tests/a.py::test_one\ntests/a.py::test_two\ntests/a.py::test_three\n")
    code, lines = run(project, flakes=counted, odd=FLAKY.format(n=1))
    assert (code, lines) == (
        1,
        ["FLAKE: tests/test_odd.py::test_flaky_1", "4 tests failed only now and then; 3 are tolerated"],
    )


def test_a_file_that_cannot_be_read_as_tests_fails_the_run(project: Path):
    assert run(project, good=PASSES, broken="import nothing_of_that_name\n") == (1, [])


def test_tests_see_no_variable_that_hides_what_a_user_sees(project: Path):
    assert run(project, env={"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}, environment=ENVIRONMENT) == (
        0,
        [],
    )
