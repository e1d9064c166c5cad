"""A pool on AWS Batch from the queue to the log: moto (a fake of AWS) runs the workers' commands on this machine."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.training import SDK, TRAIN
from ec2 import NOTICE, MachineData
from pools.aws import EXECUTION_ROLE, Moto, point_sdk_at
from server import SWELL, Server
from swell.pools.aws_batch.parse import LIVE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

PATIENCE_S = 120.0  # for what takes seconds; a loaded machine is slow
CPUS = "2"  # more than the server's own machine offers


@pytest.fixture
def machine_data() -> Iterator[MachineData]:
    data = MachineData()
    yield data
    data.close()


@pytest.fixture
def moto(machine_data: MachineData, monkeypatch: pytest.MonkeyPatch) -> Iterator[Moto]:
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", machine_data.url)
    moto = Moto("runs")
    point_sdk_at(moto.url, monkeypatch)
    yield moto
    moto.close()


class Story:
    """A server, and a pool of at most two workers beside it."""

    def __init__(self, folder: Path, server: Server, moto: Moto) -> None:
        self.server, self.moto, self.queue, self.folder = server, moto, moto.queue(), folder
        token = folder / "pool.token"
        token.write_text(server.swell("token", "create", "pool", "--scope", "pool").stdout)
        work = folder / "work"
        work.mkdir()
        url = str(server.state.read_json(server.state.server_file)["url"])
        told: dict[str, object] = {"server": url, "token-file": token, "name": "lab"}
        told |= {"image": "registry.lab/swell-torch:1", "job-queue": self.queue, "execution-role": EXECUTION_ROLE}
        told |= {"cpus": CPUS, "memory": "512MiB", "max-workers": "2", "idle-seconds": "2", "executable": SWELL}
        told |= {"launch-seconds": "1", "sleep-seconds": "1", "work-dir-prefix": work, "folder": folder / "pool"}
        self.words = [str(word) for name, value in told.items() for word in (f"--{name}", value)]
        self.log = folder / "pool.log"

    def start(self) -> subprocess.Popen[bytes]:
        command = [SWELL, "pool", "start", "aws-batch", "--foreground", *self.words]
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.server.environment()
            )
        self.until(lambda: self.server.swell("pool", "ps", "-o", "json").json)  # jobs are refused before
        return process

    def until(self, is_true: Callable[[], Any]) -> int:
        """How many workers there were at most meanwhile."""
        end, most = time.monotonic() + PATIENCE_S, 0
        while not is_true():
            assert time.monotonic() < end, self.said()
            most = max(most, len(self.live()))
            time.sleep(0.1)
        return most

    def said(self) -> str:
        """By the pool, the queue and each worker: why nothing happens."""
        pools = self.server.swell("pool", "ps", "-o", "json").json
        workers = [worker["id"] for pool in pools for worker in pool["workers"]]
        logs = [self.worker_log(worker) for worker in workers]
        return "\n".join([self.log.read_text(), self.server.swell("ps", "-a").stdout, *logs])

    def worker_log(self, worker: str) -> str:
        return self.server.swell("pool", "logs", worker, "--folder", str(self.folder / "pool")).stdout

    def live(self) -> list[str]:
        batch = self.moto.client("batch")
        pages = (batch.list_jobs(jobQueue=self.queue, jobStatus=status)["jobSummaryList"] for status in LIVE)
        return [job["jobId"] for page in pages for job in page]

    def shown(self, job: int) -> dict[str, Any]:
        found: dict[str, Any] = self.server.swell("show", str(job), "-o", "json").json
        return found

    def epochs(self, job: int, attempt: int) -> list[str]:
        found = self.server.swell("logs", "--attempt", str(attempt), str(job)).stdout.splitlines()
        return [line for line in found if line.startswith(("from", "epoch"))]


@pytest.fixture
def story(tmp_path: Path, moto: Moto) -> Iterator[Story]:
    with Server(tmp_path, gpus=0, cpus=1) as server:
        story = Story(tmp_path, server, moto)
        process = story.start()
        yield story
        process.terminate()
        process.wait(60)
        for job in story.live():
            moto.client("batch").terminate_job(jobId=job, reason="the test is over")
        story.until(lambda: not story.live())


def test_a_job_on_a_spot_machine_yields_when_it_is_taken_back_and_goes_on_in_another_worker(
    story: Story, machine_data: MachineData
) -> None:
    script = story.folder / "train.py"
    script.write_text(TRAIN)
    words = ("--epochs", "100000", "--env", f"PYTHONPATH={SDK}", "--", "python3", str(script))
    training = story.server.start("--cpus", CPUS, *words)
    most = story.until(lambda: len(story.epochs(training, 1)) > 3)
    worker = story.shown(training)["workers"][0]
    assert (worker["backend"], [worker["id"]]) == ("aws-batch", story.live())
    machine_data.notice = NOTICE
    story.until(lambda: story.shown(training)["attempts"][0]["outcome"])
    machine_data.notice = None
    most = max(most, story.until(lambda: len(story.epochs(training, 2)) > 3))
    first, second = story.shown(training)["attempts"][:2]
    assert (first["outcome"], first["tasks"][0]["exit_code"]) == ("yielded", 75)
    assert first["tasks"][0]["node"] != second["tasks"][0]["node"]
    assert story.epochs(training, 2)[0] == f"from {len(story.epochs(training, 1)) - 1}"
    log = story.worker_log(first["tasks"][0]["node"])
    assert "EC2 takes this machine back: terminate at 2026-11-18T10:00:00Z" in log
    story.server.swell("cancel", str(training))
    short = [story.server.start("--cpus", CPUS, "--", "true") for _ in range(3)]
    most = max(most, story.until(lambda: all(story.shown(job)["state"] == "succeeded" for job in short)))
    most = max(most, story.until(lambda: not story.live()))
    assert 1 <= most <= 2
