"""When will waiting jobs start, and how good were earlier answers?"""

from __future__ import annotations

from planner.world import node, queued, running, world
from swell.controller.foresight import Foresight, StartAccuracy, StartForeseen, accuracy_of_starts
from swell.model.plan import Plan, Snapshot
from swell.planner import make_plan

NOW = 1000.0


class Counted:
    """The planner, and a clock that goes on while it plans."""

    def __init__(self) -> None:
        self.plans, self.now = 0, 0.0

    def __call__(self, snapshot: Snapshot) -> Plan:
        self.plans += 1
        self.now += 0.5
        return make_plan(snapshot)


def _snapshot() -> Snapshot:
    return world(node("a", gpus=1), running(1, on="a", gpus=1, time="1h", started=NOW), queued(2, gpus=1), now=NOW)


def test_one_answer_is_good_for_a_while_the_longer_the_more_work_it_was() -> None:
    planner = Counted()
    foresight = Foresight(planner, monotonic=lambda: planner.now)
    assert foresight.of(2, _snapshot()) == StartForeseen(NOW, NOW + 900, NOW + 3600)
    worked = planner.plans
    planner.now += 9.0 * worked
    assert foresight.of(2, _snapshot()) == StartForeseen(NOW, NOW + 900, NOW + 3600)
    assert planner.plans == worked
    planner.now += 2.0 * worked
    foresight.of(2, _snapshot())
    assert planner.plans == 2 * worked


def test_what_was_said_first_is_written_down_when_the_job_starts() -> None:
    foresight = Foresight(make_plan, monotonic=lambda: 0.0)
    foresight.of(2, _snapshot())
    [event] = foresight.came_true([2, 7], NOW + 1200)
    assert (event.kind, event.job_id) == ("StartForeseen", 2)
    assert event.detail == {"said_s_before": 1200.0, "earliest_s": 900.0, "latest_s": 3600.0}
    assert foresight.came_true([2], NOW + 1300) == []


def test_of_jobs_that_have_ended_nothing_is_remembered() -> None:
    foresight = Foresight(make_plan, monotonic=lambda: 0.0)
    foresight.of(2, _snapshot())
    foresight.keep_only([1])
    assert foresight.came_true([2], NOW) == []


def test_a_start_is_within_the_range_earlier_or_later() -> None:
    said = [(10.0, 5.0, 20.0), (2.0, 5.0, 20.0), (1.0, 30.0, None), (40.0, 5.0, 20.0), (999.0, 5.0, None)]
    details = [{"said_s_before": one, "earliest_s": low, "latest_s": high} for one, low, high in said]
    assert accuracy_of_starts(details) == StartAccuracy(foreseen=5, within=3, earlier=1, later=1)
