"""Are jobs kept to what they asked for, is the clock right, are there files enough?"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
from dataclasses import dataclass
from enum import StrEnum

from swell.machine.processes import module_argv


class Level(StrEnum):
    OK = "ok"
    NOTE = "note"  # it works, but less well than it could
    PROBLEM = "problem"  # something will not work


@dataclass(frozen=True, slots=True)
class Finding:
    topic: str
    level: Level
    text: str
    next: str = ""  #: what to do; empty: nothing


def ok(topic: str, text: str) -> Finding:
    return Finding(topic, Level.OK, text)


def note(topic: str, text: str, following: str = "") -> Finding:
    return Finding(topic, Level.NOTE, text, following)


def problem(topic: str, text: str, following: str) -> Finding:
    return Finding(topic, Level.PROBLEM, text, following)


LIMITS_S_MAX = 10.0
ADVICE = "a box server (swell service install, as root) enforces these limits; see docs/box.md"
FILES_ENOUGH = 4096  # the worker keeps one open for each task, and each client of the server is one
FILES_MIN = 256
TIMEX_BYTES = 512  # more than any kernel's struct timex; all zero: only read
CLOCK_UNSYNCHRONISED = 5  # TIME_ERROR


def examine_machine(not_enforced: list[dict[str, str]] | None, *, is_own: bool) -> list[Finding]:
    """`not_enforced`: as the server tells; None: it has not. `is_own`: it is the caller's, or would be."""
    found = ask_limits() if not_enforced is None and is_own else not_enforced
    return [limits(found) if found is not None or is_own else NOT_TOLD, clock(), open_files()]


#: What the server of a machine enforces, its users cannot find out: they would make no control groups.
NOT_TOLD = note(
    "limits",
    "the server has not reported yet whether limits of tasks are enforced",
    "run swell doctor again in a moment",
)


def ask_limits() -> list[dict[str, str]] | None:
    """What a worker that we started could not keep tasks to; None: that could not be found out."""
    words = module_argv("swell.worker.examine", "limits")
    try:
        done = subprocess.run(words, capture_output=True, timeout=LIMITS_S_MAX, check=True)
        found: list[dict[str, str]] = json.loads(done.stdout)["not_enforced"]
    except (OSError, ValueError, KeyError, subprocess.SubprocessError):
        return None
    return found


def limits(not_enforced: list[dict[str, str]] | None) -> Finding:
    """By control groups."""
    if not_enforced is None:
        return note("limits", "Swell could not find out whether limits of tasks can be enforced", ADVICE)
    if not not_enforced:
        return ok("limits", "limits on memory, CPUs, GPUs and the number of processes are enforced")
    reasons: dict[str, list[str]] = {}
    for one in not_enforced:
        reasons.setdefault(one["why"], []).append(one["limit"])
    text = "; ".join(f"{', '.join(names)} ({why})" for why, names in reasons.items())
    return note("limits", f"not enforced, only counted: {text}", ADVICE)


def clock() -> Finding:
    """As far as the kernel knows: something has told it that the clock is kept in time."""
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(TIMEX_BYTES))
    if state < 0:
        return note(
            "clock", f"the kernel does not report whether the clock is synchronized: {os.strerror(ctypes.get_errno())}"
        )
    if state == CLOCK_UNSYNCHRONISED:
        text = "not synchronized, according to the kernel"
        return note("clock", text, "run timedatectl set-ntp true, or install chrony; in a container, do so on its host")
    return ok("clock", "synchronized")


def open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    shown = f"{soft} at once" + (f", can be raised to {hard}" if hard != soft else "")
    following = f"run ulimit -n {hard if hard > FILES_ENOUGH else FILES_ENOUGH} before swell up"
    if soft != resource.RLIM_INFINITY and soft < FILES_MIN:
        return problem("open files", f"{shown}: too few for a server", following)
    if soft != resource.RLIM_INFINITY and soft < FILES_ENOUGH:
        return note("open files", f"{shown}: about this many tasks can run at once", following)
    return ok("open files", shown)
