"""A pool on a real Slurm that loses a node. In a file of its own: a lease and a minute are waited for."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.training import SDK
from pools.slurm_cluster import SlurmCluster
from pools.slurm_story import TRAIN, SlurmPool
from server import Server

pytestmark = pytest.mark.slow


def test_a_node_that_is_lost_gives_its_job_to_another_after_the_lease(
    server: Server, slurm: SlurmCluster, tmp_path: Path
) -> None:
    """slurmd and all its processes are killed: nobody has seen the task end, so its lease is waited for."""
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    with SlurmPool(server, slurm, tmp_path, "lost", "--max-workers", "2") as pool:
        words = ("--cpus", "2", "--epochs", "60", "--env", f"PYTHONPATH={SDK}", "--", "python3", str(script))
        job = server.start(*words)
        server.until_output(job, b"epoch 5\n")
        node = slurm.run("squeue", "--noheader", "--format=%N").strip()
        slurm.kill_node(node)
        slurm.until(lambda: set(slurm.jobs().values()) == {"PENDING"}, "Slurm queues it again")
        slurm.run("scontrol", "update", f"JobId={next(iter(slurm.jobs()))}", "StartTime=now")  # not in two minutes
        done = server.until(job, "succeeded", patience_s=150)
        assert done["attempts"] == 2
        log = server.swell("logs", str(job)).stdout
        assert int(log.split("from ")[-1].split()[0]) > 4
        slurm.start_node(node)
        pool.until(lambda: not slurm.jobs(), "idle workers leave", 60)
