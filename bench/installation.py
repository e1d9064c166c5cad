"""How does a benchmark get a Swell of its own, and get rid of it again?"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.folders import subfolder
from bench.interrupts import undisturbed
from swell.client import Client
from swell.machine.state_folder import StateFolder
from swell.worker import processes

SWELL = Path(sys.executable).with_name("swell")
READY_S_MAX = 30.0
ENDED_S_MAX = 10.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Installation:
    """A server and its worker, as two processes, on a fresh state folder."""

    def __init__(self, state: StateFolder) -> None:
        self.state = state
        self.client = Client(state)
        server, worker = state.lock_holder("server"), state.lock_holder("worker")
        assert server is not None
        assert worker is not None
        self.server_pid, self.worker_pid = server, worker

    def cpu_s(self) -> dict[str, float]:
        """Used so far: by the server, by the worker, by what the worker has run."""
        server, worker = _times(self.server_pid), _times(self.worker_pid)
        return {"server": server[0], "worker": worker[0], "tasks": worker[1]}

    def server_memory_mb(self, field: str = "VmRSS") -> float:
        lines = Path(f"/proc/{self.server_pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:"))


@contextmanager
def installed(folder: Path, *, cpus: int, gpus: int = 0) -> Iterator[Installation]:
    """`swell up -d`, and nothing left behind whatever happens."""
    root = subfolder(folder, "state")
    state = StateFolder(root)
    try:
        with undisturbed():
            swell("up", "-d", "--gpus", str(gpus), "--cpus", str(cpus), state=root)
        _await_worker(state)
        yield Installation(state)
    finally:
        with undisturbed():
            _end(state)


def _end(state: StateFolder) -> None:
    # Not `down --cancel`: that asks once per job, and there may be 10,000 in the queue.
    swell("down", state=state.root)
    mark = state.tasks / ".store"  # made by the worker with the first task; every task has it in its environment
    until = time.monotonic() + ENDED_S_MAX
    while mark.exists() and time.monotonic() < until:
        if not processes.kill(None, (f"SWELL_STORE={mark.read_text()}".encode(),)):
            return
        time.sleep(0.02)


def swell(*words: str, state: Path) -> None:
    """In a session of its own: a Ctrl-C on our terminal is for us."""
    argv = [str(SWELL), *words, "--state", str(state)]
    done = subprocess.run(argv, check=False, stderr=subprocess.PIPE, text=True, start_new_session=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)} ended with {done.returncode}: {done.stderr.strip()}")


def _await_worker(state: StateFolder) -> None:
    """Until the worker has offered the machine; what comes before that is not what we measure."""
    until = time.monotonic() + READY_S_MAX
    while not Client(state).nodes():
        if time.monotonic() > until:
            raise TimeoutError(f"no worker within {READY_S_MAX:.0f} s; see {state.worker_log}")
        time.sleep(0.02)


def _times(pid: int) -> tuple[float, float]:
    """CPU seconds of a process, and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system, children_user, children_system = (int(ticks) / TICKS_PER_S for ticks in fields[11:15])
    return user + system, children_user + children_system
