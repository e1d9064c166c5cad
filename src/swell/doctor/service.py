"""Is the state folder in order, and do server and worker run?"""

from __future__ import annotations

import os
import time
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from swell import __version__
from swell.client.connection import ServerConnection, path
from swell.client.embedded import last_failure, remembered
from swell.client.find import typed
from swell.doctor.machine import Finding, note, ok, problem
from swell.errors import SwellError
from swell.machine.state_folder import NETWORK_FILE_SYSTEMS, StateFolder, file_system

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
    text = f"{state}, {kind}, {free_mib / 1024:.1f} GiB free" + ("" if there == state.root else ", not created yet")
    elsewhere = "name another folder with --state or SWELL_STATE"
    if kind in NETWORK_FILE_SYSTEMS:
        return problem("state folder", f"{text}: database locks do not work on a network file system", elsewhere)
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return problem("state folder", f"{text}: you do not have permission to write to {there}", elsewhere)
    if free_mib < FREE_MIB_MIN:
        return problem(
            "state folder", f"{text}: too little space to store anything", f"free some space, or {elsewhere}"
        )
    if free_mib < FREE_MIB_ENOUGH:
        return note("state folder", f"{text}: logs and checkpoints need more space", "free some space")
    return ok("state folder", text)


def is_seen_from_outside(state: StateFolder) -> bool:
    """Of a box server its users see the socket; folder and processes are root's."""
    return state.socket is not None and os.geteuid() != 0


def offered_nodes(state: StateFolder) -> list[dict[str, Any]]:
    """The machines of its server; none: nobody answers, or has offered a machine yet."""
    try:
        if not is_seen_from_outside(state) and state.lock_holder("server") is None:
            return []
        return list(ServerConnection(state).json("GET", path("nodes"))["nodes"])
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
        return [problem("server", f"the server does not answer: {error}", f"see {state.server_log}")]
    if pid is None:
        return [_not_running(state)]
    return _answered(state, f"process {pid}", f"see {state.server_log}")


def _not_running(state: StateFolder) -> Finding:
    """A server whose last word is why it cannot start will not start the next time either."""
    again = typed("up -d", state)
    failure = last_failure(state)
    if failure:
        text = f"no server is running for this state folder, and the last one did not start: {failure}"
        return problem("server", text, remembered(state) or f"fix that, then run: {again}")
    return note("server", "no server is running for this state folder", f"swell run starts one; or run: {again}")


def _answered(state: StateFolder, where: str, otherwise: str) -> list[Finding]:
    try:
        connection = ServerConnection(state)
        answer = connection.json("GET", path("server"))
        told = connection.raw("GET", path("health")).headers["Date"]
    except (SwellError, OSError) as error:
        return [problem("server", f"the server does not answer: {error}", otherwise)]
    findings = [ok("server", f"version {answer['version']}, {where}")]
    if answer["version"] != __version__:
        text = f"version {answer['version']} is running, but this is {__version__}"
        again = f"{typed('down', state)}, then {typed('up -d', state)}"
        findings = [problem("server", text, f"{again}; running jobs keep running")]
    return [*findings, *cluster_findings(answer), *apart(told)]


def cluster_findings(answer: dict[str, Any]) -> list[Finding]:
    """Of a server without a cluster there is nothing to say; one of before says less."""
    found = [ok("kubectl apply", answer["kubectl"])] if answer.get("kubectl") else []
    cluster = answer.get("cluster")
    if cluster is None:
        return found
    return [_acting(cluster["trouble"]), *_unreadable(cluster), *found]


def _acting(trouble: str | None) -> Finding:
    if trouble is None:
        return ok("cluster", "its API server answers, and the server may act there")
    following = "jobs that run go on, and nothing starts or ends until that is mended"
    return problem("cluster", f"the server cannot act in its cluster: {trouble}", following)


def _unreadable(cluster: dict[str, Any]) -> list[Finding]:
    """One line for each object that we may name; the others are counted."""
    advice = "change it or delete it; all other objects are handled"
    found = [note("object", text, advice) for text in cluster["unreadable_objects"]]
    others = cluster["unreadable"] - len(found)
    if others:
        text = f"{others} {'more ' if found else ''}objects of the cluster cannot be read and are left out"
        found.append(note("objects", text, "the server's log names each of them"))
    return found


def apart(told: str | None) -> list[Finding]:
    """Of the server's clock and ours; `told` is what it wrote over its answer."""
    if told is None:
        return []
    apart_s = abs(time.time() - parsedate_to_datetime(told).timestamp())
    if apart_s <= APART_S_MAX:
        return [ok("server's clock", "agrees with this machine's")]
    return [
        problem(
            "server's clock",
            f"differs from this machine's by {apart_s:.0f} s",
            "synchronize both clocks with NTP; job tokens depend on them",
        )
    ]


def _worker(state: StateFolder) -> Finding:
    try:
        server, worker = state.lock_holder("server"), state.lock_holder("worker")
    except SwellError as error:
        return problem("worker", str(error), "name your own state folder with --state")
    if worker is not None:
        return ok("worker", f"process {worker}")
    if state.read_json(state.config).get("cluster") is not None:
        return ok("worker", "no worker is needed: Kubernetes runs the tasks")
    if server is None:
        return note("worker", "no worker is running; the server starts it")
    return problem("worker", "the server is running but its worker is not: no job can start", f"see {state.worker_log}")
