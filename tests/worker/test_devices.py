"""What a machine offers: what is there, or declared GPUs that are labelled simulated."""

from __future__ import annotations

import os

from swell.model.cluster import Device
from swell.worker.devices import Declared, count_cpus_milli, memory_mib, offer, simulated
from swell.worker.nvml import Nvml


def test_declared_gpus_are_labelled_simulated() -> None:
    assert simulated(2, 8192) == (
        Device("sim-0", 8192, "simulated GPU", simulated=True),
        Device("sim-1", 8192, "simulated GPU", simulated=True),
    )


def test_declared_numbers_replace_what_is_there() -> None:
    node = offer(Declared(cpus_milli=64000, gpus=1, gpu_memory_mib=1024), Nvml())
    assert (node.cpus_milli, len(node.devices), node.devices[0].memory_mib) == (64000, 1, 1024)
    assert node.memory_mib == memory_mib()


def test_cpus_are_those_this_process_may_use() -> None:
    assert 0 < count_cpus_milli() <= len(os.sched_getaffinity(0)) * 1000
