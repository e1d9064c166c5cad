"""`mpirun` over two workers: Debian's Open MPI, two `swell worker` processes, no ssh."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from remote_worker import RemoteWorker, processes_of
from server import Server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("mpirun") is None, reason="needs Open MPI (Debian's openmpi-bin)"),
]

AS_ROOT = ("--env", "OMPI_ALLOW_RUN_AS_ROOT=1", "--env", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
POLITE = ("--env", "OMPI_MCA_mpi_yield_when_idle=1")  # four ranks that wait by computing, on two cores
TWO = ("--tasks", "2", "--cpus", "2", "--mpi", *AS_ROOT, *POLITE)  # no machine has room for both
WHO = 'echo "rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE in task $SWELL_TASK_INDEX on node $NODE_RANK"'
MELT = """\
units lj
lattice fcc 0.8442
region box block 0 4 0 4 0 4
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
fix 1 all nve
run 5
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Its own machine has no room for any task."""
    folder = tmp_path_factory.mktemp("mpi")
    with (
        Server(folder, gpus=0, cpus=1) as server,
        RemoteWorker(server, folder, "first", "--cpus", "2", "--address", "127.0.0.2"),
        RemoteWorker(server, folder, "second", "--cpus", "2", "--address", "127.0.0.3"),
    ):
        yield server


def last_tasks(server: Server, job: int) -> list[tuple[str, int]]:
    """Node and exit code of each, in the order of ranks."""
    found: list[dict[str, Any]] = server.swell("show", str(job), "-o", "json").json["attempts"][-1]["tasks"]
    return [(task["node"], task["exit_code"]) for task in sorted(found, key=lambda task: task["index"])]


def said_by_first(server: Server, job: int) -> list[str]:
    return sorted(server.client().read_log(job, rank=0).data.decode().splitlines())


def test_mpirun_starts_a_rank_for_each_cpu_of_each_task_inside_of_that_task(server: Server) -> None:
    done = server.swell("run", *TWO, "--", "mpirun", "sh", "-c", WHO)
    assert done.code == 0, done
    expected = [f"rank {rank} of 4 in task {rank // 2} on node {rank // 2}" for rank in range(4)]
    assert said_by_first(server, done.job) == expected
    assert sorted(last_tasks(server, done.job)) == [("first", 0), ("second", 0)]
    assert processes_of(server, done.job, 1) == []


@pytest.mark.skipif(shutil.which("lmp") is None, reason="needs LAMMPS (Debian's lammps)")
def test_the_ranks_of_two_machines_compute_one_thing_together(server: Server, tmp_path: Path) -> None:
    """Incident: ranks of two tasks on one machine gave their shared memory the same names, and crashed."""
    script = tmp_path / "melt.in"
    script.write_text(MELT)
    done = server.swell("run", *TWO, "--", "mpirun", "lmp", "-log", "none", "-in", str(script))
    assert done.code == 0, done
    assert [line.split(" on ")[1] for line in said_by_first(server, done.job) if line.startswith("Loop time")] == [
        "4 procs for 5 steps with 256 atoms"
    ]


def test_the_exit_code_of_a_rank_elsewhere_is_the_jobs_and_ends_the_other_ranks(server: Server) -> None:
    done = server.swell("run", *TWO, "--", "mpirun", "sh", "-c", "[ $OMPI_COMM_WORLD_RANK != 3 ] || exit 7; sleep 1000")
    assert done.code == 7, done
    assert sorted(code for _, code in last_tasks(server, done.job)) == [0, 7]
    assert processes_of(server, done.job, 1) == []


def test_a_cancelled_job_leaves_no_process_of_a_rank_on_any_machine(server: Server) -> None:
    job = server.start(*TWO, "--grace", "5s", "--", "mpirun", "sh", "-c", f"{WHO}; sleep 1000")
    for rank in range(4):
        server.until_output(job, b"rank %d of 4" % rank)
    assert len(processes_of(server, job, 1)) > 4
    server.swell("cancel", str(job))
    server.until(job, "cancelled")
    assert processes_of(server, job, 1) == []


def test_the_ranks_of_a_gang_find_each_machines_address_and_slots_in_a_file(server: Server) -> None:
    done = server.swell("run", "--tasks", "4", "--cpus", "1", "--", "sh", "-c", 'cat "$SWELL_HOSTFILE"')
    assert done.code == 0, done
    addresses = {"first": "127.0.0.2", "second": "127.0.0.3", os.uname().nodename: "127.0.0.1"}
    nodes = [node for node, _ in last_tasks(server, done.job)]
    expected = [f"{addresses[node]} slots={nodes.count(node)}\n" for node in dict.fromkeys(nodes)]
    for rank in range(4):
        assert server.client().read_log(done.job, rank=rank).data.decode() == "".join(expected)


def test_an_mpijob_that_no_machine_has_room_for_runs_on_several(server: Server, tmp_path: Path) -> None:
    def replicas(count: int, *command: str) -> dict[str, Any]:
        size = {"requests": {"cpu": "1"}}
        container = {"name": "mpi", "command": list(command) or ["sshd"], "resources": size}
        return {"replicas": count, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}

    launcher, workers = replicas(1, "mpirun", "sh", "-c", WHO), replicas(3)
    document = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "pi"},
        "spec": {"slotsPerWorker": 2, "mpiReplicaSpecs": {"Launcher": launcher, "Worker": workers}},
    }
    file = tmp_path / "pi.yaml"
    file.write_text(yaml.safe_dump(document))
    submitted = server.swell("submit", str(file))
    assert submitted.code == 0, submitted
    job = int(submitted.stdout)
    server.until(job, "succeeded")
    found = [line.partition(" on node")[0] for line in said_by_first(server, job)]
    assert found == [f"rank {rank} of 6 in task {rank // 2 + 1}" for rank in range(6)]
    assert len({node for node, _ in last_tasks(server, job)}) > 1
