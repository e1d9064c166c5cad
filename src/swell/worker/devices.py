"""What does this machine offer?

CPUs this process may use, memory, and GPUs: found through NVML, or declared. Declared GPUs are simulated, and are
labelled so everywhere.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from swell.machine.worker_options import WorkerOptions, host_name
from swell.model.cluster import Device, Node
from swell.worker.allocation import Allocation
from swell.worker.nvml import Nvml

WHOLE = Allocation()  # the machine
SIMULATED_MEMORY_MIB = 16 * 1024  # of a declared GPU when nobody says otherwise
CGROUP_FILES = ("/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/memory.max")


@dataclass(frozen=True, slots=True)
class Declared:
    """What the worker was told to offer instead of what is there."""

    cpus_milli: int | None = None  #: None: what the machine has
    gpus: int | None = None  #: None: what NVML finds
    gpu_memory_mib: int = SIMULATED_MEMORY_MIB
    memory_mib: int | None = None  #: None: what the machine has
    name: str | None = None  #: None: the host name
    address: str = ""

    @classmethod
    def of(cls, options: WorkerOptions) -> Declared:
        return cls(
            options.cpus_milli,
            options.gpus,
            options.gpu_memory_mib or SIMULATED_MEMORY_MIB,
            options.memory_mib,
            options.name,
            options.address or "",
        )


def offer(declared: Declared, nvml: Nvml, given: Allocation = WHOLE) -> Node:
    """What was declared; else what is there, and of that no more than the worker was given."""
    cpus = declared.cpus_milli if declared.cpus_milli is not None else at_most(count_cpus_milli(), given.cpus_milli)
    found = () if declared.gpus is not None else given.of_devices(nvml.devices())
    devices = found if declared.gpus is None else simulated(declared.gpus, declared.gpu_memory_mib)
    memory = declared.memory_mib if declared.memory_mib is not None else at_most(memory_mib(), given.memory_mib)
    return Node(declared.name or host_name(), cpus, memory, devices, address=declared.address)


def at_most(found: int, limit: int | None) -> int:
    return found if limit is None else min(found, limit)


def simulated(count: int, memory_mib: int) -> tuple[Device, ...]:
    return tuple(Device(f"sim-{n}", memory_mib, "simulated GPU", simulated=True) for n in range(count))


def count_cpus_milli() -> int:
    """What we may use: the affinity mask, and a container's share if that is less."""
    available = len(os.sched_getaffinity(0)) * 1000
    quota, period = (_read(CGROUP_FILES[0]) or "max 1").split()[:2]
    return available if quota == "max" else max(1, min(available, int(quota) * 1000 // int(period)))


def memory_mib() -> int:
    total = next(
        int(line.split()[1]) // 1024
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemTotal:")
    )
    limit = _read(CGROUP_FILES[1])
    return total if not limit or limit == "max" else min(total, int(limit) // (1 << 20))


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
