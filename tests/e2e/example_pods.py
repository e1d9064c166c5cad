"""How does an example manifest run in pods of a test cluster? With other images, and its own program."""

from __future__ import annotations

from typing import Any

import yaml

from cluster.images import name_of
from server import Server

from .training import EXAMPLES

PATIENCE_S = 240.0
IMAGES = {
    "python:3.12": "python",
    "busybox": "busybox",
    "debian:12": "lammps",
    "metric-lammps:latest": "lammps",
    "ranks": "torch",
}
CODE = "/code"  # where pods see this source tree


def for_pods(document: Any) -> Any:
    """The same document with images that are in the cluster."""
    if isinstance(document, list):
        return [for_pods(one) for one in document]
    if not isinstance(document, dict):
        return document
    changed = {name: for_pods(value) for name, value in document.items()}
    if isinstance(changed.get("image"), str):
        changed["image"] = name_of(IMAGES.get(changed["image"], "python"))
    if document.get("kind") == "AIchorManifest":
        spec = changed["spec"]
        spec["storage"] = {"attachExistingPVCs": [{"name": "code", "mountPoint": CODE}]}
        spec["env"] = {"PYTHONPATH": f"{CODE}/sdk/src"}
        spec["command"] = f"cd {CODE}/examples/aichor; {spec['command']}"
    if document.get("apiVersion") == "swell/v1":
        changed["spec"]["image"] = name_of("busybox")
    return changed


def text_of(example: str) -> str:
    return yaml.safe_dump_all(for_pods(list(yaml.safe_load_all((EXAMPLES / example).read_text()))), sort_keys=False)


def submitted(server: Server, text: str) -> list[int]:
    done = server.swell("submit", "-f", "-", stdin=text)
    assert done.code == 0, done
    return [int(word) for word in done.stdout.split()]


def log_of(server: Server, job: int, rank: int = 0) -> str:
    return str(server.swell("logs", "--rank", str(rank), str(job)).stdout)


def succeeded(server: Server, job: int) -> dict[str, Any]:
    ended = server.until(job, "succeeded", "failed", patience_s=PATIENCE_S)
    assert ended["state"] == "succeeded", (ended["reason"], log_of(server, job), server.swell("why", str(job)).stdout)
    return ended


def printed(server: Server, job: int, tasks: int) -> list[tuple[str, ...]]:
    """Of each task its lines, sorted."""
    return [tuple(sorted(log_of(server, job, rank).splitlines())) for rank in range(tasks)]
