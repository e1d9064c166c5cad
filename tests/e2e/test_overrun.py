"""Jobs that share a GPU and use more than they said: a real worker, the server's parts in this process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.service import JOB_SECRET, WORKER, Service
from nvml import Driver, process
from server import PATIENCE_S, ended
from specs import spec
from swell.controller.reporting import make_token
from swell.model.job import AttemptId, Overrun, ResizeMode, Role
from swell.model.resources import Resources
from swell.server.supervisor import own_worker
from swell.store import NewJob

pytestmark = pytest.mark.slow


class Box:
    """One GPU of 40 GiB, shared by jobs that reserve 4."""

    def __init__(self, folder: Path) -> None:
        self.driver = Driver(folder, "GPU-a")
        self.service = Service(folder / "state")
        self.service.state.worker_token.write_text(WORKER)
        words = own_worker(self.service.state, "127.0.0.1").words()
        argv = [sys.executable, "-m", "swell.worker", *words]
        self._worker = subprocess.Popen(argv, env={**os.environ, **self.driver.environment}, stderr=subprocess.DEVNULL)

    def close(self) -> None:
        for job in self.service.store.active():
            self.service.ask("POST", f"/jobs/{job.id}/cancel", {"grace_s": 0})
            self.service.until(job.id, "cancelled", "failed")
        with ended(self._worker.pid):
            self._worker.terminate()
        self._worker.wait()
        self.service.close()

    def start(self, policy: Overrun, **changes: Any) -> int:
        command = ("sh", "-c", "echo $$; exec sleep 1000")
        roles = (Role("worker", command, Resources(100, 0, 0, 4096), 1),)
        shares = spec(name="shares", roles=roles, grace_s=5.0, on_overrun=policy, **changes)
        [record] = self.service.controller.submit([NewJob(shares, "ann", dict(os.environ))]).result()
        self.service.until(record.id, "running")
        return record.id

    def uses(self, *used: tuple[int, int]) -> None:
        """Each of these jobs so many MiB."""
        self.driver.change("GPU-a", processes=[process(self._pid(job), mib) for job, mib in used])

    def _pid(self, job: int) -> int:
        attempt = self.service.store.job(job).attempts
        log = self.service.state.tasks / f"{job}.{attempt}" / "0" / "log"
        end = time.monotonic() + PATIENCE_S
        while not log.read_bytes().endswith(b"\n"):
            assert time.monotonic() < end, f"job {job} never said who it is"
            time.sleep(0.01)
        return int(log.read_text())

    def shown(self, job: int) -> dict[str, Any]:
        found: dict[str, Any] = self.service.ask("GET", f"/jobs/{job}/show").json
        return found

    def until_event(self, job: int, kind: str) -> dict[str, Any]:
        """What it says, when it is there; bounded."""
        end = time.monotonic() + PATIENCE_S
        while True:
            found = [event["detail"] for event in self.shown(job)["events"] if event["kind"] == kind]
            if found:
                return dict(found[0])
            assert time.monotonic() < end, f"job {job} has no event {kind}"
            time.sleep(0.05)


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path)
    yield made
    made.close()


def test_a_job_that_overruns_is_warned_and_its_neighbour_left_alone(box: Box) -> None:
    greedy, modest = box.start(Overrun.WARN), box.start(Overrun.STOP)
    box.uses((greedy, 5000), (modest, 4096))
    assert box.until_event(greedy, "GpuMemoryOverrun") == {"reserved_mib": 4096, "used_mib": 5000, "policy": "warn"}
    memory = [box.shown(job)["gpu_memory"] for job in (greedy, modest)]
    assert [(one["reserved_mib"], one["peak_mib"]) for one in memory] == [(5504, 5000), (4096, 4096)]
    assert [box.shown(job)["state"] for job in (greedy, modest)] == ["running", "running"]


def test_a_job_that_overruns_may_be_stopped(box: Box) -> None:
    job = box.start(Overrun.STOP, retries=2)
    box.uses((job, 5000))
    found = box.service.until(job, "failed")
    assert found["reason"] == {
        "code": "GpuMemoryOverrun",
        "message": "it used 5000 MiB of the GPU it shared but had reserved 4096 MiB, so it was stopped",
        "evidence": {"job": job, "reserved_mib": 4096, "used_mib": 5000, "needs_mib": 5504},
        "next": "reserve more (--gpu-memory 5504MiB), or let it continue with a warning",
    }


def test_a_job_that_overruns_may_yield_and_comes_back_with_more(box: Box) -> None:
    job = box.start(Overrun.YIELD, resize=ResizeMode.IMMEDIATE)
    box.uses((job, 5000))
    box.service.until_true(job, lambda found: found["attempts"] == 2 and found["state"] == "running")
    box.uses((job, 5100))
    found = box.shown(job)
    assert (found["gpu_memory"]["reserved_mib"], found["preemptions"]) == (5504, 1)
    assert [attempt["outcome"] for attempt in found["attempts"]] == ["yielded", None]


def test_what_it_needs_is_learnt_when_it_has_finished_an_epoch(box: Box) -> None:
    job = box.start(Overrun.WARN)
    box.uses((job, 2000))
    token = make_token(JOB_SECRET, AttemptId(job, 1), time.time() + 3600)
    report = {"rank": 0, "begun": 2, "epochs_done": 1, "memory_mib": 1000.0}
    box.service.until_true(job, lambda _: box.shown(job)["gpu_memory"]["peak_mib"] == 2000)
    answer = box.service.ask("POST", f"/attempts/{job}.1/report", report, token=token)
    assert answer.status == 200, answer.data
    assert box.until_event(job, "GpuMemoryMeasured") == {"reserved_mib": 2304, "before_mib": 4096, "peak_mib": 2000}
