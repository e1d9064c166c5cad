"""A recorded snapshot gives the recorded plan."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from planner.world import array, node, queued, running, trains, world
from swell.errors import Rejected
from swell.model.plan import Snapshot, Standing
from swell.model.recorded_plan import parse_recorded_plan, recorded_plan
from swell.planner import make_plan
from swell.planner.policies import POLICIES
from swell.sim.replay import replay

NO_SNAPSHOT = ": it is no snapshot of this version of `swell debug snapshot`"
EMPTY = '{"format": "swell-plan/1", "policy": "POLICY", "plan": [], "snapshot": {"now": 1.0, "nodes": [], "jobs": []}}'


def _snapshot() -> Snapshot:
    jobs = (
        trains(1, on="a", width=2, tasks="1..4", gpus=1),
        running(2, on="b", gpu_gib=4, device="b-gpu1"),
        array(3, slots=1, on="b", gpus=1),
        *(queued(n, gpus=1 + n % 2, cpus=2, user="ann") for n in range(4, 12)),
    )
    found = world(node("a", gpus=4, labels={"kind": "x"}), node("b", gpus=3), *jobs, now=1000.0)
    return replace(found, users={"ann": Standing(5.0, gpus_max=3)}, arrivals=(1.0, 2.0))


def _write(folder: Path, policy: str = "swell") -> Path:
    path = folder / "plan.json"
    path.write_text(json.dumps(recorded_plan(_snapshot(), POLICIES[policy](_snapshot()), policy)))
    return path


def test_a_snapshot_is_read_as_it_was_recorded() -> None:
    document = json.loads(json.dumps(recorded_plan(_snapshot(), make_plan(_snapshot()), "swell")))
    found = parse_recorded_plan(document)
    assert found.snapshot == _snapshot()
    assert len({id(job.shape) for job in found.snapshot.jobs}) == len({job.shape for job in found.snapshot.jobs})


@pytest.mark.parametrize("policy", POLICIES)
def test_the_plan_of_a_recorded_snapshot_is_made_again(tmp_path: Path, policy: str) -> None:
    found = replay(_write(tmp_path, policy), None)
    assert (found.policy, found.jobs, found.nodes, found.differences) == (policy, 11, 2, ())
    assert found.lines


def test_another_plan_is_told_line_by_line(tmp_path: Path) -> None:
    path = _write(tmp_path)
    document = json.loads(path.read_text())
    document["plan"][-1] = "job 99: of another day"
    path.write_text(json.dumps(document))
    assert "-job 99: of another day" in replay(path, None).differences


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{\n", ":2: it is no JSON: Expecting property name enclosed in double quotes"),
        ("[]", ": it is no snapshot of this version of `swell debug snapshot`: TypeError: list indices must be"),
        (
            '{"format": "other"}',
            ": it is no snapshot of this version of `swell debug snapshot`: ValueError: its format",
        ),
        (
            '{"format": "swell-plan/1", "policy": "x", "plan": [], "snapshot": {"now": 1, "nodes": [], "jobs": []}}',
            ": its",
        ),
        ('{"format": "swell-plan/1", "policy": "swell", "plan": [], "snapshot": {"now": 1}}', ": it is no snapshot"),
    ],
)
def test_what_is_no_snapshot_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(Rejected) as refusal:
        replay(path, None)
    assert str(refusal.value).startswith(f"{path}{problem}")
