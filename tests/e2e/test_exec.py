"""`swell exec` runs a command where a job runs: beside its processes, or in its container."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from server import SWELL, Gate

from .containers import ContainerRuntime, ContainerServer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory, runtime: ContainerRuntime) -> Iterator[ContainerServer]:
    with ContainerServer(tmp_path_factory.mktemp("exec"), runtime) as shared:
        yield shared


@pytest.fixture(params=["process", "container"])
def job(request: pytest.FixtureRequest, box: ContainerServer, gate: Gate, tmp_path: Path) -> Iterator[int]:
    """One that waits at a gate in the test's folder, as a process or in a container."""
    words = ("--image", box.runtime.image) if request.param == "container" else ()
    script = f"echo begun; read line < {gate}"
    own = box.start("--env", "MINE=yes", "--workdir", str(tmp_path), *words, "--", "sh", "-c", script)
    box.until_output(own, b"begun")
    yield own
    gate.open()
    box.until(own, "succeeded", "failed")


def in_terminal(box: ContainerServer, words: list[str], typed: bytes) -> tuple[int, bytes]:
    """What is shown to somebody who types this, and the exit code."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [SWELL, *words],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=box.environment(TERM="dumb"),
        start_new_session=True,
    )
    os.close(slave)
    os.write(master, typed)
    shown = b""
    while piece := _read(master):
        shown += piece
    os.close(master)
    return process.wait(timeout=30), shown


def _read(master: int) -> bytes:
    try:
        return os.read(master, 4096)
    except OSError:  # EIO: nobody has the other end any more
        return b""


def test_a_command_has_the_jobs_folder_and_variables_and_its_code_is_ours(
    box: ContainerServer, job: int, tmp_path: Path
) -> None:
    done = box.swell("exec", str(job), "--", "sh", "-c", "pwd; echo $MINE $SWELL_JOB_ID; exit 23")
    assert (done.code, done.stdout) == (23, f"{tmp_path}\nyes {job}\n")


def test_its_input_is_ours(box: ContainerServer, job: int) -> None:
    assert box.swell("exec", str(job), "--", "cat", stdin="handed in").stdout == "handed in"


def test_without_a_command_it_is_a_shell_in_a_terminal(box: ContainerServer, job: int) -> None:
    code, shown = in_terminal(box, ["exec", str(job)], b"echo in-$MINE-$((40+2)); exit 7\n")
    assert (code, b"in-yes-42" in shown) == (7, True), shown


def test_what_is_left_of_it_ends_with_the_job(box: ContainerServer, gate: Gate, tmp_path: Path) -> None:
    job = box.start("--workdir", str(tmp_path), "--", "sh", "-c", f"echo begun; read line < {gate}")
    box.until_output(job, b"begun")
    beside = box.spawn("exec", str(job), "--", "sh", "-c", "echo up; exec sleep 600")
    assert beside.stdout is not None
    assert beside.stdout.readline() == b"up\n"
    gate.open()
    box.until(job, "succeeded")
    assert beside.wait(timeout=30) == -15


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_is_chosen(box: ContainerServer, gate: Gate, rank: int) -> None:
    job = box.start("--tasks", "2", "--", "sh", "-c", f"echo begun; read line < {gate}")
    for one in (0, 1):
        box.until_output(job, b"begun", rank=one)
    assert box.swell("exec", "--rank", str(rank), str(job), "--", "printenv", "RANK").stdout == f"{rank}\n"
    gate.open()
    gate.open()
    box.until(job, "succeeded")


def test_what_cannot_be_entered_is_said(box: ContainerServer, tmp_path: Path) -> None:
    done = box.swell("run", "--name", "over", "--", "true")
    assert done.code == 0
    again = box.swell("exec", "over", "--", "true")
    assert (again.code, "is succeeded: swell exec needs a running job" in again.stderr) == (125, True)
    assert box.swell("exec", "no-such-job", "--", "true").code == 125


def test_a_command_that_does_not_exist_is_127(box: ContainerServer, job: int) -> None:
    """Older engines of docker say 126, which is as much as they tell."""
    is_in_docker = box.runtime.is_docker and box.client().show(job)["spec"]["container"] is not None
    code = box.swell("exec", str(job), "--", "no-such-command-here").code
    assert code in ((126, 127) if is_in_docker else (127,))
