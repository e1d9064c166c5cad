"""What a person sees who asks for more than there is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from moving.shell import Shell

JOB = "apiVersion: swell/v1\nkind: Job\nmetadata: {name: wide}\nspec: {command: ['true'], gpus: 99}\n"
PROBLEM = (
    "job 'wide' can never run here: it wants 1 CPU, 99 GPUs, but this machine has 64 CPUs, 4 GPUs; submit it with "
    "--gpus 4 or less; to queue it "
)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    made.close()


def jobs(shell: Shell) -> list[str]:
    return [job.spec.name for job in shell.service.store.listing(ended_since=None)[0]]


def test_run_ends_with_125_and_queues_nothing(shell: Shell) -> None:
    done = shell.type("swell", "run", "--name", "wide", "--gpus", "99", "--", "true")
    assert (done.code, done.stdout, PROBLEM in " ".join(done.stderr.split())) == (125, "", True), done
    assert jobs(shell) == []


def test_run_queues_it_for_who_waits_for_nodes(shell: Shell) -> None:
    done = shell.type("swell", "run", "-d", "--wait-for-nodes", "--name", "wide", "--gpus", "99", "--", "true")
    assert (done.code, jobs(shell)) == (0, ["wide"])


def test_submit_ends_with_2_before_any_file_is_submitted(shell: Shell, tmp_path: Path) -> None:
    small, wide = tmp_path / "small.yaml", tmp_path / "wide.yaml"
    small.write_text(JOB.replace("wide", "small").replace("99", "1"))
    wide.write_text(JOB)
    done = shell.type("swell", "submit", "-f", str(small), "-f", str(wide))
    said = " ".join(done.stderr.split())
    assert (done.code, done.stdout, f"{wide}: {PROBLEM}until a node is large enough, add --wait-for-nodes" in said) == (
        2,
        "",
        True,
    ), done
    assert jobs(shell) == []
    done = shell.type("swell", "submit", "-f", str(small), "-f", str(wide), "--wait-for-nodes")
    assert (done.code, sorted(jobs(shell))) == (0, ["small", "wide"])


def test_a_dry_run_prints_what_would_be_asked_for_says_so_and_ends_with_2(shell: Shell, tmp_path: Path) -> None:
    wide = tmp_path / "wide.yaml"
    wide.write_text(JOB)
    done = shell.type("swell", "submit", "--dry-run", "-f", str(wide))
    assert (done.code, "name: wide\n" in done.stdout, PROBLEM in " ".join(done.stderr.split())) == (2, True, True), done
    done = shell.type("swell", "submit", "--dry-run", "--wait-for-nodes", "-f", str(wide))
    assert (done.code, "can never run here" in done.stderr) == (0, True)
    assert jobs(shell) == []


@pytest.mark.parametrize(
    ("option", "todo"),
    [
        ("--gres=gpu:99", "#SBATCH --gpus=4 or less"),
        ("-n 50 -c 2", "#SBATCH --ntasks times --cpus-per-task of 64 or less"),
    ],
)
def test_a_batch_script_is_told_of_options_that_it_has(shell: Shell, tmp_path: Path, option: str, todo: str) -> None:
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\n#SBATCH {option}\ntrue\n")
    for way in ([], ["--dry-run"]):
        done = shell.type("swell", "submit", *way, str(script))
        assert (done.code, f"; submit it with {todo}; to queue it until" in " ".join(done.stderr.split())) == (2, True)
    assert jobs(shell) == []
