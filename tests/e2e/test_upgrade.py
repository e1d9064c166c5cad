"""A new server goes on with what a server of an older version left: its jobs, its folder, and tasks that still run."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from server import Gate, Server
from upgrade.state import Before, lost, unpack

pytestmark = pytest.mark.slow

ENDED = ("succeeded", "failed", "cancelled")
WAITING = ("waits", "held", "follows", "elaborate", "pytorch")
ADOPTED = ("running", "gang", "array", "shares", "training", "asked")
TASKS = 9  # that were alive
CODE = 7  # of every task that was alive, when it is let go


@pytest.fixture
def before(tmp_path: Path, gate: Gate) -> Iterator[Before]:
    found = unpack("schema-0006", tmp_path)
    tasks = found.revive(f"trap '' TERM; read _ < {gate}; exit {CODE}")  # as deaf as the one that was being stopped
    assert len(tasks) == TASKS
    yield found
    for task in tasks:
        task.wait(timeout=30)


@pytest.fixture
def server(tmp_path: Path, before: Before) -> Iterator[Server]:
    with Server(tmp_path, "--gpu-memory", "16GiB", cpus=16) as made:
        yield made


def report(server: Server, before: Before, job: int) -> dict[str, Any]:
    """What the server answers to a report with the token that an older version gave the task."""
    token = (before.state / f"tasks/{job}.1/token").read_text().strip()
    url = f"{server.state.read_json(server.state.server_file)['url']}/api/v1/attempts/{job}.1/report"
    head = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    body = json.dumps({"rank": 0, "begun": 5, "epochs_done": 4}).encode()
    with urllib.request.urlopen(urllib.request.Request(url, body, head)) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def test_jobs_and_running_tasks_of_an_older_version_survive_the_upgrade(
    before: Before, server: Server, gate: Gate
) -> None:
    ids = before.ids()
    told = {job["name"]: job for job in before.told}
    now = {name: server.client().job(job).document for name, job in ids.items()}

    for name in ENDED:
        assert lost(told[name], server.swell("show", str(ids[name]), "-o", "json").json) == []
    assert [now[name]["state"] for name in WAITING] == [told[name]["state"] for name in WAITING]
    assert [now[name]["state"] for name in ADOPTED] == ["running"] * len(ADOPTED)
    stopping = server.until_true(ids["stopping"], lambda job: job["reason"]["code"] == "Stopping")  # its worker is back
    assert (stopping["state"], stopping["reason"]["evidence"]["grace_s"]) == ("stopping", 3600.0)

    server.until(ids["starting"], "running")  # nobody had begun it
    assert report(server, before, ids["training"]) == {"stop_after_epoch": None, "yield_now": False}
    assert server.client().job(ids["training"]).document["progress"]["epochs_done"] == 4.0

    for _ in range(TASKS):
        gate.open()
    for name in ("running", "gang", "shares", "training"):
        ended = server.until(ids[name], "failed")
        assert (ended["exit_code"], ended["attempts"]) == (CODE, 1)
    server.until(ids["stopping"], "cancelled")
