"""The secret of jobs' tokens is replaced while a job runs, and the server is killed and started again."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from server import PATIENCE_S, Gate, Server

pytestmark = pytest.mark.slow

REPORTS = """
import sys, swell_sdk
run = swell_sdk.attach()
for loss in (1.0, 0.5):
    run.metrics(loss=loss)
    run.tell()
    print("ready", loss, flush=True)
    sys.stdin.readline()
"""


def test_a_running_job_reports_on_and_the_old_secret_is_forgotten_when_it_has_ended(tmp_path: Path):
    script = tmp_path / "train.py"
    script.write_text(REPORTS)
    gate = Gate(tmp_path / "gate")
    with Server(tmp_path) as server:
        old = server.state.job_secret.read_text().strip()
        job = server.start("--", "sh", "-c", f"exec {sys.executable} {script} < {gate}")
        server.until_true(job, lambda found: found["metrics"] == {"loss": 1.0})
        done = server.swell("token", "rotate-job-secret")
        assert done.stderr == (
            "swell: jobs that start from now on get tokens signed with a new secret; 1 running job(s) keep "
            "theirs until "
            "they end\n"
        )
        assert server.state.job_secret.read_text().strip() != old
        server.kill()
        server.up()
        assert old in server.state.retired_job_secrets.read_text()
        gate.open()
        server.until_true(job, lambda found: found["metrics"] == {"loss": 0.5})
        gate.open()
        gate.close()
        server.until(job, "succeeded")
        until = time.monotonic() + PATIENCE_S
        while old in server.state.retired_job_secrets.read_text():  # within ten seconds
            assert time.monotonic() < until
            time.sleep(0.1)
