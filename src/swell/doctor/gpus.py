"""Is there a driver, which GPUs does it find, and who uses them?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from swell.doctor.finding import Finding, note, ok, problem

DRIVER_S_MAX = 20.0  # opening NVML takes seconds on a large machine; a driver that hangs never answers
DRIVER_FILE = Path("/proc/driver/nvidia/version")
FIRST_PID_NAMESPACE = 0xEFFFFFFC  # its inode, fixed in the kernel
MPS_COMMAND = "nvidia-cuda-mps"  # as the kernel cuts it, of both control and server


def examine_gpus(store: str) -> list[Finding]:
    return [*driver_findings(ask_driver(DRIVER_S_MAX), store), mps(os.environ, _commands())]


def ask_driver(patience_s: float) -> dict[str, Any]:
    """The driver's word; `problem` alone when it has none."""
    words = [sys.executable, "-m", "swell.worker.examine"]
    asking = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        answer, complaint = asking.communicate(timeout=patience_s)
    except subprocess.TimeoutExpired:
        asking.kill()  # and not waited for: a process that hangs inside the driver does not even die
        return {"problem": f"it does not answer within {patience_s:.0f} s", "hangs": True}
    try:
        found: dict[str, Any] = json.loads(answer)
    except ValueError:
        return {"problem": f"asking it failed: {complaint.strip()[-200:]}"}
    return found


def driver_findings(said: dict[str, Any], store: str) -> Iterator[Finding]:
    if said.get("hangs") or (not said.get("versions") and DRIVER_FILE.exists()):
        following = "see dmesg; a reboot, or installing driver and library of one version, usually helps"
        yield problem("driver", f"an NVIDIA driver is loaded, but NVML is of no use: {said['problem']}", following)
        return
    if not said.get("versions"):
        following = "install one, or try it with simulated GPUs: swell up --gpus 4"
        yield note("driver", f"no NVIDIA driver is loaded ({said['problem']})", following)
        return
    driver, nvml = said["versions"]
    yield ok("driver", f"{driver}, NVML {nvml}")
    if said["problem"]:
        yield problem("driver", said["problem"], "see dmesg; such a GPU is not used until it answers")
    yield from (_gpu(gpu, store) for gpu in said["gpus"])
    if os.stat("/proc/self/ns/pid").st_ino != FIRST_PID_NAMESPACE:  # noqa: PTH116
        text = "processes are numbered anew in this container, and the driver may tell other numbers"
        yield note("GPU memory", text, "run the container with --pid=host to have memory attributed to jobs")


def _gpu(gpu: dict[str, Any], store: str) -> Finding:
    users = ", ".join(_user(process, store) for process in gpu["processes"]) or "nobody"
    used = "an unknown amount" if gpu["used_mib"] is None else f"{gpu['used_mib']} MiB"
    text = f"{gpu['id']}: {gpu['model']}, {gpu['memory_mib']} MiB, {used} used by {users}"
    if not gpu["watched"]:
        following = "memory of jobs that share it is only added up; a newer driver may tell more"
        return note("GPU", f"{text}; the driver does not tell who uses how much", following)
    if any(process["store"] != store or not store or not process["job"] for process in gpu["processes"]):
        return note("GPU", text, "what others use counts as taken when it is more than a trifle")
    return ok("GPU", text)


def _user(process: dict[str, Any], store: str) -> str:
    who = f"job {process['job']}" if store and process["store"] == store and process["job"] else process["user"]
    amount = "an unknown amount" if process["used_mib"] is None else f"{process['used_mib']} MiB"
    return f"{who or 'somebody'} ({amount}, process {process['pid']}: {process['command'] or 'not to be seen here'})"


def mps(variables: Mapping[str, str], commands: dict[int, str]) -> Finding:
    running = [pid for pid, name in commands.items() if name.startswith(MPS_COMMAND)]
    pipe = variables.get("CUDA_MPS_PIPE_DIRECTORY")
    if running:
        text = f"runs (process {min(running)})" + (f", pipes in {pipe}" if pipe else "")
        return note("MPS", text, "Swell sets no limits in it: a job may use more than it reserved until that is seen")
    if pipe:
        text = f"CUDA_MPS_PIPE_DIRECTORY is {pipe}, but no MPS runs"
        return problem(
            "MPS", text, "start it with nvidia-cuda-mps-control -d, or unset the variable: CUDA will not start"
        )
    return ok("MPS", "does not run; jobs that share a GPU take turns on it")


def _commands() -> dict[int, str]:
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found[int(entry.name)] = (entry / "comm").read_bytes().decode(errors="replace").strip()
            except OSError:  # it has ended meanwhile
                continue
    return found
