"""A pool on a real Slurm: two nodes of four CPUs on this machine, no accounting. Needs root, as its nodes do."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from e2e.training import SDK
from pools.slurm_cluster import SlurmCluster
from pools.slurm_story import TRAIN, Counter, SlurmPool
from server import SWELL, Gate, Server
from swell.client.connection import path

pytestmark = pytest.mark.slow


def test_a_queue_of_thirty_jobs_drains_with_few_workers_and_goes_back_to_zero(
    server: Server, slurm: SlurmCluster, tmp_path: Path
) -> None:
    refused = server.swell("run", "-d", "--cpus", "2", "--", "true")
    assert (refused.code, "never run here" in refused.stderr) == (125, True)
    before = slurm.submitted()
    with Counter(slurm) as counter, SlurmPool(server, slurm, tmp_path, "drain", "--max-workers", "2") as pool:
        jobs = [server.client().submit(["sleep", "0.2"], cpus=2) for _ in range(30)]
        server.until_true(int(jobs[-1].id), lambda found: "pool 'drain' (slurm)" in str(found["reason"]))
        for job in jobs:
            server.until(int(job.id), "succeeded", patience_s=90)
        shown = server.swell("show", str(jobs[0].id)).stdout
        assert "slurm" in shown
        assert "pool-drain/logs/drain-" in shown
        pool.until(lambda: not slurm.jobs(), "idle workers leave", 60)
    assert counter.most <= 2
    assert slurm.submitted() - before <= 3  # one may have been idle for a moment between two jobs


def test_cancelled_in_slurm_a_worker_gives_its_job_back_and_the_next_one_resumes_it(
    server: Server, slurm: SlurmCluster, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    with SlurmPool(server, slurm, tmp_path, "cancel", "--max-workers", "1") as pool:
        words = ("--cpus", "2", "--epochs", "40", "--env", f"PYTHONPATH={SDK}", "--", "python3", str(script))
        job = server.start(*words)
        server.until_output(job, b"epoch 5\n")
        (backend_id,) = slurm.jobs()
        slurm.run("scancel", backend_id)
        server.until_true(job, lambda found: found["attempts"] == 2, patience_s=60)
        done = server.until(job, "succeeded", patience_s=90)
        assert (done["failures"], done["exit_code"]) == (0, 0)
        log = server.swell("logs", str(job)).stdout
        assert [line for line in log.splitlines() if line.startswith("epoch")][-1] == "epoch 39"
        resumed = int(log.split("from ")[-1].split()[0])
        assert resumed > 4
        assert pool.document is not None


def test_a_partition_that_starts_nobody_ends_in_a_reason_and_not_in_a_flood(
    server: Server, slurm: SlurmCluster, tmp_path: Path
) -> None:
    before = slurm.submitted()
    with SlurmPool(server, slurm, tmp_path, "closed", "--partition", "closed", "--max-workers", "5") as pool:
        job = server.start("--cpus", "2", "--", "true")
        found = server.until_true(job, lambda found: "PENDING" in str((found["reason"] or {}).get("message")))
        assert found["reason"]["code"] == "WaitingForPool"
        first = pool.until(lambda: [worker for worker in pool.document["workers"] if worker["detail"]], "why")[0]
        assert (first["state"], first["word"]) == ("pending", "PENDING")
        pool.until_it_has_looked(3)
        assert slurm.submitted() - before == 1
        assert f"(PENDING: {first['detail']})" in server.swell("why", str(job)).stdout
        server.swell("cancel", str(job))


def test_a_refused_partition_is_an_error_that_pool_ps_and_why_repeat(
    server: Server, slurm: SlurmCluster, tmp_path: Path
) -> None:
    before = slurm.submitted()
    with SlurmPool(server, slurm, tmp_path, "wrong", "--partition", "nowhere") as pool:
        job = server.start("--cpus", "2", "--", "true")
        found = pool.until(lambda: pool.document if pool.document["failed"] else None, "a failed start")
        assert found["state"] == "failing"
        assert found["problem"].endswith(
            "invalid partition specified: nowhere sbatch: error: Batch job submission "
            "failed: Invalid partition name specified"
        )
        assert "Invalid partition name specified" in server.swell("why", str(job)).stdout
        assert "Invalid partition name specified" in server.swell("pool", "ps").stdout
        server.swell("cancel", str(job))
    assert slurm.submitted() == before


def test_a_pool_that_is_killed_and_started_again_doubles_nothing(
    server: Server, slurm: SlurmCluster, tmp_path: Path
) -> None:
    gate = Gate(tmp_path / "gate")
    before = slurm.submitted()
    with SlurmPool(server, slurm, tmp_path, "again", "--max-workers", "2") as pool:
        job = server.start("--cpus", "2", "--", "sh", "-c", f"echo begun; read line < {gate}")
        again = server.swell(*pool.words)
        assert (again.code, "is already running" in again.stderr) == (2, True)
        server.until_output(job, b"begun\n")
        holder = int((pool.folder / "lock").read_text())
        os.kill(holder, signal.SIGKILL)
        pool.until(lambda: server.swell(*pool.words).code == 0, "it is started again")
        pool.until(lambda: pool.document["busy"] == 1, "it knows its worker again")
        assert slurm.submitted() - before == 1
        worker = pool.document["workers"][0]
        assert "offers its machine" in server.swell("pool", "logs", worker["id"], "--folder", str(pool.folder)).stdout
        assert (
            f"launched worker {worker['id']}"
            in server.swell("pool", "logs", "again", "--folder", str(pool.folder)).stdout
        )
        killed = server.swell("pool", "kill-worker", worker["backend_id"])
        assert killed.code == 0, killed
        server.until_true(job, lambda found: found["attempts"] == 2, patience_s=60)
        gate.open()
        server.until(job, "succeeded", patience_s=60)
    gate.close()


def test_a_command_line_of_codalab_starts_workers_that_run_jobs(
    server: Server, slurm: SlurmCluster, tmp_path: Path
) -> None:
    """Looked at once, as from cron: what its minimum lacks is started, and a second look doubles nothing."""
    token = tmp_path / "codalab.token"
    token.write_text(server.swell("token", "create", "codalab", "--scope", "pool").stdout)
    url = str(server.state.read_json(server.state.server_file)["url"])
    words = (
        *(str(Path(SWELL).with_name("cl-worker-manager")), "--once", "--verbose", "--server", url),
        *("--token-file", str(token), "--folder", str(tmp_path / "pool"), "--min-workers", "1", "--max-workers", "2"),
        *("--worker-executable", SWELL, "--worker-work-dir-prefix", str(tmp_path), "--worker-tag", "cl"),
        *("--worker-exit-after-num-runs", "1", "--worker-checkin-frequency-seconds", "2", "slurm-batch"),
        *("--partition", "main", "--gpus", "0", "--cpus", "2", "--memory-mb", "1024", "--time", "0-1"),
    )
    before = slurm.submitted()
    for _ in range(2):
        done = subprocess.run(
            words, capture_output=True, text=True, env={**os.environ, **slurm.env}, timeout=60, check=False
        )
        assert done.returncode == 0, done
    assert "--worker-tag: --tag cl" in done.stderr
    assert slurm.submitted() - before == 1
    nodes = server.client().connection
    slurm.until(lambda: "cl" in [node["tag"] for node in nodes.json("GET", path("nodes"))["nodes"]], "a worker joins")
    job = server.start("--cpus", "2", "--", "echo", "as before")
    server.until(job, "succeeded", patience_s=60)
    assert server.swell("show", str(job), "-o", "json").json["workers"][0]["backend"] == "slurm"
    slurm.until(lambda: not slurm.jobs(), "the worker leaves after its one run")
    assert server.swell("pool", "stop", "codalab-slurm-worker").code == 0
