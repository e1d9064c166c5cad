"""Does a container start here? One is started, and removed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from swell.doctor.finding import Finding, note, ok, problem
from swell.doctor.service import offered_nodes
from swell.errors import SwellError
from swell.state import StateFolder

TRIAL_S_MAX = 90.0  # above the limits of its own steps, after which it removes what it made


def examine_containers(state: StateFolder) -> Finding:
    if _is_cluster(state):
        return ok("containers", "Kubernetes runs them")
    nodes = offered_nodes(state)
    if nodes and not any(node["container_runtime"] for node in nodes):
        text = "the server's machine offers nothing that runs them, so jobs with an image are refused"
        return problem("containers", text, "install podman, then restart the server; see its worker.log")
    return containers_finding(_try_out(state), is_box_root=state.socket is not None and os.geteuid() == 0)


def _is_cluster(state: StateFolder) -> bool:
    try:
        return state.read_json(state.config).get("cluster") is not None
    except (SwellError, OSError):
        return False


def _try_out(state: StateFolder) -> dict[str, Any]:
    """In a process of its own: what runs containers may hang."""
    words = [
        sys.executable,
        "-m",
        "swell.worker.trial",
        str(state.root),
        *([str(state.socket)] if state.socket else []),
    ]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=TRIAL_S_MAX, check=False)
        found: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return {"runtime": "the container runtime", "problem": f"it does not answer within {TRIAL_S_MAX:.0f} s"}
    except ValueError:
        return {"runtime": "the container runtime", "problem": f"trying it failed: {done.stderr.strip()[-200:]}"}
    return found


def containers_finding(trial: dict[str, Any], *, is_box_root: bool) -> Finding:
    """`trial`: what `swell.worker.trial` prints."""
    if trial.get("problem"):
        text = f"{trial['runtime']} starts none: {trial['problem']}"
        return problem("containers", text, trial.get("following") or "jobs with an image will fail")
    if not trial["runtime"]:
        return note("containers", "there is neither podman nor docker", "install podman to run jobs with --image")
    text = (
        f"{trial['runtime']} started one as {'root' if is_box_root else 'you'} in {trial['seconds']} s; it is removed"
    )
    if is_box_root:
        return note("containers", text, "jobs run as their users, for whom this says little: let one call swell doctor")
    return ok("containers", text)
