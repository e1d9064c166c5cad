"""What would happen to jobs, were they submitted now?"""

from __future__ import annotations

from planner.world import node, queued, running, trains, world
from specs import spec
from swell.controller.what_if import Change, Outlook, what_if
from swell.model.job import JobSpec, Role
from swell.model.plan import Plan, Snapshot
from swell.model.resources import Resources
from swell.planner import make_plan
from swell.planner.forecast import StartRange

NOW = 1000.0


def _wants(gpus: int, **changes: object) -> JobSpec:
    return spec(roles=(Role("worker", ("true",), Resources(1000, 0, gpus), 1),), **changes)


def _ask(snapshot: Snapshot, *specs: JobSpec) -> list[Outlook]:
    return what_if(snapshot, make_plan, specs, "ann")


def test_a_job_that_fits_would_start_now_and_nobody_gives_anything() -> None:
    [found] = _ask(world(node("a", gpus=2), now=NOW), _wants(2, name="fits"))
    assert found == Outlook("fits", StartRange(0.0, 0.0), 1, ("a",), None, ())


def test_a_job_behind_others_would_wait_and_is_told_why_and_how_long() -> None:
    first = running(1, on="a", gpus=2, time="1h", started=NOW)
    [found] = _ask(world(node("a", gpus=2), first, now=NOW), _wants(2))
    assert (found.start, found.width, found.nodes) == (StartRange(900.0, 3600.0), 1, ("a",))
    assert found.reason is not None
    assert found.reason.code == "WaitingForRoom"


def test_who_would_shrink_for_it_is_named() -> None:
    wide = trains(1, on="a", width=4, tasks="1..4", gpus=1, checkpoint_at=NOW)
    [found] = _ask(world(node("a", gpus=4), wide, now=NOW), _wants(2))
    assert found.changes == (Change(1, 4, 2),)
    assert found.start.earliest_s == 0.0


def test_who_would_be_preempted_is_named() -> None:
    low = trains(1, on="a", width=2, tasks=2, gpus=1, checkpoint_at=NOW)
    [found] = _ask(world(node("a", gpus=2), low, now=NOW), _wants(2, priority=5))
    assert found.changes == (Change(1, 2, 0),)


def test_what_happens_anyway_is_not_its_doing() -> None:
    wide = trains(1, on="a", width=4, tasks="1..4", gpus=1, checkpoint_at=NOW)
    there = world(node("a", gpus=4), wide, queued(2, gpus=3), now=NOW)
    [found] = _ask(there, _wants(4))
    assert found.changes == ()


def test_several_jobs_are_asked_about_together() -> None:
    found = _ask(world(node("a", gpus=2), now=NOW), _wants(2, name="one", time_limit_s=60.0), _wants(2, name="two"))
    assert [(one.name, one.start) for one in found] == [("one", StartRange(0.0, 0.0)), ("two", StartRange(60.0, 60.0))]


def test_what_others_give_is_not_planned_again_for_each_of_them() -> None:
    """A question that would shrink a hundred jobs made a hundred plans."""
    wide = [trains(n + 1, on=f"n{n}", width=4, tasks="1..4", gpus=1, checkpoint_at=NOW) for n in range(5)]
    there = world(*(node(f"n{n}", gpus=4) for n in range(5)), *wide, now=NOW)
    asked = []

    def policy(snapshot: Snapshot) -> Plan:
        asked.append(snapshot)
        return make_plan(snapshot)

    found = what_if(there, policy, [_wants(2)] * 5, "ann")
    assert len(found[0].changes) > 2
    assert [snapshot is there for snapshot in asked].count(True) == 1
