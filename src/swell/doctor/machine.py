"""Can containers be run, can processes be fenced in, is the clock right, are there files enough?"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import subprocess
from pathlib import Path

from swell.doctor.finding import Finding, note, ok, problem

RUNTIMES = ("podman", "docker")
VERSION_S_MAX = 5.0
CGROUPS = Path("/sys/fs/cgroup")
FILES_ENOUGH = 4096  # the worker keeps one open for each task, and each client of the server is one
FILES_MIN = 256
TIMEX_BYTES = 512  # more than any kernel's struct timex; all zero: only read
CLOCK_UNSYNCHRONISED = 5  # TIME_ERROR


def examine_machine() -> list[Finding]:
    return [containers(), cgroups(CGROUPS, Path("/proc/self/cgroup").read_text()), clock(), open_files()]


def containers() -> Finding:
    found = [f"{name}: {_version(path)}" for name in RUNTIMES if (path := shutil.which(name)) is not None]
    if not found:
        return note(
            "containers", f"there is neither {' nor '.join(RUNTIMES)}", "install podman to run jobs with --image"
        )
    return ok("containers", "; ".join(found))


def _version(path: str) -> str:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=VERSION_S_MAX, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not answer ({error})"
    return (
        done.stdout.strip().splitlines()[0] if done.stdout.strip() else f"does not answer ({done.stderr.strip()[:100]})"
    )


def cgroups(root: Path, own: str) -> Finding:
    """`own`: the text of /proc/self/cgroup."""
    if (root / "cgroup.controllers").exists():
        path = next((line.partition("::")[2] for line in own.splitlines() if line.startswith("0::")), "/")
        if os.access(root / path.lstrip("/"), os.W_OK):
            return ok("cgroups", "version 2, writable")
        text = "version 2, but our own may not be written: CPUs and memory are counted, not enforced"
        return note("cgroups", text, "nothing to do; a service of the whole machine may write them")
    if (root / "unified" / "cgroup.controllers").exists():
        return note("cgroups", "hybrid: the second version is there without its controllers", "boot with version 2")
    if (root / "memory").exists():
        return note("cgroups", "version 1, which is not used: CPUs and memory are counted", "boot with version 2")
    return note("cgroups", f"none under {root}: CPUs and memory are counted, not enforced", "mount them")


def clock() -> Finding:
    """As far as the kernel knows: something has told it that the clock is kept in time."""
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(TIMEX_BYTES))
    if state < 0:
        return note("clock", f"the kernel does not say whether it is kept in time: {os.strerror(ctypes.get_errno())}")
    if state == CLOCK_UNSYNCHRONISED:
        text = "nothing keeps it in time, as far as the kernel knows"
        return note("clock", text, "timedatectl set-ntp true, or install chrony; in a container ask its host")
    return ok("clock", "kept in time")


def open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    shown = f"{soft} at once" + (f", up to {hard} when asked for" if hard != soft else "")
    following = f"ulimit -n {hard if hard > FILES_ENOUGH else FILES_ENOUGH} before swell up"
    if soft != resource.RLIM_INFINITY and soft < FILES_MIN:
        return problem("open files", f"{shown}: too few for a server", following)
    if soft != resource.RLIM_INFINITY and soft < FILES_ENOUGH:
        return note("open files", f"{shown}: about as many tasks can run at once", following)
    return ok("open files", shown)
