"""What GPUs really do: a real server and worker, and a driver that says what the test wants."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from prometheus_client.parser import text_string_to_metric_families

from nvml import Driver, process
from server import Gate, Server

pytestmark = pytest.mark.slow

T = TypeVar("T")
PATIENCE_S = 30.0
#: says who it is, and waits for somebody to write a line
WAITING = "echo pid $$; read line < {gate}"
#: the same from a child that has left its session: only the marks in its environment are left
DAEMON = """
import os, sys
if os.fork():
    sys.exit()
os.setsid()
print("pid", os.getpid(), flush=True)
"""


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tmp_path, "GPU-a", "GPU-b")


@pytest.fixture
def box(tmp_path: Path, driver: Driver) -> Iterator[Server]:
    """A machine with two GPUs, as far as its driver is to be believed."""
    with Server(tmp_path, gpus=None, env=driver.environment) as one:
        yield one


def until(look: Callable[[], T], is_so: Callable[[T], bool]) -> T:
    """What it is when it is so; bounded."""
    end = time.monotonic() + PATIENCE_S
    while not is_so(found := look()):
        assert time.monotonic() < end, f"after {PATIENCE_S} s it is still {found}"
        time.sleep(0.1)
    return found


def gpus(box: Server) -> dict[str, tuple[bool, int]]:
    """Watched, and what outsiders use."""
    nodes = box.client().nodes()
    return {gpu["id"]: (gpu["watched"], gpu["outsiders_mib"]) for node in nodes for gpu in node["gpus"]}


def memory(box: Server, job: int) -> dict[str, Any]:
    found: dict[str, Any] = box.client().show(str(job))["gpu_memory"]
    return found


def metric(box: Server, name: str, **labels: str) -> float:
    """Of the one node, as Prometheus would read it."""
    url = box.state.read_json(box.state.server_file)["url"]
    request = urllib.request.Request(
        f"{url}/metrics", headers={"Authorization": f"Bearer {box.state.token.read_text().strip()}"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    [found] = [sample.value for sample in samples if labels.items() <= sample.labels.items()]
    return float(found)


def pid_of(box: Server, job: int) -> int:
    said = box.until_output(job, b"\n")
    return int(said.split()[1])


def job_on_gpu(box: Server, gate: Gate, *options: str) -> int:
    return box.start("--gpus", "1", *options, "--", "sh", "-c", WAITING.format(gate=gate))


def test_gpus_that_outsiders_use_are_told(box: Server, driver: Driver) -> None:
    until(lambda: gpus(box), lambda found: found == {"GPU-a": (True, 0), "GPU-b": (True, 0)})
    with subprocess.Popen(["sleep", "100"]) as outsider:
        try:
            driver.change("GPU-b", used_mib=3000, utilization=50, processes=[process(outsider.pid, 2900)])
            until(lambda: gpus(box), lambda found: found == {"GPU-a": (True, 0), "GPU-b": (True, 3072)})
            table = box.swell("nodes", "-o", "wide").stdout
            assert "GPU-b  NVIDIA A100, 40960 MiB: processes outside Swell 3072 MiB" in table
            assert metric(box, "swell_gpus", state="outsiders") == 1.0
            assert 0 < metric(box, "swell_gpu_utilization_ratio") <= 0.25  # half of one of two, of late
        finally:
            outsider.kill()
    driver.change("GPU-b", processes=[])
    until(lambda: gpus(box), lambda found: found == {"GPU-a": (True, 0), "GPU-b": (True, 0)})


def test_a_gpu_that_falls_off_the_bus_is_not_offered_and_its_task_is_left_alone(
    box: Server, driver: Driver, gate: Gate
) -> None:
    """It was offered for as long as its worker lived: whatever was started there failed."""
    until(lambda: gpus(box), lambda found: set(found) == {"GPU-a", "GPU-b"})
    on_a = job_on_gpu(box, gate)
    pid_of(box, on_a)
    driver.change("GPU-a", broken=True)
    until(lambda: gpus(box), lambda found: set(found) == {"GPU-b"})
    wide = box.start("--gpus", "2", "--", "true")
    why = until(lambda: box.client().why(wide), lambda why: why is not None and why.code == "WorkerUnreachable")
    assert why is not None
    assert why.message == ("it wants 1 CPU, 2 GPUs, which only fits on GPUs that do not respond: GPU-a")
    assert box.until(on_a, "running")["attempts"] == 1
    assert (metric(box, "swell_gpus", state="free"), box.swell("nodes").code) == (1.0, 0)
    driver.change("GPU-a", broken=False)
    until(lambda: gpus(box), lambda found: set(found) == {"GPU-a", "GPU-b"})
    gate.open()
    box.until(on_a, "succeeded")
    box.until(wide, "succeeded")
    driver.say(is_broken=True)
    until(lambda: gpus(box), lambda found: found == {})


def test_memory_is_counted_for_the_job_whose_process_uses_it(box: Server, driver: Driver, gate: Gate) -> None:
    one, two = job_on_gpu(box, gate), job_on_gpu(box, gate)
    driver.change("GPU-a", processes=[process(pid_of(box, one), 1000)])
    driver.change("GPU-b", processes=[process(pid_of(box, two), 2000)])
    until(lambda: (memory(box, one)["now_mib"], memory(box, two)["now_mib"]), lambda found: found == (1000, 2000))
    assert metric(box, "swell_gpu_memory_bytes", kind="used") == 3000 * 2**20
    assert memory(box, one) == {"reserved_mib": None, "level": "watched", "now_mib": 1000, "peak_mib": 1000}
    driver.change("GPU-b", processes=[process(pid_of(box, two), 500)])
    until(lambda: memory(box, two), lambda found: (found["now_mib"], found["peak_mib"]) == (500, 2000))
    assert "GPU memory: whole GPUs (watched), 500 MiB now, 2000 MiB peak" in box.swell("show", str(two)).stdout
    assert {outsiders for _, outsiders in gpus(box).values()} == {0}
    gate.open()
    gate.open()


def test_a_process_that_left_its_session_is_still_its_jobs(box: Server, driver: Driver, gate: Gate) -> None:
    """It forks, makes a session of its own and is orphaned, as servers of data loaders do."""
    script = DAEMON + f"open({str(gate)!r}).readline()\n"
    hold = f'"$0" -c "$1" & wait; read line < {gate}'
    job = box.start("--gpus", "1", "--", "sh", "-c", hold, sys.executable, script)
    pid = pid_of(box, job)
    assert os.getsid(pid) == pid
    driver.change("GPU-a", processes=[process(pid, 1500)])
    until(lambda: memory(box, job)["now_mib"], lambda found: found == 1500)
    assert gpus(box)["GPU-a"] == (True, 0)
    gate.open()
    gate.open()


def test_a_driver_that_talks_nonsense_and_fails_and_comes_back(box: Server, driver: Driver, gate: Gate) -> None:
    job = job_on_gpu(box, gate)
    pid = pid_of(box, job)
    driver.change("GPU-a", processes=[process(pid, 1000)])
    until(lambda: memory(box, job)["now_mib"], lambda found: found == 1000)
    driver.change("GPU-a", processes=[{"pid": pid, "used_bytes": 2**64 - 1}, process(2**30, 5000)])
    until(lambda: gpus(box)["GPU-a"], lambda found: found == (False, 0))
    assert memory(box, job) == {"reserved_mib": None, "level": "accounted", "now_mib": None, "peak_mib": 1000}
    driver.say(is_broken=True)
    log = box.state.worker_log
    until(log.read_text, lambda text: "NVML says Driver Not Loaded" in text)
    driver.change("GPU-a", processes=[process(pid, 1800)])
    until(lambda: memory(box, job)["now_mib"], lambda found: found == 1800)
    assert "Traceback" not in log.read_text()
    gate.open()
    assert box.until(job, "succeeded")["exit_code"] == 0


def test_a_machine_whose_driver_does_not_answer_runs_jobs_without_gpus(tmp_path: Path) -> None:
    driver = Driver(tmp_path, "GPU-a")
    driver.say(is_broken=True)
    with Server(tmp_path, gpus=None, env=driver.environment) as box:
        assert (gpus(box), box.swell("run", "--", "true").code) == ({}, 0)


# -- idle GPUs -----------------------------------------------------------------------------------------------

IDLE = ("--min-gpu-utilization", "10", "--utilization-window", "10s")


def test_a_job_whose_gpus_idle_is_stopped_and_a_busy_one_is_not(box: Server, driver: Driver, gate: Gate) -> None:
    one, two = job_on_gpu(box, gate, *IDLE), job_on_gpu(box, gate, *IDLE)
    placed = {box.client().show(str(job))["attempts"][0]["placements"][0]["devices"][0]: job for job in (one, two)}
    driver.change("GPU-b", utilization=10)
    found = box.until(placed["GPU-a"], "failed")
    assert found["reason"]["code"] == "GpuIdle"
    assert found["reason"]["message"] == ("none of its GPUs reached 10 % utilization within 10 s, so it was stopped")
    busy = box.client().show(str(placed["GPU-b"]))
    assert (busy["state"], busy["idle_policy"]["quiet_s"]) == ("running", 0.0)
    gate.open()
    box.until(placed["GPU-b"], "succeeded")


def test_on_simulated_gpus_idling_is_not_measured_and_show_says_so(server: Server, gate: Gate) -> None:
    job = job_on_gpu(server, gate, *IDLE)
    server.until(job, "running")
    shown = server.swell("show", str(job)).stdout
    assert "stopped if no GPU reaches 10 % within 10 s; not measured on simulated GPUs" in shown
    assert "whole GPUs (accounted)" in shown
    gate.open()
    server.until(job, "succeeded")
