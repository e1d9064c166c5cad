"""What `swell what-if` and `swell why` say of one job does not contradict itself."""

from __future__ import annotations

from typing import Any

import pytest

from planner.world import node, queued, running, trains, world
from specs import spec
from swell.api.documents import what_if_document
from swell.cli.printing import between_text
from swell.cli.what_if import _lines
from swell.controller.what_if import what_if
from swell.model.job import Role
from swell.model.plan import JobView
from swell.model.resources import Resources
from swell.planner import make_plan
from swell.planner.why.explain import explain

NOW = 1000.0


def told(*jobs: JobView, gpus: int, priority: int = 0) -> tuple[dict[str, Any], list[str]]:
    """Of a job with two GPUs, on one node."""
    wanted = spec(roles=(Role("worker", ("true",), Resources(1000, 0, 2), 1),), name="new", priority=priority)
    [found] = what_if(world(node("a", gpus=gpus), *jobs, now=NOW), make_plan, [wanted], "ann")
    document = what_if_document(found, NOW, None)
    return document, list(_lines(document))


def test_a_job_that_fits_would_start_now_and_nothing_else_is_said() -> None:
    assert told(gpus=2)[1] == ["new: would start now with width 1 on a"]


def test_a_job_that_others_would_shrink_for_starts_as_soon_as_they_have() -> None:
    """It would start now, said the first line; and the second why it would wait."""
    wide = trains(1, on="a", width=4, tasks="1..4", gpus=1, checkpoint_at=NOW)
    document, lines = told(wide, gpus=4)
    assert lines == ["new: would start with width 1 on a as soon as job 1 has shrunk from 4 to 2"]
    assert (document["starts_now"], document["reason"]["code"]) == (False, "WaitingForRoom")


def test_a_job_that_another_would_be_preempted_for_starts_as_soon_as_it_was() -> None:
    low = trains(1, on="a", width=2, tasks=2, gpus=1, checkpoint_at=NOW)
    assert told(low, gpus=2, priority=5)[1] == ["new: would start with width 1 on a as soon as job 1 was preempted"]


def test_a_job_that_waits_for_an_end_says_when_and_why() -> None:
    first, why = told(running(1, on="a", gpus=2, time="1h", started=NOW), gpus=2)[1]
    assert first == "new: would start in 15m00s to 1h00m with width 1 on a"
    assert why.startswith("  why it would wait: WaitingForRoom: it wants 1 CPU, 2 GPUs; ")


@pytest.mark.parametrize(("earliest", "latest"), [(0.0, 0.0), (0.4, 0.9), (0.0, 3600.0), (0.0, None), (49.0, 49.2)])
def test_a_job_that_waits_is_never_expected_to_start_now(earliest: float, latest: float | None) -> None:
    assert "now" not in between_text(earliest, latest)


@pytest.mark.parametrize("time", [None, "1h"])
def test_why_a_job_waits_does_not_say_that_its_start_is_unknown(time: str | None) -> None:
    """The line above `expected to start: in 49s` said so; whether anything is expected is said there alone."""
    there = world(node("a", gpus=2), running(1, on="a", gpus=2, time=time, started=NOW), queued(2, gpus=2), now=NOW)
    reason = explain(there, there.jobs_by_id[2], make_plan(there).verdicts[2])
    assert "unknown" not in reason.next
    assert reason.next.startswith("nothing to do; ")
