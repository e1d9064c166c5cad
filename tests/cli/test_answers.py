"""A mistyped name is no empty answer; times are those of the clock on the wall; files need no option."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from moving.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("ps -u nosuch", "nosuch has no jobs, and this machine has no user with that name"),
        ("ps -u root", "root has no jobs"),
        ("cancel --all -u nosuch", "nosuch has no queued or running jobs, and this machine has no user with that name"),
        ("cancel --all", "no jobs to cancel: all of them have ended"),
        ("usage -u nosuch", "nosuch used nothing in this period, and this machine has no user with that name"),
    ],
)
def test_whoever_is_misspelt_is_said_to_be_nobody(shell: Shell, words: str, said: str):
    """Incident: `swell cancel --all -u nosuch` printed nothing at all, as if all were well."""
    done = shell.type("swell", *words.split())
    assert (done.code, done.stderr) == (0, f"swell: {said}\n")


def test_use_from_a_day_to_come_is_refused(shell: Shell):
    done = shell.type("swell", "usage", "--since", "2999-01-01")
    today = datetime.now(UTC).date().isoformat()
    said = f"swell: --since 2999-01-01 is in the future: today is {today} (UTC); name an earlier day\n"
    assert (done.code, done.stderr) == (2, said)


def test_events_are_shown_by_the_wall_clock_and_as_many_as_asked_for(shell: Shell, monkeypatch: pytest.MonkeyPatch):
    """Incident: fractions of seconds in another zone, and always all of them."""
    waits = ("run", "-d", "--wait-for-nodes", "--gpus", "99")  # nothing more happens to it
    job = shell.type("swell", *waits, "--", "true").stdout.strip()
    every = shell.type("swell", "events", job, "-o", "json").json
    assert len(every) > 0
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT.*\.\d+.*", event["at"]) for event in every)
    last = shell.type("swell", "events", job, "--tail", "1").stdout.splitlines()[1:]
    assert [line.split()[3] for line in last] == [every[-1]["kind"]]
    wall = datetime.fromisoformat(every[-1]["at"]).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    assert last[0].startswith(f"{wall}  {job}")
    assert shell.type("swell", "events", job, "--tail", "0", "-o", "json").json == []
    assert shell.type("swell", "events", job, "--since", "1h", "-o", "json").json == every
    shell.clock.ahead_s = -7200
    assert shell.type("swell", *waits, "--name", "old", "--", "true").code == 0
    assert shell.type("swell", "events", "old", "--since", "1h", "-o", "json").json == []


def test_a_file_with_jobs_is_named_with_or_without_an_option(shell: Shell, tmp_path: Path):
    """Incident: `swell submit job.yaml` was refused as an unexpected argument."""
    file = tmp_path / "job.yaml"
    file.write_text("{apiVersion: swell/v1, kind: Job, spec: {command: ['true']}}")
    first = shell.type("swell", "submit", "-f", str(file))
    second = shell.type("swell", "submit", str(file))
    assert (first.code, second.code) == (0, 0)
    assert int(second.stdout) == int(first.stdout) + 1
