"""A pool on a real Slurm with accounting: slurmdbd on a MariaDB. Its queue forgets a job two seconds after its end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pools.slurm_cluster import SlurmCluster
from pools.slurm_story import Counter, SlurmPool
from server import Gate, Server

pytestmark = [pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with SlurmCluster(tmp_path_factory.mktemp("slurm"), has_accounting=True) as cluster:
        yield cluster


def test_a_queue_of_thirty_jobs_drains_and_goes_back_to_zero(
    server: Server, slurm: SlurmCluster, tmp_path: Path
) -> None:
    before = slurm.submitted()
    with Counter(slurm) as counter, SlurmPool(server, slurm, tmp_path, "drain", "--max-workers", "2") as pool:
        jobs = [server.client().submit(["sleep", "0.2"], cpus=2) for _ in range(30)]
        for job in jobs:
            server.until(int(job.id), "succeeded", patience_s=90)
        pool.until(lambda: not slurm.jobs(), "idle workers leave", 60)
    assert counter.most <= 2
    ended = slurm.run("sacct", "--noheader", "--allocations", "--format=JobName%40,State").split("\n")
    assert 1 <= len([line for line in ended if "drain-" in line and "COMPLETED" in line]) <= slurm.submitted() - before


def test_how_a_worker_ended_that_the_queue_has_forgotten_is_in_the_accounting(
    server: Server, slurm: SlurmCluster, tmp_path: Path
) -> None:
    """The pool is dead while its worker ends: only slurmdbd still knows of it."""
    gate = Gate(tmp_path / "gate")
    with SlurmPool(server, slurm, tmp_path, "late", "--max-workers", "1", "--lease-seconds", "600") as pool:
        job = server.start("--cpus", "2", "--", "sh", "-c", f"echo begun; read line < {gate}")
        server.until_output(job, b"begun\n")
        [first] = pool.document["workers"] if pool.document else []
        os.kill(int((pool.folder / "lock").read_text()), signal.SIGKILL)
        slurm.run("scancel", "--signal=KILL", "--full", first["backend_id"])
        slurm.until(lambda: not slurm.run("squeue", "--noheader", "--states=all").strip(), "the queue has forgotten it")
        pool.until(lambda: server.swell(*pool.words).code == 0, "it is started again")
        known = pool.until(lambda: _worker(pool, first["id"], "ended"), "it has heard of the end")
        assert (known["backend_id"], known["word"]) == (first["backend_id"], "CANCELLED")
        gate.open()
        server.swell("cancel", str(job))
    gate.close()


def _worker(pool: SlurmPool, name: str, state: str) -> dict[str, str] | None:
    found = [one for one in (pool.document or {"workers": []})["workers"] if one["id"] == name]
    return found[0] if found and found[0]["state"] == state else None
