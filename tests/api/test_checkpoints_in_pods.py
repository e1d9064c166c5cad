"""Where jobs are pods, their checkpoints lie on volumes that the server does not see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from api.service import QuietCluster, Service
from api.trainee import Trainee


@pytest.fixture
def in_pod(tmp_path: Path) -> Iterator[Trainee]:
    service = Service(tmp_path, cluster=QuietCluster())
    yield Trainee(service, image="busybox")
    service.close()


@pytest.mark.parametrize("told", ["one", "{folder}/one", "./sub/../one"])
def test_a_checkpoint_is_believed_without_a_look_at_it(in_pod, told):
    """It was refused as one that does not exist, so no job on Kubernetes could ever yield at a checkpoint."""
    path = told.format(folder=in_pod.folder)
    assert in_pod.report(checkpoint={"epochs_done": 1, "path": path}).status == 200
    assert in_pod.shown()["training"]["checkpoint"]["path"] == "one"


@pytest.mark.parametrize("path", ["/etc/passwd", "../other/one", "..", ".", ""])
def test_one_outside_the_jobs_folder_is_refused(in_pod, path):
    words = f"the checkpoint {path!r} is outside the job's folder {in_pod.folder}; write it there"
    refused = in_pod.report(checkpoint={"epochs_done": 1, "path": path})
    assert refused.error == (422, "Rejected", words)
