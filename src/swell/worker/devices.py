"""What does this machine offer?

CPUs this process may use, memory, and GPUs: found through NVML, or declared. Declared GPUs are simulated, and are
labelled so everywhere. Every NVML call is guarded: a broken driver means no GPUs and a line in the log, never a
worker that does not start.
"""

from __future__ import annotations

import logging
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swell.model.cluster import Device, Node

log = logging.getLogger(__name__)

SIMULATED_MEMORY_MIB = 16 * 1024  # of a declared GPU when nobody says otherwise
CGROUP_FILES = ("/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/memory.max")


@dataclass(frozen=True, slots=True)
class Declared:
    """What `swell up` was told to offer instead of what is there."""

    cpus_milli: int | None = None  #: None: what the machine has
    gpus: int | None = None  #: None: what NVML finds
    gpu_memory_mib: int = SIMULATED_MEMORY_MIB

    @classmethod
    def parse(cls, config: dict[str, Any]) -> Declared:
        memory = config.get("gpu_memory_mib") or SIMULATED_MEMORY_MIB
        return cls(config.get("cpus_milli"), config.get("gpus"), memory)


def offer(declared: Declared) -> Node:
    cpus = declared.cpus_milli if declared.cpus_milli is not None else count_cpus_milli()
    devices = find_gpus() if declared.gpus is None else simulated(declared.gpus, declared.gpu_memory_mib)
    return Node(socket.gethostname(), cpus, memory_mib(), devices)


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


def find_gpus() -> tuple[Device, ...]:
    """By UUID; empty when there is no driver."""
    try:
        import pynvml
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
    except Exception as error:  # noqa: BLE001  no library, no driver, no permission: NVML has a class for each
        log.info("no GPUs: NVML says %s", error)
        return ()
    try:
        return tuple(filter(None, (_device(pynvml, n) for n in range(pynvml.nvmlDeviceGetCount()))))
    except Exception:
        log.exception("NVML fails while counting GPUs; offering none")
        return ()
    finally:
        pynvml.nvmlShutdown()


def _device(nvml: Any, number: int) -> Device | None:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(number)
        uuid, model = nvml.nvmlDeviceGetUUID(handle), nvml.nvmlDeviceGetName(handle)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle).total // (1 << 20)
    except Exception:
        log.exception("GPU %s does not answer and is not offered", number)
        return None
    return Device(_text(uuid), int(memory), _text(model))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
