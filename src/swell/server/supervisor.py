"""Who keeps the worker of this machine alive?"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time

from swell.machine.processes import module_argv, spawn_detached, wait_for_end
from swell.machine.state_folder import StateFolder
from swell.machine.worker_options import UNIX, WorkerOptions

WORKER_ENDS_S = 5.0
RESPAWN_S = 1.0  # a worker that dies at once is not started again faster than this


class WorkerSupervisor(threading.Thread):
    """Keeps one worker alive on this machine. It is in a session of its own: it and its tasks outlive us."""

    def __init__(self, state: StateFolder, address: str) -> None:
        super().__init__(name="worker-supervisor", daemon=True)
        self._state = state
        self._address = address  #: where tasks on other machines reach those of this one
        self._spawned: subprocess.Popen[bytes] | None = None
        self.is_closing = False

    def close(self) -> None:
        """A server that ends in order takes its worker along; tasks stay, and the next worker takes them up."""
        self.is_closing = True
        if self._spawned is not None:  # it may not have its lock yet
            self._spawned.terminate()
        holder = self._state.lock_holder("worker")
        if holder:
            with contextlib.suppress(ProcessLookupError):
                os.kill(holder, signal.SIGTERM)
        self.join(WORKER_ENDS_S)

    def run(self) -> None:
        while not self.is_closing:
            holder = self._state.lock_holder("worker")
            if holder:
                wait_for_end(holder)
            else:
                self._spawned = self._spawn()
                self._spawned.wait()
            if not self.is_closing:
                time.sleep(RESPAWN_S)

    def _spawn(self) -> subprocess.Popen[bytes]:
        words = own_worker(self._state, self._address).words()
        return spawn_detached(module_argv("swell.worker", *words), self._state.worker_log)


def own_worker(state: StateFolder, address: str) -> WorkerOptions:
    """What the worker of the server's own machine is told. It keeps its tasks where the server reads their logs."""
    config = state.read_json(state.config)
    return WorkerOptions(
        server=f"{UNIX}{state.server_socket}",
        token_file=state.worker_token,
        folder=state.root,
        address=address,
        cpus_milli=config.get("cpus_milli"),
        gpus=config.get("gpus"),
        gpu_memory_mib=config.get("gpu_memory_mib"),
        container_command=config.get("container_command"),
        container_options=config.get("container_options"),
        task_processes_max=config.get("task_processes_max"),
        users_runtime=None if state.socket is None else state.users_runtime,
        jobs_sockets=state.sockets,
    )
