"""Does a container start here? One is started, and removed."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from typing import Any

from swell.client.connection import ServerConnection, path
from swell.doctor.machine import Finding, Level, note, ok, problem
from swell.doctor.service import is_seen_from_outside, offered_nodes
from swell.errors import SwellError
from swell.machine.processes import module_argv
from swell.machine.state_folder import StateFolder

JOBS_LOOKED_AT = 20  # each is a request
TRIAL_S_MAX = 90.0  # above the limits of its own steps, after which it removes what it made


def examine_containers(state: StateFolder, *, are_asked_for: bool) -> Finding:
    """What keeps them from starting is a problem where somebody wants one, and otherwise worth knowing."""
    found = _examine(state)
    if found.level is Level.PROBLEM and not (are_asked_for or _are_used(state)):
        return replace(found, level=Level.NOTE, text=f"{found.text}; no job here uses containers")
    return found


def _are_used(state: StateFolder) -> bool:
    """By one of the newest jobs of whoever asks."""
    try:
        if not is_seen_from_outside(state) and state.lock_holder("server") is None:
            return False
        connection = ServerConnection(state)
        jobs = connection.json("GET", path("jobs", all=True, limit=JOBS_LOOKED_AT))["jobs"]
        specs = (connection.json("GET", path("jobs", job["id"], "show"))["spec"] for job in jobs)
        return any(spec.get("container") for spec in specs)
    except (SwellError, OSError):
        return False


def _examine(state: StateFolder) -> Finding:
    if _is_cluster(state):
        return ok("containers", "Kubernetes runs containers")
    nodes = offered_nodes(state)
    if nodes and not any(node["container_runtime"] for node in nodes):
        text = "the server's machine has no container runtime, so jobs with an image are refused"
        return problem("containers", text, "install podman, then restart the server; see its worker.log")
    return containers_finding(_try_out(state), is_box_root=state.socket is not None and os.geteuid() == 0)


def _is_cluster(state: StateFolder) -> bool:
    try:
        return state.read_json(state.config).get("cluster") is not None
    except (SwellError, OSError):
        return False


def _try_out(state: StateFolder) -> dict[str, Any]:
    """In a process of its own: what runs containers may hang."""
    words = module_argv("swell.worker.trial", str(state.root), *([str(state.socket)] if state.socket else []))
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=TRIAL_S_MAX, check=False)
        found: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return {"runtime": "the container runtime", "problem": f"it did not answer within {TRIAL_S_MAX:.0f} s"}
    except ValueError:
        return {
            "runtime": "the container runtime",
            "problem": f"the test container failed: {done.stderr.strip()[-200:]}",
        }
    return found


def containers_finding(trial: dict[str, Any], *, is_box_root: bool) -> Finding:
    """`trial`: what `swell.worker.trial` prints."""
    if trial.get("problem"):
        text = f"{trial['runtime']} cannot start a container: {trial['problem']}"
        return problem("containers", text, trial.get("following") or "jobs with an image will fail")
    if not trial["runtime"]:
        return note("containers", "neither podman nor docker is installed", "install podman to run jobs with --image")
    text = (
        f"{trial['runtime']} started a container as {'root' if is_box_root else 'you'} in {trial['seconds']} s "
        "and removed it"
    )
    if is_box_root:
        return note("containers", text, "jobs run as their users, not as root; let a user run swell doctor, too")
    return ok("containers", text)
