"""One user submits 300 jobs first: the others do not wait for them; limits and priorities hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from box.machine import Machine, Person

pytestmark = pytest.mark.slow

MANY = 300
GATE = "while [ ! -e {gate} ]; do sleep 0.1; done"


def submit(person: Person, count: int, script: str, **spec: Any) -> list[int]:
    """All in one file, as people do."""
    documents = [
        {"apiVersion": "swell/v1", "kind": "Job", "spec": {"command": ["sh", "-c", script], "gpus": 1, **spec}}
        for _ in range(count)
    ]
    done = person.swell("submit", "-f", "-", stdin="\n---\n".join(map(json.dumps, documents)).encode())
    assert done.code == 0, done
    return [int(line) for line in done.stdout.splitlines()]


def test_nobody_waits_for_300_jobs_of_somebody_else() -> None:
    with Machine() as box:
        anna, ben, cleo = box.people
        gate = Path(box.root) / "gate"
        script = GATE.format(gate=gate)
        first = submit(anna, MANY, script)
        for job in first[:4]:
            box.until(job, "running")
        others = [*submit(ben, 4, script), *submit(cleo, 2, script)]
        waits = box.client().job(first[4]).document
        assert waits["reason"]["code"] == "FairShare"
        gate.touch()
        for job in others:
            box.until(job, "succeeded")
        last = max(box.client().job(job).document["started_at"] for job in others)
        began = [box.client().job(job).document["started_at"] for job in first[:20]]
        before = sum(at is not None and at < last for at in began)
        assert before <= 4 + len(others), "they take turns, one job each"


def test_limits_and_priorities_of_users_hold() -> None:
    with Machine(limits={"default": {"gpus": 1, "queued": 5}}) as box:
        anna, _, cleo = box.people
        gate = Path(box.root) / "gate"
        one, two = submit(anna, 2, GATE.format(gate=gate))
        box.until(one, "running")
        box.until_true(two, lambda job: job["reason"]["code"] != "NotYetPlanned")
        reason = box.client().job(two).document["reason"]
        assert (reason["code"], reason["message"]) == (
            "UserLimit",
            f"it wants 1 CPU, 1 GPU; {anna.name} holds 1 of at most 1 GPU",
        )
        refused = anna.swell("run", "-d", "--priority", "5", "--", "true")
        assert refused.code == 125
        assert f"priority 5 is above the limit of {anna.name}, 0; leave it out" in refused.stderr
        urgent = cleo.start("--priority", "5", "--", "true")
        box.until(urgent, "succeeded")
        gate.touch()
        box.until(two, "succeeded")
