"""Daily life with jobs: hold, release, requeue, scale, after, retries, notify, TensorBoard."""

from __future__ import annotations

import http.server
import json
import os
import select
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from server import Server, ended

pytestmark = pytest.mark.slow

#: trains until a file appears, faster when it is wider, a checkpoint after each epoch
TRAINER = """
import json, pathlib, sys, time
import swell_sdk
run = swell_sdk.attach()
enough = pathlib.Path(sys.argv[1])
for epoch in run.epochs():
    time.sleep(0.4 / run.width)
    run.save(lambda path: pathlib.Path(path).write_text(str(epoch)))
    print("epoch", epoch + 1, "width", run.width, flush=True)
    if enough.exists():
        break
"""


@pytest.fixture
def trainer(server: Server, tmp_path: Path) -> Trainer:
    script = tmp_path / "train.py"
    script.write_text(TRAINER)
    return Trainer(server, [sys.executable, str(script), str(tmp_path / "enough")], tmp_path / "enough")


class Trainer:
    def __init__(self, server: Server, command: list[str], enough: Path) -> None:
        self.server, self.command, self._enough = server, command, enough

    def start(self, *options: str) -> int:
        """Running, and with a checkpoint reported."""
        job = self.server.start(*options, "--", *self.command)
        self.server.until(job, "running")
        self.server.until_true(job, lambda document: (document["progress"]["epochs_done"] or 0) >= 1)
        return job

    def until_wide(self, job: int, width: int) -> None:
        is_so = lambda document: (document["width"], document["state"]) == (width, "running")  # noqa: E731
        self.server.until_true(job, is_so)

    def finish(self, job: int) -> dict[str, Any]:
        self._enough.touch()
        return self.server.until(job, "succeeded")

    def epochs(self, job: int) -> list[int]:
        lines = self.server.swell("logs", str(job)).stdout.splitlines()
        return [int(line.split()[1]) for line in lines if line.startswith("epoch")]


