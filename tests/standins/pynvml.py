"""NVML as the file that SWELL_TEST_NVML names describes it: put this folder on PYTHONPATH, before the real module.

The file is read with every call, so a test changes what the driver says while a real worker runs:

    {"broken": false, "gpus": [{"uuid": "GPU-a", "total_mib": 40960, "used_mib": 0, "utilization": 0,
        "broken": false, "processes": [{"pid": 1, "used_mib": 10, "kind": "compute"}]}]}

`broken`: nothing answers. A process' `used_bytes` is handed out as it is. `lists` false: no processes are listed.
"""

# ruff: noqa: N802  NVML's own names

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

MIB = 1 << 20


class NVMLError(Exception):
    pass


def _world() -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(Path(os.environ["SWELL_TEST_NVML"]).read_text())
    except (KeyError, OSError):
        return {"broken": True, "gpus": []}
    return found


def _gpu(handle: str) -> dict[str, Any]:
    world = _world()
    if world.get("broken"):
        raise NVMLError("Unknown Error")
    gpu: dict[str, Any] = next(gpu for gpu in world["gpus"] if gpu["uuid"] == handle)
    if gpu.get("broken"):
        raise NVMLError("GPU is lost")
    return gpu


def nvmlInit() -> None:
    if _world().get("broken"):
        raise NVMLError("Driver Not Loaded")


def nvmlShutdown() -> None:
    pass


def nvmlSystemGetDriverVersion() -> str:
    return str(_world().get("driver", "550.54"))


def nvmlSystemGetNVMLVersion() -> bytes:
    return b"12.550.54"


def nvmlDeviceGetCount() -> int:
    return len(_world()["gpus"])


def nvmlDeviceGetHandleByIndex(number: int) -> str:
    return str(_gpu(_world()["gpus"][number]["uuid"])["uuid"])


def nvmlDeviceGetUUID(handle: str) -> bytes:
    return str(_gpu(handle)["uuid"]).encode()


def nvmlDeviceGetMinorNumber(handle: str) -> int:
    minor = _gpu(handle).get("minor")
    if minor is None:
        raise NVMLError("Not Supported")
    return int(minor)


def nvmlDeviceGetName(handle: str) -> str:
    return str(_gpu(handle).get("name", "NVIDIA A100"))


def nvmlDeviceGetMemoryInfo(handle: str) -> SimpleNamespace:
    gpu = _gpu(handle)
    return SimpleNamespace(total=gpu["total_mib"] * MIB, used=gpu.get("used_mib", 0) * MIB)


def nvmlDeviceGetUtilizationRates(handle: str) -> SimpleNamespace:
    utilization = _gpu(handle).get("utilization", 0)
    if utilization is None:
        raise NVMLError("Not Supported")
    return SimpleNamespace(gpu=utilization, memory=0)


def _processes(handle: str, kind: str) -> list[SimpleNamespace]:
    gpu = _gpu(handle)
    if not gpu.get("lists", True):
        raise NVMLError("Not Supported")
    return [_process(one) for one in gpu.get("processes", ()) if kind in one.get("kind", "compute").split("+")]


def _process(one: dict[str, Any]) -> SimpleNamespace:
    used = one["used_bytes"] if "used_bytes" in one else one["used_mib"] * MIB
    return SimpleNamespace(pid=one["pid"], usedGpuMemory=used)


def nvmlDeviceGetComputeRunningProcesses(handle: str) -> list[SimpleNamespace]:
    return _processes(handle, "compute")


def nvmlDeviceGetGraphicsRunningProcesses(handle: str) -> list[SimpleNamespace]:
    return _processes(handle, "graphics")
