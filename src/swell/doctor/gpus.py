"""Is there a driver, which GPUs does it find, and who uses them?"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from swell.doctor.machine import Finding, note, ok, problem
from swell.machine.processes import module_argv

DRIVER_S_MAX = 20.0  # opening NVML takes seconds on a large machine; a driver that hangs never answers
DRIVER_FILE = Path("/proc/driver/nvidia/version")
FIRST_PID_NAMESPACE = 0xEFFFFFFC  # its inode, fixed in the kernel
MPS_COMMAND = "nvidia-cuda-mps"  # as the kernel cuts it, of both control and server


def examine_gpus(store: str, simulated: int) -> list[Finding]:
    """`simulated`: how many there are already."""
    return [*driver_findings(ask_driver(DRIVER_S_MAX), store, simulated), mps(os.environ, _commands())]


def ask_driver(patience_s: float) -> dict[str, Any]:
    """The driver's word; `problem` alone when it has none."""
    words = module_argv("swell.worker.examine")
    asking = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        answer, complaint = asking.communicate(timeout=patience_s)
    except subprocess.TimeoutExpired:
        asking.kill()  # and not waited for: a process that hangs inside the driver does not even die
        return {"problem": f"it did not answer within {patience_s:.0f} s", "hangs": True}
    try:
        found: dict[str, Any] = json.loads(answer)
    except ValueError:
        return {"problem": f"the query failed: {complaint.strip()[-200:]}"}
    return found


def driver_findings(said: dict[str, Any], store: str, simulated: int = 0) -> Iterator[Finding]:
    if said.get("hangs") or (not said.get("versions") and DRIVER_FILE.exists()):
        following = "see dmesg; a reboot usually helps, or installing the driver and the library in the same version"
        yield problem("driver", f"an NVIDIA driver is loaded, but NVML does not work: {said['problem']}", following)
        return
    if not said.get("versions"):
        text = f"no NVIDIA driver is loaded ({said['problem']})"
        if simulated:
            yield note("driver", f"{text}; the server has {simulated} simulated GPUs")
        else:
            yield note("driver", text, "install a driver, or try Swell with simulated GPUs: swell up --gpus 4")
        return
    driver, nvml = said["versions"]
    yield ok("driver", f"{driver}, NVML {nvml}")
    if said["problem"]:
        yield problem("driver", said["problem"], "see dmesg; Swell does not use this GPU until it answers")
    yield from (_gpu(gpu, store) for gpu in said["gpus"])
    if os.stat("/proc/self/ns/pid").st_ino != FIRST_PID_NAMESPACE:  # noqa: PTH116
        text = "this container has its own process ids, which may differ from those the driver reports"
        yield note("GPU memory", text, "run the container with --pid=host so that GPU memory can be attributed to jobs")


def _gpu(gpu: dict[str, Any], store: str) -> Finding:
    users = ", ".join(_user(process, store) for process in gpu["processes"]) or "nobody"
    used = "an unknown amount" if gpu["used_mib"] is None else f"{gpu['used_mib']} MiB"
    text = f"{gpu['id']}: {gpu['model']}, {gpu['memory_mib']} MiB, {used} used by {users}"
    if not gpu["watched"]:
        following = "Swell only adds up the reserved memory of jobs that share it; a newer driver may report more"
        return note("GPU", f"{text}; the driver does not report memory per process", following)
    if any(process["store"] != store or not store or not process["job"] for process in gpu["processes"]):
        return note("GPU", text, "memory used outside Swell counts as taken unless the amount is negligible")
    return ok("GPU", text)


def _user(process: dict[str, Any], store: str) -> str:
    who = f"job {process['job']}" if store and process["store"] == store and process["job"] else process["user"]
    amount = "an unknown amount" if process["used_mib"] is None else f"{process['used_mib']} MiB"
    return (
        f"{who or 'an unknown user'} ({amount}, process {process['pid']}: {process['command'] or 'not visible here'})"
    )


def mps(variables: Mapping[str, str], commands: dict[int, str]) -> Finding:
    running = [pid for pid, name in commands.items() if name.startswith(MPS_COMMAND)]
    pipe = variables.get("CUDA_MPS_PIPE_DIRECTORY")
    if running:
        text = f"runs (process {min(running)})" + (f", pipes in {pipe}" if pipe else "")
        return note(
            "MPS", text, "Swell sets no MPS limits: a job may use more memory than it reserved until Swell notices"
        )
    if pipe:
        text = f"CUDA_MPS_PIPE_DIRECTORY is {pipe}, but MPS is not running"
        return problem(
            "MPS",
            text,
            "start it with nvidia-cuda-mps-control -d, or unset the variable; otherwise CUDA will not start",
        )
    return ok("MPS", "not running; jobs that share a GPU are time-sliced")


def _commands() -> dict[int, str]:
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found[int(entry.name)] = (entry / "comm").read_bytes().decode(errors="replace").strip()
            except OSError:  # it has ended meanwhile
                continue
    return found
