"""Are jobs kept to what they asked for, is the clock right, are there files enough?"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys

from swell.doctor.finding import Finding, note, ok, problem

LIMITS_S_MAX = 10.0
ADVICE = "a box server (swell service install, as root) enforces them; see docs/box.md"
FILES_ENOUGH = 4096  # the worker keeps one open for each task, and each client of the server is one
FILES_MIN = 256
TIMEX_BYTES = 512  # more than any kernel's struct timex; all zero: only read
CLOCK_UNSYNCHRONISED = 5  # TIME_ERROR


def examine_machine(not_enforced: list[dict[str, str]] | None) -> list[Finding]:
    """`not_enforced`: as the server tells; None: none runs."""
    found = ask_limits() if not_enforced is None else not_enforced
    return [limits(found), clock(), open_files()]


def ask_limits() -> list[dict[str, str]] | None:
    """What a worker that we started could not keep tasks to; None: that could not be found out."""
    words = [sys.executable, "-m", "swell.worker.examine", "limits"]
    try:
        done = subprocess.run(words, capture_output=True, timeout=LIMITS_S_MAX, check=True)
        found: list[dict[str, str]] = json.loads(done.stdout)["not_enforced"]
    except (OSError, ValueError, KeyError, subprocess.SubprocessError):
        return None
    return found


def limits(not_enforced: list[dict[str, str]] | None) -> Finding:
    """By control groups."""
    if not_enforced is None:
        return note("limits", "whether tasks can be kept to what they asked for could not be found out", ADVICE)
    if not not_enforced:
        return ok("limits", "tasks are kept to their memory, CPUs and GPUs, and to a number of processes")
    reasons: dict[str, list[str]] = {}
    for one in not_enforced:
        reasons.setdefault(one["why"], []).append(one["limit"])
    text = "; ".join(f"{', '.join(names)} ({why})" for why, names in reasons.items())
    return note("limits", f"not enforced, only counted: {text}", ADVICE)


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
