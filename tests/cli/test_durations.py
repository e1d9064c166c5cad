"""What does a number without a unit mean, wherever a duration is asked for?"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from moving.shell import Shell
from swell.cli.doors.run_scheduler import main
from swell.cli.options import Number
from swell.cli.root import COMMANDS, LazyCommands

SOURCE = Path(__file__).parents[2] / "src" / "swell"
#: Every place that reads a duration, and what a bare number is there.
READERS = {
    "cli/cancel.py": "parse_grace",  # --grace, as `kubectl delete --grace-period`
    "cli/logs.py": "parse_duration",  # --since
    "cli/run.py": "parse_time_limit",  # --time, which it repeats
    "cli/settings.py": "parse_duration",  # --keep: 30 seconds would be the end of all history; --lasts
    "cli/wait.py": "parse_seconds",  # --timeout, as `timeout 90`
    "config.py": "parse_duration",  # fair_share.half_life
    "experiments/experiment.py": "parse_seconds",  # duration, apart, stuckAfter, longest
    "manifests/aichor.py": "parse_seconds",  # timeout, which always has a unit
    "manifests/gpus.py": "parse_seconds",  # the window of a utilization policy
    "manifests/metadata.py": "parse_time_limit",  # swell.dev/time
    "manifests/sbatch.py": "parse_time_limit",  # --time, as Slurm reads it
    "manifests/native.py": "parse_grace, parse_time_limit",
    "sim/traces/plain.py": "parse_seconds",  # submit_time and duration of a trace
}


def test_every_place_that_reads_a_duration_has_decided_what_a_bare_number_is():
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        names = {
            alias.name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        } & {"parse_duration", "parse_grace", "parse_seconds", "parse_time_limit"}
        if names:
            found[str(path.relative_to(SOURCE))] = ", ".join(sorted(names))
    assert found == READERS


FLOATS = {"api/doors/wire.py", "client/tokens.py"}  # JSON of programs; each has bounds that nan is not within


def test_every_number_with_a_fraction_is_read_by_one_parser():
    """`swell sim --load nan` ended in a traceback, and `--round nan` never."""
    readers = ("cli", "client", "experiments", "foreign", "machine", "manifests", "pools", "sim/traces", "api/doors")
    found = set()
    for path in sorted(path for folder in readers for path in (SOURCE / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            is_of_click = isinstance(node, ast.Attribute) and node.attr in ("FLOAT", "FloatRange")
            is_type = isinstance(node, ast.keyword) and node.arg == "type" and ast.unparse(node.value) == "float"
            is_caught = isinstance(node, ast.Try) and "ValueError" in "".join(
                ast.unparse(one.type) for one in node.handlers if one.type is not None
            )
            is_read = is_caught and any("float(" in ast.unparse(one) for one in node.body)  # type: ignore[attr-defined]
            if is_of_click or is_type or is_read:
                found.add(str(path.relative_to(SOURCE)))
    assert found <= FLOATS, found


def _numbers() -> Iterator[tuple[click.Command, str]]:
    group = click.Context(LazyCommands("swell"))
    pending: list[click.Command] = [main]
    for name in COMMANDS:
        found = LazyCommands("swell").get_command(group, name)
        assert found is not None
        pending.append(found)
    while pending:
        one = pending.pop()
        pending += one.commands.values() if isinstance(one, click.Group) else []
        yield from ((one, option.opts[0]) for option in one.params if isinstance(option.type, Number))


NUMBERS = [(command, option, text) for command, option in _numbers() for text in ("nan", "inf", "-1", "1e999")]


def test_there_are_options_that_take_numbers():
    options = {option for _, option, _ in NUMBERS}
    assert {"--restart", "--pace", "--round", "--load", "--hours", "--est_nhours"} <= options


@pytest.mark.parametrize(("command", "option", "text"), NUMBERS)
def test_no_option_takes_a_number_beyond_its_bounds(command: click.Command, option: str, text: str):
    answer = CliRunner().invoke(command, [option, text])
    assert (answer.exit_code, f"Invalid value for '{option}': '{text}' is not" in answer.output) == (2, True), answer


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(("words", "limit"), [("10", "10m"), ("90:00", "1h30m"), ("2-0", "2d"), ("90s", "1m30s")])
def test_show_repeats_a_time_limit_as_it_was_understood(shell: Shell, words: str, limit: str) -> None:
    job = shell.type("swell", "run", "-d", "--time", words, "--", "true").stdout.strip()
    shown = shell.type("swell", "show", job)
    assert f"priority 0; time limit {limit}\n" in shown.stdout, shown


def test_a_dry_run_repeats_it_in_seconds(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("apiVersion: swell/v1\nkind: Job\nspec: {command: ['true'], time: 10}\n")
    assert "  time: 600s  # line 3\n" in shell.type("swell", "submit", "--dry-run", "-f", str(file)).stdout


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
