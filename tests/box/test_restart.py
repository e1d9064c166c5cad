"""Restarting or upgrading a box server leaves running tasks alone, and their exit codes are known."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from box.containers import made_gate
from box.machine import Machine, up_before_and_empty_after, wait_for
from box.upgrade import make_older, version_of
from server import SWELL, Gate
from swell import __version__
from swell.client.job import RESTART_S
from swell.store.migrate import HEAD

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shared() -> Iterator[Machine]:
    with Machine() as machine:
        yield machine


@pytest.fixture
def box(shared: Machine) -> Iterator[Machine]:
    yield from up_before_and_empty_after(shared)


@pytest.fixture
def gate(box) -> Iterator[Gate]:
    yield from made_gate(box)


def gated_jobs(box: Machine, gate: Gate) -> dict[int, int]:
    """One per user, each waiting at the gate, and the code it ends with."""
    jobs = {}
    for code, person in enumerate(box.people, start=3):
        job = person.start("--", "sh", "-c", f"echo pid $$; read line < {gate}; exit {code}")
        box.until_output(job, b"pid ")
        jobs[job] = code
    return jobs


def pids(box: Machine, jobs: dict[int, int]) -> dict[int, int]:
    return {job: int(box.until_output(job, b"pid ").split()[1]) for job in jobs}


def found(box: Machine, jobs: dict[int, int]) -> tuple[dict[int, int], dict[int, int]]:
    """Running, in which attempts and as which processes."""
    return {job: box.until(job, "running")["attempts"] for job in jobs}, pids(box, jobs)


def codes(box: Machine, gate: Gate, jobs: dict[int, int]) -> dict[int, int]:
    """With which they end when they are let go on."""
    for _ in jobs:
        gate.open()
    return {job: box.until(job, "failed")["exit_code"] for job in jobs}


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_restarted_server_finds_every_users_task_and_learns_its_code(box, gate, how):
    jobs = gated_jobs(box, gate)
    before = pids(box, jobs)
    box.down(how)
    box.up()
    assert found(box, jobs) == (dict.fromkeys(jobs, 1), before)
    assert set(before.values()) <= set(box.processes())
    assert codes(box, gate, jobs) == jobs


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_who_watches_a_job_goes_on_watching_when_the_server_is_back(box, gate, how):
    """systemd starts a killed box server two seconds later; `swell run` had given up by then, with 125."""
    anna = box.people[0]
    with ThreadPoolExecutor() as threads:
        watching = threads.submit(anna.swell, "run", "--", "sh", "-c", f"echo up; read line < {gate}; echo on; exit 4")
        wait_for(lambda: "running" in [job.state for job in box.client().jobs(all_users=True)], "the job")
        box.down(how)
        with pytest.raises(TimeoutError):
            watching.result(RESTART_S + 2)
        box.up()
        gate.open()
        done = watching.result()
    assert (done.code, done.stdout) == (4, "up\non\n"), done
    assert f"swell: the server of this machine ({box.socket}) does not answer; waiting up to 1m" in done.stderr


def test_an_upgrade_over_a_migration_leaves_tasks_alone_and_learns_their_codes(box, gate):
    """The server that runs them has the tables before the last migration; the next one is this code."""
    jobs = gated_jobs(box, gate)
    before = pids(box, jobs)
    box.down()
    assert make_older(box.state.database) < HEAD
    box.up()
    assert version_of(box.state.database) == HEAD
    assert found(box, jobs) == (dict.fromkeys(jobs, 1), before)
    assert set(before.values()) <= set(box.processes())
    assert codes(box, gate, jobs) == jobs
    assert version_of(box.state.database.with_suffix(f".before-{HEAD}")) < HEAD


def test_codes_of_tasks_that_end_while_nobody_looks_are_known(box, gate):
    jobs = gated_jobs(box, gate)
    before = pids(box, jobs)
    box.down(signal.SIGKILL)
    box.kill_worker()
    for _ in jobs:
        gate.open()
    wait_for(lambda: not set(before.values()) & set(box.processes()), "the tasks' end")
    box.up()
    assert {job: box.until(job, "failed")["exit_code"] for job in jobs} == jobs


def test_the_status_says_whether_a_server_answers(box, gate):
    gated_jobs(box, gate)
    states = Counter(job.state for job in box.client().jobs(all=True, all_users=True))
    env = {**os.environ, "SWELL_SOCKET": str(box.socket)}
    asked = [SWELL, "service", "status", "--root", str(box.root)]
    up = subprocess.run(asked, env=env, capture_output=True, text=True, check=False)
    box.down()
    down = subprocess.run(asked, env=env, capture_output=True, text=True, check=False)
    lines = dict(line.split(":", 1) for line in up.stdout.splitlines())
    assert (up.returncode, down.returncode) == (0, 1)
    assert lines["socket"].strip() == str(box.socket)
    assert states["running"] == 3
    told = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    assert lines["answer"].strip() == f"swell {__version__}: {told}"


def test_a_task_whose_keeper_was_killed_lives_on_and_can_be_stopped(box):
    """Only root or a machine short of memory can do that; the user's work goes on all the same."""
    anna = box.people[0]
    job = anna.start("--grace", "1s", "--", "sh", "-c", "echo pid $$; while :; do sleep 1; done")
    pid = int(box.until_output(job, b"pid ").split()[1])
    keeper = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(keeper, signal.SIGKILL)
    box.kill_worker()
    wait_for(lambda: bool(box.state.lock_holder("worker")), "the next worker")
    assert box.until(job, "running")["attempts"] == 1
    assert pid in box.processes()
    assert anna.swell("cancel", "--wait", str(job)).code == 0
    assert pid not in box.processes()
