"""Functions run as jobs, in the way of the standard library's executors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent import futures
from pathlib import Path

import pytest

from server import Gate, Server
from swell.client import CallFailed, Executor
from swell.errors import Rejected

pytestmark = pytest.mark.slow
PATIENCE_S = 120


@pytest.fixture
def executor(server: Server, tmp_path: Path):
    with Executor(server.client(), folder=tmp_path / "calls", cpus="0.1") as made:
        yield made


def divide(number: int, by: int = 2) -> float:
    return number / by


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def wait_at(gate: str) -> str:
    return Path(gate).read_text()


class Odd(Exception):
    """Pickle writes it and cannot read it."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


def raise_odd() -> None:
    raise Odd("very", "odd")


def give_a_lock() -> object:
    return threading.Lock()


def test_a_call_returns_what_its_function_returns(executor):
    future = executor.submit(divide, 9, by=3)
    assert future.result(PATIENCE_S) == 3.0
    assert (future.job.name, future.job.state, future.running(), future.exception()) == (
        "divide",
        "succeeded",
        False,
        None,
    )


def test_a_call_raises_what_its_function_raises_and_says_where(executor):
    error = executor.submit(divide, 1, by=0).exception(PATIENCE_S)
    assert isinstance(error, ZeroDivisionError)
    assert "return number / by" in "".join(error.__notes__)


def test_map_keeps_the_order_and_a_chunk_of_calls_is_one_job(executor, server):
    before = len(server.jobs())
    assert list(executor.map(divide, [2, 4, 6, 8], [2, 2, 3, 4], timeout=PATIENCE_S, chunksize=2)) == [1, 2, 2, 2]
    assert len(server.jobs()) == before + 2


def test_all_that_waits_for_futures_works(executor):
    given = [executor.submit(divide, number) for number in (2, 4)]
    assert sorted(one.result() for one in futures.as_completed(given, timeout=PATIENCE_S)) == [1, 2]


@pytest.mark.parametrize(
    ("function", "said"),
    [(raise_odd, "exception Odd('very odd') cannot be sent back"), (give_a_lock, "cannot pickle '_thread.lock'")],
)
def test_what_cannot_travel_back_is_said(executor, function, said):
    error = executor.submit(function).exception(PATIENCE_S)
    assert isinstance(error, RuntimeError)
    assert said in str(error)


def test_a_job_that_dies_leaves_an_exception_that_names_it(executor):
    future = executor.submit(die)
    with pytest.raises(CallFailed, match=rf"job {future.job.id} \(die\) failed and left no result: .*swell logs"):
        future.result(PATIENCE_S)


def test_a_call_that_runs_can_be_cancelled(executor, server, tmp_path):
    gate = Gate(tmp_path / "gate")
    future = executor.submit(wait_at, str(gate))
    server.until(future.job.id, "running")
    assert future.cancel()
    assert (future.cancelled(), future.cancel()) == (True, True)
    assert futures.wait([future], timeout=PATIENCE_S).not_done == set()
    server.until(future.job.id, "cancelled")
    with pytest.raises(futures.CancelledError):
        future.result()


def test_a_job_that_somebody_else_cancels_cancels_its_call(executor, server, tmp_path):
    future = executor.submit(wait_at, str(Gate(tmp_path / "gate")))
    server.until(future.job.id, "running")
    server.swell("cancel", str(future.job.id))
    with pytest.raises(futures.CancelledError):
        future.result(PATIENCE_S)


def test_after_shutdown_nothing_is_submitted_and_no_file_is_left(server, tmp_path):
    executor = Executor(server.client(), folder=tmp_path / "calls", cpus="0.1")
    future = executor.submit(divide, 4)
    executor.shutdown()
    assert future.result(0) == 2.0
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        executor.submit(divide, 4)
    assert list((tmp_path / "calls").iterdir()) == []


def test_calls_that_have_not_begun_are_cancelled_on_request(server, tmp_path):
    executor = Executor(server.client(), folder=tmp_path / "calls", cpus="0.1", after=[_held(server)])
    future = executor.submit(divide, 4)
    executor.shutdown(cancel_futures=True)
    assert future.cancelled()


def _held(server: Server) -> int:
    job = server.start("--", "true")
    server.swell("hold", str(job))
    return job


@pytest.mark.parametrize(
    ("function", "said"),
    [(lambda: 1, "cannot be sent to a job"), (threading.Lock(), "cannot be sent to a job")],
)
def test_what_cannot_be_sent_is_refused_before_anything_is_submitted(executor, server, function, said):
    before = len(server.jobs())
    with pytest.raises(Rejected, match=said):
        executor.submit(function)
    assert len(server.jobs()) == before


@pytest.mark.parametrize("need", [{"array": "0-3"}, {"tasks": 2}, {"image": "python:3.12"}])
def test_a_call_is_one_process_of_this_python(server, need):
    with pytest.raises(Rejected, match=f"one process of this Python; leave {next(iter(need))} out"):
        Executor(server.client(), **need)


SCRIPT = """
from swell.client import Executor

def square(number):
    return number * number

if __name__ == "__main__":
    with Executor(folder="calls", cpus="0.1") as executor:
        print(list(executor.map(square, [3, 4])))
"""


@pytest.mark.parametrize("words", [["script.py"], ["-m", "script"]], ids=["as a file", "as a module"])
def test_functions_of_the_script_itself_are_found(server, tmp_path, words):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, env=server.environment(), capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("[9, 16]\n", 0), done.stderr
