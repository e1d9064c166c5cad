"""A trial container: what is asked of the runtime, what is told when it fails, and that nothing stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from swell.worker.containers import Runtime
from swell.worker.trial import ContainerTrial, TrialResult, what_to_do

PRETENDER = """\
#!/bin/sh
echo "$1" >> "$0.calls"
case $1 in
  import) cat > /dev/null; echo sha256:0 ;;
  run) {run} ;;
esac
"""


def tried(folder: Path, run: str, *, patience_s: float = 30.0) -> tuple[TrialResult, list[str]]:
    """With a runtime that only pretends; and what it was called with."""
    program = folder / "podman"
    program.write_text(PRETENDER.format(run=run))
    program.chmod(0o755)
    result = ContainerTrial(Runtime((str(program),)), dict(os.environ), patience_s=patience_s).run()
    return result, (folder / "podman.calls").read_text().split()


ALL_STEPS = ["import", "run", "rm", "rmi"]


def test_one_that_starts_as_ourselves_is_no_problem(tmp_path: Path) -> None:
    result, calls = tried(tmp_path, "id -u")
    assert (result.problem, result.following, calls) == ("", "", ALL_STEPS)


def test_one_in_which_we_are_somebody_else_is_a_problem(tmp_path: Path) -> None:
    result, calls = tried(tmp_path, "echo 4711")
    assert (result.problem, calls) == (f"in the container you are user 4711, not {os.getuid()}", ALL_STEPS)


def test_the_runtimes_own_words_are_told_with_what_to_do(tmp_path: Path) -> None:
    result, calls = tried(tmp_path, "echo 'Error: setting rlimit: not permitted' >&2; exit 126")
    assert (result.problem, calls) == ("Error: setting rlimit: not permitted", ALL_STEPS)
    assert "--container-options" in result.following


def test_a_runtime_that_hangs_is_not_waited_for_and_what_it_made_is_removed(tmp_path: Path) -> None:
    result, calls = tried(tmp_path, "exec sleep 600", patience_s=0.5)
    assert (result.problem, calls) == (f"{tmp_path}/podman run did not end within 0.5 s", ALL_STEPS)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("Cannot connect to the Docker daemon at unix:///x. Is it running?", "start docker's engine"),
        ("permission denied while trying to connect to the Docker daemon socket", "the group docker"),
        ("Error: crun: cgroups in hybrid mode not supported", "--cgroup-manager cgroupfs"),
        ("Error: cannot find UID/GID for user ann: no subuid ranges found in /etc/subuid", "usermod --add-subuids "),
        ("something new", "jobs with an image fail until `podman run` works for ann"),
    ],
)
def test_what_is_known_to_help_is_said(said: str, expected: str) -> None:
    assert expected in what_to_do(said, Runtime(("podman",)), "ann")
