"""What a machine offers: GPUs by UUID from NVML, or declared ones that are labelled simulated."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from swell.model.cluster import Device
from swell.worker.devices import Declared, count_cpus_milli, memory_mib, offer, simulated

NVML = """
class NVMLError(Exception): pass
class Memory: total = 40 << 30
def nvmlInit():
    if {broken!r} == "init": raise NVMLError("driver not loaded")
def nvmlShutdown(): pass
def nvmlDeviceGetCount(): return 3
def nvmlDeviceGetHandleByIndex(n):
    if n == 1 and {broken!r} == "one": raise NVMLError("GPU is lost")
    return n
def nvmlDeviceGetUUID(n): return f"GPU-{{n}}"
def nvmlDeviceGetName(n): return b"NVIDIA A100"
def nvmlDeviceGetMemoryInfo(n): return Memory
"""


def found_with(tmp_path: Path, broken: str) -> list[list[object]]:
    """NVML is replaced where it is loaded from, as the module of that name; nothing of ours is patched."""
    (tmp_path / "pynvml.py").write_text(NVML.format(broken=broken))
    script = (
        "import json; from swell.worker.devices import find_gpus\n"
        "print(json.dumps([[d.id, d.memory_mib, d.model, d.simulated] for d in find_gpus()]))"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    result: list[list[object]] = json.loads(done.stdout)
    return result


def test_gpus_are_found_by_uuid_with_their_memory(tmp_path: Path) -> None:
    expected = [[f"GPU-{n}", 40960, "NVIDIA A100", False] for n in range(3)]
    assert found_with(tmp_path, "") == expected


def test_a_gpu_that_does_not_answer_is_not_offered_and_the_others_are(tmp_path: Path) -> None:
    assert [gpu[0] for gpu in found_with(tmp_path, "one")] == ["GPU-0", "GPU-2"]


def test_a_machine_without_a_driver_offers_no_gpu(tmp_path: Path) -> None:
    assert found_with(tmp_path, "init") == []


def test_declared_gpus_are_labelled_simulated() -> None:
    assert simulated(2, 8192) == (
        Device("sim-0", 8192, "simulated GPU", simulated=True),
        Device("sim-1", 8192, "simulated GPU", simulated=True),
    )


def test_declared_numbers_replace_what_is_there() -> None:
    node = offer(Declared(cpus_milli=64000, gpus=1, gpu_memory_mib=1024))
    assert (node.cpus_milli, len(node.devices), node.devices[0].memory_mib) == (64000, 1, 1024)
    assert node.memory_mib == memory_mib()


def test_cpus_are_those_this_process_may_use() -> None:
    assert 0 < count_cpus_milli() <= len(os.sched_getaffinity(0)) * 1000
