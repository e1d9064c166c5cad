"""`python -m swell.worker.examine`: what does the driver say, and who uses the GPUs? As JSON, for `swell doctor`.

With the word `limits`: what could a worker that we started not keep tasks to?

A process of its own: a driver in trouble may never answer, and then whoever asks goes on without it.
"""

from __future__ import annotations

import json
import logging
import os
import pwd
import re
import sys
from pathlib import Path
from typing import Any

from swell.worker import cgroups, processes
from swell.worker.nvml import GpuProcess, Nvml, is_watched

COMMAND_SHOWN_MAX = 60
COMMAND_BYTES_MAX = 4096  # a process can make the kernel believe that its command has gigabytes
ATTEMPT = re.compile(r"([0-9]{1,18})\.[0-9]{1,9}", re.ASCII)


def main() -> None:
    logging.disable()  # what goes wrong is in the document
    if sys.argv[1:] == ["limits"]:
        print(json.dumps({"not_enforced": [{"limit": limit, "why": why} for limit, why in cgroups.probe()]}))
        return
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
        "job": int(found[1]) if (found := ATTEMPT.fullmatch(told.get("SWELL_ATTEMPT", ""))) else None,
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
        with Path(f"/proc/{pid}/cmdline").open("rb") as file:
            words = file.read(COMMAND_BYTES_MAX)
    except OSError:
        return None
    shown = words.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")[:COMMAND_SHOWN_MAX]
    return "".join(
        one if one.isprintable() else "?" for one in shown
    )  # root's terminal is not the process' to write to


if __name__ == "__main__":
    main()
