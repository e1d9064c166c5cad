"""When would waiting jobs start? The planner, run forward."""

from __future__ import annotations

from dataclasses import replace

from planner.world import node, queued, running, world
from swell.model.plan import Plan, Snapshot
from swell.planner import make_plan
from swell.planner.forecast import JOBS_PLANNED_MAX, PLANS_MIN, StartRange, forecast

NOW = 1000.0


def _forecast(*things: object) -> dict[int, StartRange]:
    return forecast(world(*things, now=NOW), make_plan)  # type: ignore[arg-type]


def test_a_job_that_fits_would_start_now() -> None:
    assert _forecast(node("a", gpus=2), queued(1, gpus=1)) == {1: StartRange(0.0, 0.0)}


def test_who_waits_for_a_job_with_a_limit_starts_between_half_of_what_it_may_take_and_its_end() -> None:
    """It has run 100 s of its hour, and is believed to take as long again as an unknown job does: half an hour."""
    first = running(1, on="a", gpus=2, time="1h", started=900.0)
    assert _forecast(node("a", gpus=2), first, queued(2, gpus=2)) == {2: StartRange(900.0, 3500.0)}


def test_behind_a_job_of_which_nothing_is_known_there_is_no_latest_moment() -> None:
    first = running(1, on="a", gpus=2, started=900.0)
    assert _forecast(node("a", gpus=2), first, queued(2, gpus=2)) == {2: StartRange(900.0, None)}


def test_an_estimate_of_its_user_is_believed() -> None:
    first = replace(running(1, on="a", gpus=2, started=900.0), estimate_s=400.0)
    assert _forecast(node("a", gpus=2), first, queued(2, gpus=2)) == {2: StartRange(300.0, 600.0)}


def test_jobs_in_line_start_one_after_the_other() -> None:
    first = running(1, on="a", gpus=2, time="1h", started=NOW)
    found = _forecast(node("a", gpus=2), first, queued(2, gpus=2, time="2h"), queued(3, gpus=2))
    assert found == {2: StartRange(900.0, 3600.0), 3: StartRange(1800.0, 3600.0 + 7200.0)}


def test_what_can_never_run_has_no_start() -> None:
    assert _forecast(node("a", gpus=2), queued(1, gpus=4)) == {1: StartRange(None, None)}


def test_who_follows_a_job_starts_after_its_end() -> None:
    first = running(1, on="a", gpus=1, time="1h", started=NOW)
    after = replace(queued(2, gpus=1), waits_for=(1,))
    assert _forecast(node("a", gpus=2), first, after) == {2: StartRange(900.0, 3600.0)}


def test_the_work_is_bounded_however_many_jobs_wait() -> None:
    plans = 0

    def counted(snapshot: Snapshot) -> Plan:
        nonlocal plans
        plans += 1
        return make_plan(snapshot)

    waiting = [queued(n, gpus=1) for n in range(2, JOBS_PLANNED_MAX // 4)]
    forecast(world(node("a", gpus=1), running(1, on="a", gpus=1, time="1h"), *waiting, now=NOW), counted)
    assert plans <= 2 * max(PLANS_MIN, 5)
