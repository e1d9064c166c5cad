"""What does a number without a unit mean, wherever a duration is asked for?"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from moving.shell import Shell

SOURCE = Path(__file__).parents[2] / "src" / "swell"
#: Every place that reads a duration, and what a bare number is there.
READERS = {
    "cli/cancel.py": "parse_seconds",  # --grace, as `kubectl delete --grace-period`
    "cli/logs.py": "parse_duration",  # --since
    "cli/run.py": "parse_time_limit",  # --time, which it repeats
    "cli/up.py": "parse_duration",  # --keep: 30 seconds would be the end of all history; --lasts
    "cli/wait.py": "parse_seconds",  # --timeout, as `timeout 90`
    "config.py": "parse_duration",  # fair_share.half_life
    "manifests/idle.py": "parse_seconds",  # the window of a utilization policy, as dstack has it
    "manifests/metadata.py": "parse_time_limit",  # swell.dev/time
    "manifests/native.py": "parse_seconds, parse_time_limit",  # grace, time
}


def test_every_place_that_reads_a_duration_has_decided_what_a_bare_number_is():
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        names = {
            alias.name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        } & {"parse_duration", "parse_seconds", "parse_time_limit"}
        if names:
            found[str(path.relative_to(SOURCE))] = ", ".join(sorted(names))
    assert found == READERS


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(("words", "limit"), [("10", "10m"), ("90:00", "1h30m"), ("2-0", "2d"), ("90s", "1m30s")])
def test_show_repeats_a_time_limit_as_it_was_understood(shell: Shell, words: str, limit: str) -> None:
    job = shell.type("swell", "run", "-d", "--time", words, "--", "true").stdout.strip()
    shown = shell.type("swell", "show", job)
    assert f"priority 0; at most {limit}\n" in shown.stdout, shown


def test_a_dry_run_repeats_it_in_seconds(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("apiVersion: swell/v1\nkind: Job\nspec: {command: ['true'], time: 10}\n")
    assert "time_limit_s: 600.0\n" in shell.type("swell", "submit", "--dry-run", "-f", str(file)).stdout


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("logs", "--since", "30", "1"), "--since"),
        (("door", "address", "genai", "--lasts", "30"), "--lasts"),
        (("up", "--keep", "30", "--state", "elsewhere"), "--keep"),
    ],
)
def test_a_bare_number_that_nobody_can_understand_is_refused(shell: Shell, words: tuple[str, ...], option: str) -> None:
    shell.type("swell", "run", "-d", "--", "true")
    done = shell.type("swell", *words)
    assert done.code == 2, done
    assert f"{option}: '30' has no unit; write 90s, 30m, 2h or 7d" in done.stderr
