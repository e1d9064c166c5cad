"""Who has too much on the disk is told so by every way in, and is taken again after making room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from api.service import Service, submission
from swell.config import Config, UserLimits


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path / "state", config=Config(limits=UserLimits(disk_mib=1)))
    yield made
    made.close()


def test_a_submission_above_the_limit_is_refused_and_taken_after_a_delete(service: Service) -> None:
    job = service.submit()
    service.worker.begin(job)
    folder = service.state.checkpoints / str(job)
    folder.mkdir()
    (folder / "model").write_bytes(b"x" * 2 * 1024**2)
    service.worker.end(job)
    service.disk.count()
    said = (
        f"'ann' has 2.0 MiB of logs and checkpoints of at most 1 MiB, most of it in job {job} (2.0 MiB), so no "
        "more jobs are accepted; delete jobs that have ended, with their logs and checkpoints "
        f"(swell delete {job}), or remove files"
    )
    assert service.ask("POST", "/jobs", submission()).error == (429, "TooMany", said)
    told = {"user": "ann", "disk_mib": 2.0, "disk_mib_max": 1, "largest": [{"job": job, "mib": 2.0}]}
    assert service.ask("GET", "/usage").json["disk"] == [told]
    assert service.ask("GET", "/usage?all_users=1").json["disk"] == [told]
    assert service.ask("DELETE", f"/jobs/{job}").status == 204
    assert service.ask("GET", "/usage").json["disk"] == [{**told, "disk_mib": 0.0, "largest": []}]
    service.submit()


def test_a_job_that_waits_is_held_with_the_reason_until_there_is_room_again(service: Service) -> None:
    first = service.submit(gpus=4)
    service.worker.begin(first)
    second = service.submit(gpus=4)
    (service.state.checkpoints / str(first)).mkdir()
    model = service.state.checkpoints / str(first) / "model"
    model.write_bytes(b"x" * 2 * 1024**2)
    service.disk.count()
    service.worker.end(first)
    # The pass that counts tells the sum before it tells which job has most of it.
    held = service.until_true(second, lambda job: bool(job["reason"]["evidence"].get("largest")))["reason"]
    assert held["code"] == "UserLimit"
    assert held["evidence"] == {"user": "ann", "disk_mib": 2.0, "disk_mib_max": 1, "largest": [first]}
    model.unlink()
    service.disk.count()
    service.worker.begin(second)
