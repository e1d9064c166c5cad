"""A job is kept to what it asked for: memory, processes and its own GPUs, by a real server and worker of root's."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from nvml import Driver
from server import Server, up_before_and_empty_after

pytestmark = pytest.mark.slow

MAJOR = 195  # of NVIDIA's GPUs; without a driver what may be opened has no such device behind it


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what may be opened: nvidia0 and nvidia1."""
    return tmp_path_factory.mktemp("devices")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, devices: Path) -> Iterator[Server]:
    assert os.geteuid() == 0, "control groups are root's to make: sudo make test"
    driver = Driver(devices, "GPU-a", "GPU-b")
    for minor, uuid in enumerate(("GPU-a", "GPU-b")):
        driver.change(uuid, minor=minor)
        os.mknod(devices / f"nvidia{minor}", 0o666 | stat.S_IFCHR, os.makedev(MAJOR, minor))
    with Server(tmp_path_factory.mktemp("limits"), gpus=None, env=driver.environment) as one:
        yield one


@pytest.fixture
def server(shared: Server) -> Iterator[Server]:
    yield from up_before_and_empty_after(shared)


def test_a_job_over_its_memory_fails_and_is_told_so(server: Server) -> None:
    done = server.swell("run", "--memory", "64MiB", "--", "python3", "-c", "bytearray(300 << 20)")
    assert done.code != 0
    reason = server.client().job(done.job).document["reason"]
    assert (reason["code"], reason["evidence"]["memory_mib"], reason["evidence"]["used_mib"]) == ("OutOfMemory", 64, 64)
    assert reason["message"] == ("task 0 was killed because it needed more memory than its limit of 64 MiB")
    assert "give it more memory (--memory)" in server.swell("why", str(done.job)).stdout


def test_a_job_that_names_no_memory_may_take_what_there_is(server: Server) -> None:
    assert server.swell("run", "--", "python3", "-c", "bytearray(300 << 20)").code == 0


def test_a_worker_that_was_killed_meanwhile_still_knows_what_a_job_died_of(server: Server, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    script = f"open({str(gate)!r}).read(); bytearray(300 << 20)"
    job = server.start("--memory", "64MiB", "--", "python3", "-c", script)
    server.until(job, "running")
    server.kill("worker")
    gate.write_text("go")
    assert server.until(job, "failed")["reason"]["code"] == "OutOfMemory"


def test_a_fork_bomb_ends_at_the_configured_number_of_processes(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        server.swell("down")
        config = json.loads(server.state.config.read_text())
        server.state.config.write_text(json.dumps({**config, "task_processes_max": 20}))
        script = "for n in $(seq 60); do sleep 30 & done; true"
        done = server.swell("run", "--", "sh", "-c", script)
        assert "Cannot fork" in done.stdout


def test_a_task_opens_its_own_gpus_and_no_others(server: Server, devices: Path) -> None:
    script = f'echo "$CUDA_VISIBLE_DEVICES"; cat {devices}/nvidia0; cat {devices}/nvidia1; true'
    allowed, denied = "No such device or address", "Operation not permitted"
    found = [
        server.swell("run", *asked, "--", "sh", "-c", script).stdout for asked in (("--gpus", "1"), ("--gpus", "2"), ())
    ]
    lines = [[line.rpartition(": ")[2] for line in one.splitlines()] for one in found]
    assert lines == [["GPU-a", allowed, denied], ["GPU-a,GPU-b", allowed, allowed], ["", denied, denied]]


def test_nodes_and_doctor_say_that_all_is_enforced(server: Server) -> None:
    server.swell("run", "--", "true")
    assert [node["not_enforced"] for node in server.client().nodes()] == [[]]
    assert "limits on memory, CPUs, GPUs" in server.swell("doctor").stdout


def test_nothing_of_a_job_is_left_in_the_control_groups(server: Server) -> None:
    job = server.swell("run", "--memory", "64MiB", "--", "sh", "-c", "setsid sleep 300 & exit 0").job
    server.until(job, "succeeded")
    left = [path for path in Path("/sys/fs/cgroup").glob(f"**/{job}.1.0") if path.parent.name in noted(server)]
    assert left == []


def noted(server: Server) -> set[str]:
    return {Path(line).name for line in (server.state.tasks / ".cgroups").read_text().splitlines()}
