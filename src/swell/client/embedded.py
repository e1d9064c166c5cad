"""Is there a server for this state folder? If not, start one that outlives us."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from swell.client.client import Client
from swell.client.connection import Connection, path
from swell.client.find import find_server
from swell.errors import SwellError, Unavailable
from swell.process import spawn_detached, wait_for_end
from swell.state import EXIT_ALREADY_SERVED, StateFolder

START_S_MAX = 30.0
STOP_S_MAX = 20.0
LOOK_AGAIN_S = 0.02


def connect(state: str | None = None, *, start: bool = True) -> Client:
    """A client for the server that every command asks; a state folder's is started if none runs and `start` says so."""
    server = find_server(state)
    if start and isinstance(server, StateFolder):
        ensure_server(server)
    return Client(server)


def is_running(state: StateFolder) -> bool:
    if state.socket is not None:
        return _replies(state)
    return state.lock_holder("server") is not None


def ensure_server(state: StateFolder, *, port: int = 0) -> bool:
    """True when we had to start one. Two that start at once end up with one server; a dying one is waited for."""
    if state.socket is not None:  # never a private one beside it: they would fight for the GPUs
        Connection(state).raw("GET", path("health"))
        return False
    process: subprocess.Popen[bytes] | None = None
    until = time.monotonic() + START_S_MAX
    while time.monotonic() < until:
        if is_running(state):
            if _answers(state):
                return process is not None
        elif process is None or process.poll() == EXIT_ALREADY_SERVED:  # who had the lock has gone since
            process = _spawn(state, port)
        elif process.poll() is not None:
            raise Unavailable(f"the server did not start: {_last_words(state.server_log)}")
        time.sleep(LOOK_AGAIN_S)
    raise Unavailable(f"the server for {state} did not answer within {START_S_MAX:.0f} s; see {state.server_log}")


def _spawn(state: StateFolder, port: int) -> subprocess.Popen[bytes]:
    state.prepare()
    argv = [sys.executable, "-m", "swell.server", "--state", str(state), "--port", str(port)]
    return spawn_detached(argv, state.server_log)


def _answers(state: StateFolder) -> bool:
    return is_running(state) and _replies(state)


def _replies(state: StateFolder) -> bool:
    connection = Connection(state)
    try:
        connection.raw("GET", path("health"))
    except (SwellError, OSError):
        return False
    finally:
        connection.close()
    return True


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    said = [line.removeprefix("swell: ") for line in lines if line.startswith("swell: ")]
    return said[-1] if said else f"see {log}" + (f" ({lines[-1]})" if lines else "")


def stop_server(state: StateFolder) -> bool:
    """Server first, then worker; running tasks are left alone. False: nothing ran."""
    if state.socket is not None:
        Connection(state).raw("POST", path("server", "stop"))
        return True
    server = state.lock_holder("server")
    if server:
        try:
            Connection(state).raw("POST", path("server", "stop"))
        except SwellError:  # it does not answer, or not to our token; its lock says that it is ours to end
            _terminate(server)
        _wait_for_end(server)
    worker = state.lock_holder("worker")
    if worker:
        _terminate(worker)
        _wait_for_end(worker)
    return bool(server or worker)


def _terminate(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


def _wait_for_end(pid: int) -> None:
    if not wait_for_end(pid, STOP_S_MAX):
        raise Unavailable(f"process {pid} did not end within {STOP_S_MAX:.0f} s; end it with: kill -9 {pid}")
