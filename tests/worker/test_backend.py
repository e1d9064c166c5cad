"""What a worker says of the batch system or cluster that it runs in."""

from __future__ import annotations

from pathlib import Path

import pytest

from swell.model.cluster import BackendJob
from swell.worker.backend import find_backend

SLURM = {"SLURM_JOB_ID": "4711", "SLURM_SUBMIT_DIR": "/home/ann"}
ARRAY = {**SLURM, "SLURM_ARRAY_JOB_ID": "4700", "SLURM_ARRAY_TASK_ID": "3"}
AWS = {"AWS_BATCH_JOB_ID": "8b0a", "AWS_REGION": "us-east-1"}
AZURE = {
    "AZ_BATCH_TASK_ID": "w1",
    "AZ_BATCH_JOB_ID": "workers",
    "AZ_BATCH_ACCOUNT_URL": "https://lab.westeurope.batch.azure.com/",
}
POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "swell-worker-1"}


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({}, None),
        ({"HOSTNAME": "desk"}, None),
        (SLURM, BackendJob("slurm", "4711", "/home/ann/slurm-4711.out")),
        (ARRAY, BackendJob("slurm", "4700_3", "/home/ann/slurm-4700_3.out")),
        ({"SLURM_JOB_ID": "1"}, BackendJob("slurm", "1")),
        ({**SLURM, "SWELL_BACKEND_LOG": "/logs/w1.log"}, BackendJob("slurm", "4711", "/logs/w1.log")),
        (
            AWS,
            BackendJob(
                "aws-batch", "8b0a", "https://console.aws.amazon.com/batch/home?region=us-east-1#jobs/detail/8b0a"
            ),
        ),
        (
            AZURE,
            BackendJob(
                "azure-batch",
                "workers/w1",
                "https://lab.westeurope.batch.azure.com/jobs/workers/tasks/w1/files/stderr.txt",
            ),
        ),
        (POD, BackendJob("kubernetes", "lab/swell-worker-1", "kubectl logs -n lab swell-worker-1")),
        ({"SLURM_JOB_ID": "1\n2", "SWELL_BACKEND_LOG": "x" * 5000}, BackendJob("slurm", "12", "x" * 1000)),
    ],
)
def test_a_worker_says_which_job_task_or_pod_it_runs_in(
    tmp_path: Path, environ: dict[str, str], found: BackendJob | None
) -> None:
    namespace = tmp_path / "namespace"
    namespace.write_text("lab\n")
    assert find_backend(environ, namespace_file=namespace) == found


def test_a_pod_without_a_service_account_is_looked_for_in_the_namespace_it_names(tmp_path: Path) -> None:
    environ = {**POD, "POD_NAMESPACE": "jobs"}
    found = find_backend(environ, namespace_file=tmp_path / "none")
    assert found == BackendJob("kubernetes", "jobs/swell-worker-1", "kubectl logs -n jobs swell-worker-1")
