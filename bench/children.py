"""What does it cost to run a program from here, with nothing in between?"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

QUIET = [(os.POSIX_SPAWN_OPEN, descriptor, "/dev/null", os.O_RDWR, 0) for descriptor in (0, 1)]


def cpu_s(command: Sequence[str | Path]) -> tuple[float, float]:
    """CPU seconds (user and system) of one run, and how long it took; its output goes nowhere."""
    argv = [os.fspath(word) for word in command]
    began = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=QUIET)
    _, status, usage = os.wait4(pid, 0)
    took = time.perf_counter() - began
    if status != 0:
        raise ChildProcessError(f"{' '.join(argv)} ended with status {status}")
    return usage.ru_utime + usage.ru_stime, took


def per_second(argv_of: Callable[[int], list[str]], *, count: int, width: int) -> float:
    """Processes per second when so many are started from Python, at most `width` at once."""
    began = time.perf_counter()
    alive = 0
    for number in range(count):
        if alive == width:
            os.wait()
            alive -= 1
        argv = argv_of(number)
        os.posix_spawn(argv[0], argv, os.environ)
        alive += 1
    for _ in range(alive):
        os.wait()
    return count / (time.perf_counter() - began)


def fsync_ms(folder: Path, count: int = 50) -> list[float]:
    """How long a 4 KiB append takes to reach the disk."""
    path = folder / "fsync"
    took = []
    with path.open("wb", buffering=0) as file:
        for _ in range(count):
            began = time.perf_counter()
            file.write(bytes(4096))
            os.fsync(file.fileno())
            took.append(1000 * (time.perf_counter() - began))
    path.unlink()
    return took
