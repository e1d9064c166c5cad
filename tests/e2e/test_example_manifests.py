"""Every example manifest runs on this machine, with the real programs, and says what its first lines say it will."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from server import Server

from .example_output import OUTPUT, expected
from .training import EXAMPLES

pytestmark = pytest.mark.slow


DEBIANS = "/usr/bin:/bin"  # where the python3 is that has torch
DEVICE = re.compile(r"sim-[0-9]+")
PLACES = {"aichor/xgboost.yaml": {"master": "127.0.0.1,127.0.0.1"}, "kubernetes/pod.yaml": {"gpu": "one"}}


#: those of which more is asked below, or in tests/e2e/test_orchestrator.py and tests/moving
BESIDE = {"mpi/lammps.yaml", "native/pipeline.yaml", *(f"kubernetes/genai-job{number}.yaml" for number in range(1, 5))}


def test_every_example_of_a_manifest_is_run_by_a_test() -> None:
    found = {str(file.relative_to(EXAMPLES)) for file in EXAMPLES.rglob("*.yaml") if "\nkind: " in file.read_text()}
    assert found == {*OUTPUT, *BESIDE}


def submitted(server: Server, example: str) -> str:
    """The job, which has succeeded. `python3` is the one that has swell-sdk."""
    file = EXAMPLES / example
    path = DEBIANS if example == "aichor/pytorch.yaml" else f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = server.swell("submit", "--wait", file.name, cwd=file.parent, env={"PATH": path}, timeout_s=300)
    assert done.code == 0, (done, server.swell("logs", "--all", done.stdout.split()[0]).stdout[-3000:])
    return done.stdout.split()[0]


def lines_of(server: Server, job: str, rank: int = 0) -> tuple[str, ...]:
    return tuple(sorted(server.swell("logs", "--rank", str(rank), job).stdout.splitlines()))


@pytest.mark.parametrize("example", OUTPUT)
def test_every_task_of_an_example_prints_what_it_does_on_every_engine(server, example):
    tasks = expected(example, **{"master": "127.0.0.1", **PLACES.get(example, {})})
    job = submitted(server, example)
    shown = server.client().job(int(job)).document
    assert (shown["tasks"]["total"], shown["tasks"]["succeeded"], shown["exit_code"]) == (len(tasks), len(tasks), 0)
    found = [lines_of(server, job, rank) for rank in range(len(tasks))]
    assert [tuple(DEVICE.sub("one", line) for line in lines) for lines in found] == list(tasks)


def test_scenario_4_starts_where_scenario_3_must_wait(own_server):
    """Fifteen tasks of 0.2 CPUs want 3 CPUs at once; a few at a time start with what is free."""
    server = own_server
    holder = int(server.swell("run", "-d", "--cpus", "6", "--", "sleep", "600").stdout)
    server.until(holder, "running")
    folder = EXAMPLES / "aichor"
    waits = int(server.swell("submit", "scenario-3.yaml", cwd=folder).stdout)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    runs = int(server.swell("submit", "scenario-4.yaml", cwd=folder, env={"PATH": path}).stdout)
    server.until(runs, "succeeded")
    job = server.client().job(waits)
    assert (job.state, job.document["reason"]["code"]) == ("queued", "WaitingForRoom")
    assert "it wants 15 tasks of 0.2 CPUs, 191 MiB, all at once" in server.swell("why", str(waits)).stdout


def test_lammps_melts_on_two_ranks(server):
    lines = lines_of(server, submitted(server, "mpi/lammps.yaml"))
    assert any("on 2 procs for 100 steps with 864 atoms" in line for line in lines), lines


def test_a_batch_script_starts_its_tasks_with_srun(server):
    lines = lines_of(server, submitted(server, "slurm/train.sh"))
    assert lines == ("job train with 2 tasks of 1 CPU", "rank 0 of 2", "rank 1 of 2")


def test_the_array_of_a_batch_script_writes_the_files_that_it_names(server, tmp_path):
    script = tmp_path / "array.sh"
    script.write_text((EXAMPLES / "slurm" / "array.sh").read_text())
    done = server.swell("submit", "--wait", str(script), cwd=tmp_path, timeout_s=300)
    assert done.code == 0, (done, server.swell("logs", "--all", done.stdout.split()[0]).stdout[-3000:])
    job = done.stdout.split()[0]
    made = {file.name: file.read_text() for file in tmp_path.glob("*.out")}
    assert made == {f"sweep-{job}_{index:02}.out": f"task {index} of 1 to 4\n" for index in range(1, 5)}


def test_the_jobs_of_a_pipeline_run_one_after_the_other(server):
    done = server.swell("submit", "--wait", str(EXAMPLES / "native" / "pipeline.yaml"), timeout_s=300)
    assert done.code == 0, (done, server.swell("logs", "--all", done.stdout.split()[0]).stdout[-3000:])
    jobs = done.stdout.split()
    assert [server.swell("logs", job).stdout for job in jobs] == ["prepared\n", "trained\n"]