class Pipe:
    """A line that somebody else writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CLOEXEC))

    def line(self) -> str:
        assert select.select([self._file], [], [], 30)[0], f"nobody wrote to {self.path}"
        return self._file.readline()


# -- hold, release, requeue, scale -----------------------------------------------------------------------------------


def test_a_held_job_does_not_start_until_it_is_released(server):
    blocker = server.start("--gpus", "4", "--", "sleep", "600")
    server.until(blocker, "running")
    job = server.start("--name", "patient", "--gpus", "1", "--", "true")
    done = server.swell("hold", str(job))
    assert (done.code, done.stderr) == (0, f"swell: job {job} (patient) is held\n")
    server.swell("cancel", "--grace", "0", "--wait", str(blocker))
    held = server.client().job(job)
    assert (held.state, held.document["reason"]["code"]) == ("held", "Held")
    assert "swell release" in server.swell("why", str(job)).stdout
    done = server.swell("release", str(job))
    assert (done.code, done.stderr) == (0, f"swell: job {job} (patient) is released\n")
    server.until(job, "succeeded")


def test_a_running_job_is_held_at_its_next_checkpoint_and_goes_on_from_there(server, trainer):
    job = trainer.start("--name", "h", "--gpus", "1")
    assert server.swell("hold", str(job)).stderr == f"swell: job {job} (h) will be held at its next checkpoint\n"
    server.until(job, "held")
    assert server.swell("release", str(job)).code == 0
    server.until(job, "running")
    document = trainer.finish(job)
    assert (document["attempts"], document["lost_gpu_seconds"]) == (2, 0)
    epochs = trainer.epochs(job)
    assert epochs == list(range(1, len(epochs) + 1))


def test_a_job_that_would_lose_its_work_is_not_held_and_not_requeued_unless_told_so(server):
    job = server.start("--", "sleep", "600")
    server.until(job, "running")
    for words in (("hold",), ("requeue",)):
        done = server.swell(*words, str(job))
        assert done.code == 2
        assert "is running and has no checkpoint" in done.stderr
    assert server.swell("requeue", "--now", str(job)).code == 0
    server.until_true(job, lambda document: (document["attempts"], document["state"]) == (2, "running"))
    server.swell("cancel", "--grace", "0", "--wait", str(job))


def test_a_failed_job_can_be_started_again(server, tmp_path):
    good = tmp_path / "good"
    job = server.start("--name", "again", "--", "test", "-e", str(good))
    server.until(job, "failed")
    good.touch()
    done = server.swell("requeue", str(job))
    assert (done.code, done.stderr) == (0, f"swell: job {job} (again) is queued again\n")
    server.until(job, "succeeded")
    assert server.swell("requeue", str(job)).code == 2


def test_a_job_is_scaled_by_hand_within_its_range_and_set_free_again(server, trainer):
    job = trainer.start("--gpus", "1..4", "--name", "s")
    assert server.client().job(job).document["width"] == 4
    assert server.swell("scale", str(job), "2").code == 0
    trainer.until_wide(job, 2)
    bad = server.swell("scale", str(job), "5")
    assert (bad.code, bad.stderr) == (2, f"swell: width 5 is outside job {job}'s range, 1..4\n")
    assert server.swell("scale", str(job), "auto").code == 0
    trainer.until_wide(job, 4)
    document = trainer.finish(job)
    assert document["resizes"] == 2
    epochs = trainer.epochs(job)
    assert epochs == list(range(1, len(epochs) + 1))


# -- after, retries --------------------------------------------------------------------------------------------------


def test_a_job_starts_after_another_has_succeeded(server, gate):
    first = server.start("--name", "first", "--", "sh", "-c", f"read line < {gate}")
    server.until(first, "running")
    second = server.start("--after", "first", "--", "true")
    waiting = server.client().job(second)
    assert waiting.state == "queued"
    assert f"it starts after job {first}" in server.swell("why", str(second)).stdout
    gate.open()
    server.until(second, "succeeded")
    assert server.client().job(first).document["ended_at"] <= server.client().job(second).document["started_at"]


def test_a_job_whose_forerunner_failed_does_not_start_but_one_that_waits_for_any_end_does(server, gate):
    first = server.start("--", "sh", "-c", f"read line < {gate}; exit 3")
    server.until(first, "running")
    strict = server.start("--after", str(first), "--", "true")
    lenient = server.start("--after", f"{first}:end", "--", "true")
    gate.open()
    server.until(lenient, "succeeded")
    ended = server.client().job(strict).wait(timeout_s=20)
    assert (ended.state, ended.document["reason"]["code"]) == ("cancelled", "DependencyFailed")


def test_after_a_job_that_does_not_exist_is_refused(server):
    done = server.swell("run", "-d", "--after", "nobody", "--", "true")
    assert done.code == 125
    assert "there is no job 'nobody'" in done.stderr


def test_a_job_is_tried_again_as_often_as_it_says(server, tmp_path):
    script = f"echo try >> {tmp_path}/tries; test $(wc -l < {tmp_path}/tries) -ge 3"
    job = server.start("--retries", "5", "--", "sh", "-c", script)
    document = server.until(job, "succeeded")
    assert (document["attempts"], document["failures"]) == (3, 2)
    hopeless = server.start("--retries", "1", "--", "false")
    document = server.until(hopeless, "failed")
    assert (document["attempts"], document["failures"], document["reason"]["code"]) == (2, 1, "TaskFailed")


# -- notices, TensorBoard --------------------------------------------------------------------------------------------


def test_a_command_is_run_when_a_job_has_ended(server, tmp_path):
    pipe = Pipe(tmp_path / "told")
    notify = f"sh -c 'echo $SWELL_JOB_ID $SWELL_NAME $SWELL_JOB_STATE $SWELL_EXIT_CODE > {pipe.path}'"
    job = server.start("--name", "teller", "--notify", notify, "--", "sh", "-c", "exit 4")
    assert pipe.line() == f"{job} teller failed 4\n"


def test_an_address_gets_json_and_only_about_errors_when_told_so(server):
    got: list[dict[str, Any]] = []
    arrived = threading.Event()

    class Ear(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()
            arrived.set()

        def log_message(self, *_: object) -> None:
            pass

    ear = http.server.HTTPServer(("127.0.0.1", 0), Ear)
    threading.Thread(target=ear.serve_forever, daemon=True).start()
    try:
        address = f"http://127.0.0.1:{ear.server_port}/hook"
        well = server.start("--notify", address, "--notify-on", "error", "--", "true")
        server.until(well, "succeeded")
        job = server.start("--name", "bad", "--notify", address, "--notify-on", "error", "--", "false")
        server.until(job, "failed")
        assert arrived.wait(20)
    finally:
        ear.shutdown()
    [document] = got
    assert document.pop("ended_at")
    user = document.pop("user")
    text = f"job {job} (bad) of {user} failed: TaskFailed, exit code 1"
    facts = {"job": job, "name": "bad", "state": "failed", "exit_code": 1, "reason": "TaskFailed"}
    assert document == {**facts, "text": text}


def test_a_tensorboard_that_is_not_there_is_said_at_once_and_by_why(server, gate):
    """Incident: an address was told that nothing served; only a file in the state folder said why."""
    started = server.swell(
        *("run", "-d", "--name", "board", "--tensorboard", "runs", "--env", "PATH=/usr/bin:/bin"),
        *("--", "sh", "-c", f"read line < {gate}"),
    )
    said = "--tensorboard needs the program 'tensorboard', which is not on PATH (pip install tensorboard)"
    assert started.stderr == f"swell: job {started.id} (board): {said}; it must exist when the job starts\n"
    found = server.until_true(started.id, lambda job: job["reason"] and job["reason"]["code"] == "TaskTrouble")
    assert found["state"] == "running"
    assert found["reason"]["message"] == (
        "it is running, but not completely: TensorBoard exited: the program tensorboard is not on the PATH of the "
        "job; run: pip install tensorboard"
    )
    gate.open()
    assert server.until(started.id, "succeeded")["reason"] is None


def test_tensorboard_is_started_and_stopped_with_the_job(server, tmp_path, gate):
    """A stand-in for the real program, at its outermost seam: what is on PATH."""
    pipe = Pipe(tmp_path / "told")
    board = tmp_path / "bin/tensorboard"
    board.parent.mkdir()
    board.write_text(f'#!/bin/sh\necho $$ "$@" > {pipe.path}\nexec sleep 600\n')
    board.chmod(0o755)
    path = f"{board.parent}:/usr/bin:/bin"
    job = server.start("--tensorboard", "runs", "--env", f"PATH={path}", "--", "sh", "-c", f"read line < {gate}")
    pid, *words = pipe.line().split()
    server.until(job, "running")
    assert words[:5] == ["--logdir", str(server.folder / "runs"), "--host", "127.0.0.1", "--port"]
    assert f"tensorboard=http://127.0.0.1:{words[5]}" in server.swell("show", str(job)).stdout
    with ended(int(pid)):
        gate.open()
    server.until(job, "succeeded")
