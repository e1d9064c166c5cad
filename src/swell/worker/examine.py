"""`python -m swell.worker.examine`: what does the driver say, and who uses the GPUs? As JSON, for `swell doctor`.

A process of its own: a driver in trouble may never answer, and then whoever asks goes on without it.
"""

from __future__ import annotations

import json
import logging
import os
import pwd
from pathlib import Path
from typing import Any

from swell.worker import processes
from swell.worker.nvml import GpuProcess, Nvml, is_watched

COMMAND_SHOWN_MAX = 60


def main() -> None:
    logging.disable()  # what goes wrong is in the document
    nvml = Nvml()
    models = {device.id: device.model for device in nvml.devices()}
    gpus = [
        {
            "id": reading.id,
            "model": models.get(reading.id, "unknown"),
            "memory_mib": reading.total_mib,
            "used_mib": reading.used_mib,
            "watched": is_watched(reading),
            "processes": [_process(process) for process in reading.processes or ()],
        }
        for reading in nvml.read()
    ]
    print(json.dumps({"versions": nvml.versions(), "problem": nvml.problem(), "gpus": gpus}))


def _process(process: GpuProcess) -> dict[str, Any]:
    trace = processes.trace(process.pid)
    told = dict(trace.told) if trace is not None else {}
    return {
        "pid": process.pid,
        "used_mib": process.used_mib,
        "user": _user(process.pid),
        "command": _command(process.pid),
        "attempt": told.get("SWELL_ATTEMPT"),
        "store": told.get("SWELL_STORE"),
    }


def _user(pid: int) -> str | None:
    try:
        uid = os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116
    except OSError:
        return None
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _command(pid: int) -> str | None:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    return words.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")[:COMMAND_SHOWN_MAX]


if __name__ == "__main__":
    main()
