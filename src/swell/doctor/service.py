"""Is the state folder in order, and do server and worker run?"""

from __future__ import annotations

import os
import time
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from swell import __version__
from swell.client.connection import Connection, path
from swell.doctor.finding import Finding, note, ok, problem
from swell.errors import SwellError
from swell.state import NETWORK_FILE_SYSTEMS, StateFolder, file_system

FREE_MIB_MIN = 64  # below that a running server soon cannot write
FREE_MIB_ENOUGH = 1024  # logs and checkpoints go there
APART_S_MAX = 5.0  # between two clocks, of which one tells whole seconds


def examine_service(state: StateFolder) -> list[Finding]:
    if is_seen_from_outside(state):
        return _answered(state, f"at {state.socket}", "ask your administrator: systemctl status swell")
    return [_folder(state), *_server(state), _worker(state)]


def _folder(state: StateFolder) -> Finding:
    folders = (state.root, *state.root.parents)
    there = next(folder for folder in folders if os.path.exists(folder))  # noqa: PTH110  one not to be read is not there
    kind = file_system(state.root, Path("/proc/self/mountinfo").read_bytes().splitlines())
    disk = os.statvfs(there)
    free_mib = disk.f_bavail * disk.f_frsize >> 20
    text = f"{state}, {kind}, {free_mib / 1024:.1f} GiB free" + ("" if there == state.root else ", not made yet")
    elsewhere = "name another folder with --state or SWELL_STATE"
    if kind in NETWORK_FILE_SYSTEMS:
        return problem("state folder", f"{text}: on a network file system the database's locks do not work", elsewhere)
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return problem("state folder", f"{text}: you may not write to {there}", elsewhere)
    if free_mib < FREE_MIB_MIN:
        return problem("state folder", f"{text}: too little to keep anything", f"free some space, or {elsewhere}")
    if free_mib < FREE_MIB_ENOUGH:
        return note("state folder", f"{text}: logs and checkpoints need more", "free some space")
    return ok("state folder", text)


def is_seen_from_outside(state: StateFolder) -> bool:
    """Of a box server its users see the socket; folder and processes are root's."""
    return state.socket is not None and os.geteuid() != 0


def offered_nodes(state: StateFolder) -> list[dict[str, Any]]:
    """The machines of its server; none: nobody answers, or has offered a machine yet."""
    try:
        if not is_seen_from_outside(state) and state.lock_holder("server") is None:
            return []
        return list(Connection(state).json("GET", path("nodes"))["nodes"])
    except (SwellError, OSError):
        return []


def not_enforced(state: StateFolder) -> list[dict[str, str]] | None:
    """What the machine of its server does not keep tasks to; None: that is not known."""
    nodes = offered_nodes(state)
    return list(nodes[0]["not_enforced"]) if nodes else None


def _server(state: StateFolder) -> list[Finding]:
    try:
        pid = state.lock_holder("server")
    except (SwellError, OSError) as error:
        return [problem("server", f"it does not answer: {error}", f"see {state.server_log}")]
    if pid is None:
        return [note("server", "none runs for this state folder", "swell run starts one; or: swell up -d")]
    return _answered(state, f"process {pid}", f"see {state.server_log}")


def _answered(state: StateFolder, where: str, otherwise: str) -> list[Finding]:
    try:
        connection = Connection(state)
        answer = connection.json("GET", path("server"))
        told = connection.raw("GET", path("health")).headers["Date"]
    except (SwellError, OSError) as error:
        return [problem("server", f"it does not answer: {error}", otherwise)]
    findings = [ok("server", f"version {answer['version']}, {where}")]
    if answer["version"] != __version__:
        text = f"version {answer['version']} runs, and this is {__version__}"
        findings = [problem("server", text, "swell down, then swell up -d; running jobs go on")]
    return [*findings, *taken_in(answer), *apart(told)]


def taken_in(answer: dict[str, Any]) -> list[Finding]:
    """What kubectl applies to its cluster; of a server without one there is nothing to say."""
    return [ok("kubectl apply", answer["kubectl"])] if answer.get("kubectl") else []


def apart(told: str | None) -> list[Finding]:
    """Of the server's clock and ours; `told` is what it wrote over its answer."""
    if told is None:
        return []
    apart_s = abs(time.time() - parsedate_to_datetime(told).timestamp())
    if apart_s <= APART_S_MAX:
        return [ok("server's clock", "agrees with ours")]
    return [
        problem("server's clock", f"is {apart_s:.0f} s from ours", "set both clocks by NTP; job tokens depend on it")
    ]


def _worker(state: StateFolder) -> Finding:
    try:
        server, worker = state.lock_holder("server"), state.lock_holder("worker")
    except SwellError as error:
        return problem("worker", str(error), "name your own state folder with --state")
    if worker is not None:
        return ok("worker", f"process {worker}")
    if state.read_json(state.config).get("cluster") is not None:
        return ok("worker", "none is needed: Kubernetes runs the tasks")
    if server is None:
        return note("worker", "none runs; the server starts it")
    return problem("worker", "the server runs and its worker does not: nothing can start", f"see {state.worker_log}")
