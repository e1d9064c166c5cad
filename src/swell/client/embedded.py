"""Is there a server for this state folder? If not, start one that outlives us."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from swell.client.client import Client
from swell.client.connection import ServerConnection, no_server, path
from swell.client.find import find_server, typed
from swell.errors import SwellError, Unavailable
from swell.machine.processes import module_argv, spawn_detached, wait_for_end
from swell.machine.state_folder import EXIT_ALREADY_SERVED, StateFolder

START_S_MAX = 30.0
STOP_S_MAX = 20.0
LOOK_AGAIN_S = 0.02
TLS = ("tls_cert", "tls_key")


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


def ensure_server(state: StateFolder, *, port: int = 0, settings: Mapping[str, object] = MappingProxyType({})) -> bool:
    """True when we had to start one. Two that start at once end up with one server; a dying one is waited for.

    `settings`: what it shall have other than its config.json says, and remember once it has started.
    """
    if state.socket is not None:  # never a private one beside it: they would fight for the GPUs
        ServerConnection(state).raw("GET", path("health"))
        return False
    process: subprocess.Popen[bytes] | None = None
    until = time.monotonic() + START_S_MAX
    while time.monotonic() < until:
        if is_running(state):
            if _answers(state):
                return process is not None
            _refuse_older(state)
        elif process is None or process.poll() == EXIT_ALREADY_SERVED:  # who had the lock has gone since
            process = _spawn(state, port, settings)
        elif process.poll() is not None:
            raise Unavailable(f"the server did not start: {_last_words(state.server_log)}{_in_doubt(state, settings)}")
        time.sleep(LOOK_AGAIN_S)
    raise Unavailable(f"the server for {state} did not answer within {START_S_MAX:.0f} s; see {state.server_log}")


def _refuse_older(state: StateFolder) -> None:
    """It would never answer us."""
    if state.older_server() is not None:
        raise no_server(state)


def _spawn(state: StateFolder, port: int, settings: Mapping[str, object]) -> subprocess.Popen[bytes]:
    state.prepare()
    return spawn_detached(module_argv("swell.server", *server_options(state, port, settings)), state.server_log)


def server_options(state: StateFolder, port: int, settings: Mapping[str, object]) -> list[str]:
    """What a server of this folder is started with."""
    words = ["--state", str(state.root), "--port", str(port)]
    words += ["--socket", str(state.socket)] if state.socket else []
    return [*words, "--settings", json.dumps(settings)] if settings else words


def _in_doubt(state: StateFolder, settings: Mapping[str, object]) -> str:
    """Whose settings it did not start with: those just said are forgotten, those of an earlier start are not."""
    if settings:
        return "; these options are not stored"
    doubt = remembered(state)
    return f"; {doubt}" if doubt else ""


def remembered(state: StateFolder) -> str:
    """What an earlier start left that may keep a server from starting, and how to change it; empty: nothing."""
    known = state.read_json(state.config)
    found = {}
    if known.get("cluster") is not None:
        context = known["cluster"].get("context") if isinstance(known["cluster"], dict) else None
        found["--engine kubernetes" + (f" --context {context}" if context else "")] = "--engine workers"
    if known.get("listen") is not None:
        files = "".join(f" --{name.replace('_', '-')} {known[name]}" for name in TLS if known.get(name))
        found[f"--listen {known['listen']}{files}"] = "--listen none"
    if not found:
        return ""
    change = typed(f"up -d {' '.join(found.values())}", state)
    return f"{state.config} has {' '.join(found)} from an earlier start; to start without these options, run: {change}"


def _answers(state: StateFolder) -> bool:
    """Not asked before it is ready: its socket is there by then, and would keep us waiting."""
    return bool(state.serving()) and _replies(state)


def _replies(state: StateFolder) -> bool:
    connection = ServerConnection(state)
    try:
        connection.raw("GET", path("health"))
    except (SwellError, OSError):
        return False
    finally:
        connection.close()
    return True


def last_failure(state: StateFolder) -> str:
    """Why the last server that was started with remembered settings could not start; empty: it did."""
    try:
        lines = state.server_log.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    said = lines[-1] if lines else ""
    return said.removeprefix("swell: ") if said.startswith("swell: ") else ""


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    said = [line.removeprefix("swell: ") for line in lines if line.startswith("swell: ")]
    return said[-1] if said else f"see {log}" + (f" ({lines[-1]})" if lines else "")


def stop_server(state: StateFolder) -> str:
    """Server first, then worker; running tasks are left alone. What was stopped; empty: nothing ran."""
    if state.socket is not None:
        ServerConnection(state).raw("POST", path("server", "stop"))
        return "server"
    server = state.lock_holder("server")
    if server:
        try:
            ServerConnection(state).raw("POST", path("server", "stop"))
        except SwellError:  # it does not answer, or not to our token; its lock says that it is ours to end
            _terminate(server)
        _wait_for_end(server)
    worker = state.lock_holder("worker")
    if worker:
        _terminate(worker)
        _wait_for_end(worker)
    return "server" if server else "worker" if worker else ""


def _terminate(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


def _wait_for_end(pid: int) -> None:
    if not wait_for_end(pid, STOP_S_MAX):
        raise Unavailable(f"process {pid} did not end within {STOP_S_MAX:.0f} s; to end it, run: kill -9 {pid}")
