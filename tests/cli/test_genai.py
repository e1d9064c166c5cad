"""`genai-manager deploy`: what it says, and that what it deploys runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from click.testing import Result as Called

from server import Result, Server
from swell.cli.genai import gpus_text, main

EXAMPLES = Path(__file__).parents[2] / "examples" / "kubernetes"


def call(*words: str) -> Called:
    return CliRunner().invoke(main, list(words), prog_name="genai-manager")


# -- without a server ----------------------------------------------------------------------------------------------


def test_help_says_what_can_be_deployed_and_where_the_rest_is():
    shown = call("--help").output
    assert "deploy  " in shown
    assert "For everything else, use `swell`: ps, why, logs, cancel." in shown
    shown = call("deploy", "-h").output
    assert "-f, --filename FILE" in shown
    assert "requests is the minimum, limits the maximum" in " ".join(shown.split())


def test_every_option_is_explained():
    for command in main.commands.values():
        for option in command.params:
            assert isinstance(option, click.Option)
            assert option.help, option.opts


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["deploy"], "Missing option '-f' / '--filename'"),
        (["deploi", "-f", "x"], "unknown command 'deploi'; did you mean 'deploy'?"),
        (["frobnicate"], "unknown command 'frobnicate'; the commands are: deploy, scale, delete"),
        (["deploy", "--file", "x"], "Did you mean '--filename'?"),
        (["delete"], "Missing option '-n' / '--name'"),
        (["deploy", "-f", "missing.yaml"], "missing.yaml: No such file or directory; name a readable manifest"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_2_and_nothing_is_started(state, words, said):
    result = call(*words)
    assert (result.exit_code, said in " ".join(result.output.split())) == (2, True), result.output
    assert not state.exists()


def spec(dimension: str, low: int, high: int, *roles: tuple[int, int]) -> dict[str, Any]:
    """As the server tells it; a role is its number of tasks and the GPUs of each."""
    return {
        "dimension": dimension,
        "width_min": low,
        "width_max": high,
        "roles": [{"count": count, "gpus": gpus} for count, gpus in roles],
    }


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (spec("gpus", 2, 4, (1, 2)), "2..4"),
        (spec("gpus", 2, 2, (1, 2)), "2"),
        (spec("tasks", 1, 1, (1, 0)), "0"),
        (spec("tasks", 1, 1, (1, 1), (2, 4)), "9"),
        (spec("gpus", 1, 4, (1, 0), (2, 1)), "2..8"),
        (spec("tasks", 2, 4, (2, 8)), "16..32"),
    ],
)
def test_the_gpus_are_those_of_all_tasks_together(asked, text):
    assert gpus_text(asked) == text


# -- with one ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("genai"), gpus=4) as shared:
        yield shared


def manage(server: Server, *words: str) -> Result:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("genai-manager")), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=server.folder,
        env=server.environment(),
        timeout=60,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def deploy(server: Server, file: Path, word: str = "-f") -> Result:
    return manage(server, "deploy", word, str(file))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "gpus", "word"),
    [(1, "2..4", "-f"), (2, "2..4", "--filename"), (3, "2..4", "-f"), (4, "2", "--filename")],
)
def test_a_demo_job_is_deployed_and_succeeds(server, number, gpus, word):
    done = deploy(server, EXAMPLES / f"genai-job{number}.yaml", word)
    assert done.code == 0, done
    header, row = done.stdout.splitlines()
    name, asked, allocated, job = row.split()
    assert (header.split(), name, asked) == (["NAME", "GPUS", "ALLOCATED", "JOB"], f"genai-job{number}", gpus)
    server.until(int(job), "succeeded")
    written = server.until_output(int(job), b"epoch 3 of 3")
    width = 2 if gpus == "2" else 4  # nothing else runs, so it is as wide as it can use
    assert allocated == str(width)
    assert written.startswith(f"{name} on {width} GPUs (--num_processes={width}), visible: sim-0,sim-1".encode())


@pytest.mark.slow
def test_a_file_with_several_jobs_is_deployed_as_a_whole_or_not_at_all(server, tmp_path):
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    texts = [(EXAMPLES / name).read_text() for name in ("pod.yaml", "job.yaml")]
    good.write_text("---\n".join(texts))
    done = deploy(server, good)
    assert done.code == 0, done
    rows = [line.split()[:2] for line in done.stdout.splitlines()]
    assert rows == [["NAME", "GPUS"], ["one-gpu", "1"], ["ten-cases", "0"]]

    bad.write_text("---\n".join(texts).replace("completions: 10", "completions: ten"))
    before = len(server.jobs())
    done = deploy(server, bad)
    said = "spec.completions must be a whole number from 0 to 1000000, but is 'ten'"
    line = bad.read_text().partition("completions: ten")[0].count("\n") + 1
    assert (done.code, done.stdout, done.stderr) == (2, "", f"swell: {bad}: document 2 of 2: line {line}: {said}\n")
    assert len(server.jobs()) == before


@pytest.mark.slow
def test_a_server_is_started_when_none_runs(server):
    assert server.down().code == 0
    done = deploy(server, EXAMPLES / "pod.yaml")
    assert (done.code, done.stderr.startswith(f"swell: started a server for {server.root} (log: ")) == (0, True), done
    server.until(int(done.stdout.split()[-1]), "succeeded")


@pytest.mark.slow
def test_a_master_and_its_workers_meet(server):
    done = deploy(server, EXAMPLES / "pytorchjob.yaml")
    assert done.code == 0, done
    job = int(done.stdout.split()[-1])
    server.until(job, "succeeded")
    lines = server.until_output(job, b"have come").decode().splitlines()
    assert (sorted(lines[:2]), lines[2]) == (["rank 1 is here", "rank 2 is here"], "all 2 have come")


@pytest.mark.slow
def test_a_job_is_scaled_into_the_room_that_another_left_and_deleted(server):
    first = server.start("--gpus", "2", "--name", "first", "--", "sleep", "600")
    server.until(first, "running")
    wide = server.start("--gpus", "1..4", "--name", "wide", "--", "sleep", "600")
    assert server.until(wide, "running")["width"] == 2
    nobody = manage(server, "scale")
    assert (nobody.code, nobody.stdout, nobody.stderr) == (1, "Did not scale\n", "")
    assert manage(server, "delete", "-n", "first").stderr == f"swell: job {first} (first) is deleted\n"
    scaled = manage(server, "scale", "-n", "wide")
    assert (scaled.code, scaled.stdout) == (0, "Scaled\n"), scaled
    server.until_true(wide, lambda job: (job["state"], job["width"]) == ("running", 4))
    assert manage(server, "delete", "-n", "wide", "-n", str(wide)).code == 0
    assert server.jobs() == [job for job in server.jobs() if job["name"] not in ("first", "wide")]
    missing = manage(server, "scale", "-n", "wide")
    assert (missing.code, missing.stderr) == (2, "swell: there is no job 'wide'; GET /get_all_jobs lists them\n")
