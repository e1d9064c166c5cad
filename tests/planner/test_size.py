"""How wide does an elastic job start?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from swell.model.plan import JobView, Snapshot, Start, Verdict
from swell.model.reason import Code
from swell.model.training import SharedCurve, Training
from swell.planner import check_plan, explain, make_plan

from .world import array, node, queued, running, trains, world


def widths(snapshot: Snapshot) -> dict[int, int]:
    plan = make_plan(snapshot)
    check_plan(snapshot, plan)
    return {action.job: action.width for action in plan.actions if isinstance(action, Start)}


@pytest.mark.parametrize(("free", "width"), [(1, 1), (3, 3), (4, 4), (8, 4)])
def test_a_job_of_1_to_4_gpus_starts_with_those_that_are_free(free: int, width: int):
    assert widths(world(node("a", gpus=free), queued(1, gpus="1..4"))) == {1: width}


def test_it_does_not_start_below_its_least_width():
    now = world(node("a", gpus=4), running(1, on="a", gpus=3), queued(2, gpus="2..4"))
    assert make_plan(now).verdicts == {2: Verdict(Code.WAITING_FOR_ROOM)}


def test_everybody_is_asked_before_anybody_grows():
    now = world(node("a", gpus=4), queued(1, gpus="1..4"), queued(2, gpus=1), queued(3, gpus=1))
    assert widths(now) == {1: 2, 2: 1, 3: 1}


def test_what_is_left_goes_to_those_that_start_in_line_order():
    now = world(node("a", gpus=8), queued(1, gpus="1..4"), queued(2, gpus="1..4"), queued(3, gpus="1..4"))
    assert widths(now) == {1: 4, 2: 3, 3: 1}


def test_an_elastic_job_goes_where_it_can_be_widest():
    """The tightest fit left it at one GPU for its whole life, beside an idle machine."""
    now = world(node("a", gpus=1), node("b", gpus=4), queued(1, gpus="1..4"))
    assert widths(now) == {1: 4}


def test_two_elastic_jobs_take_a_machine_each():
    now = world(node("a", gpus=4), node("b", gpus=4), queued(1, gpus="1..4"), queued(2, gpus="1..4"))
    assert widths(now) == {1: 4, 2: 4}


def test_a_wider_task_gets_gpus_and_no_more_cpus():
    (start,) = make_plan(world(node("a", cpus=2, gpus=4), queued(1, cpus=2, gpus="1..4"))).actions
    (slot,) = start.slots
    assert (slot.resources.cpus_milli, slot.devices) == (2000, ("a-gpu0", "a-gpu1", "a-gpu2", "a-gpu3"))


def test_a_job_of_1_to_4_tasks_gets_as_many_as_fit():
    assert widths(world(node("a", cpus=7), queued(1, cpus=2, tasks="1..4"))) == {1: 3}


def test_more_tasks_may_be_on_other_machines_and_ranks_stay_together():
    now = world(node("a", cpus=3), node("b", cpus=2), queued(1, tasks="2..8"))
    (start,) = make_plan(now).actions
    assert (start.width, [slot.node for slot in start.slots]) == (5, ["a", "a", "a", "b", "b"])


def test_growing_leaves_a_reservation_alone():
    now = world(node("a", gpus=8), running(1, on="a", gpus=4, time="10m"), queued(2, gpus=6), queued(3, gpus="1..4"))
    assert widths(now) == {3: 2}


def test_growing_uses_reserved_room_when_it_ends_in_time():
    now = world(
        node("a", gpus=8),
        running(1, on="a", gpus=4, time="10m"),
        queued(2, gpus=6),
        queued(3, gpus="1..4", time="5m"),
    )
    assert widths(now) == {3: 4}


def test_one_whose_end_the_first_waits_for_may_as_well_be_wide():
    """Job 2 wants the whole machine and waits for job 1 anyway, yet job 1 was kept at one GPU of four."""
    now = world(node("a", gpus=4), queued(1, gpus="1..4"), queued(2, gpus=4))
    assert widths(now) == {1: 4}


def test_growing_leaves_alone_what_is_kept_for_one_whose_slots_drain():
    """Five CPUs are free; job 2 needs four of seven as soon as its two GPUs are, and the tasks on them have ended."""
    now = world(
        node("a", cpus=7, gpus=2),
        array(1, gpus=1, slots=2),
        queued(2, cpus=4, gpus=2, priority=2),
        queued(3, tasks="1..4", priority=1),
    )
    assert widths(now) == {3: 3}


# -- a long job before its first start -----------------------------------------------------------------------


def long_one(job: int, *, left: float = 100.0, lined_up_at: float = 1000.0) -> JobView:
    """It is known to have 10,000 s of work for one GPU, and gains from a second one."""
    known = Training(left, ((1, 1, 100.0), (2, 1, 52.0)), 30.0)
    return replace(queued(job, tasks="1..2", gpus=1), training=known, lined_up_at=lined_up_at)


def beside_a_short_one(waiting: JobView, now: float) -> Snapshot:
    """One that runs on both GPUs has 200 s to go, and would have 390 s on one."""
    short = trains(1, on="a", width=2, tasks="1..2", gpus=1, left=4.0, epoch_s=((1, 97.5), (2, 50.0)), started=1.0)
    return world(node("a", gpus=2), short, waiting, now=now)


def test_a_long_one_waits_a_little_instead_of_shrinking_a_short_one():
    plan = make_plan(beside_a_short_one(long_one(2), 1010.0))
    assert (plan.actions, plan.verdicts[2].code) == ((), Code.WAITING_FOR_ROOM)


@pytest.mark.parametrize(("now", "widths_then"), [(1299.0, []), (1301.0, [1])])
def test_but_no_longer_than_five_minutes(now: float, widths_then: list[int]):
    plan = make_plan(beside_a_short_one(long_one(2), now))
    assert [action.width for action in plan.actions if action.job == 1] == widths_then


@pytest.mark.parametrize("change", [{"training": None}, {"used_s": 60.0}])
def test_one_of_unknown_length_or_that_ran_before_does_not_wait(change: dict[str, object]):
    waiting = replace(long_one(2), **change)  # type: ignore[arg-type]
    assert [action.job for action in make_plan(beside_a_short_one(waiting, 1010.0)).actions] == [1]


def test_it_leaves_free_room_to_one_that_is_sooner_done_and_says_why():
    short, long = (replace(long_one(job, left=left), lined_up_at=0.0) for job, left in ((1, 1.0), (2, 90.0)))
    snapshot = world(node("a", gpus=2), short, long, now=10.0)
    verdict = make_plan(snapshot).verdicts[2]
    assert (widths(snapshot), verdict.code) == ({1: 2}, Code.WAITING_FOR_SHORTER)
    assert explain(snapshot, long, verdict).message == (
        "it could start now with at least 1 CPU, 1 GPU, but it is long, and jobs that end sooner make better use of "
        "the resources; it waits at most 290 s for them"
    )


# -- what jobs of the same script have measured --------------------------------------------------------------


def next_of_sweep(curve: SharedCurve | None, **changes: object) -> Snapshot:
    """The second job of a sweep, which has told nothing yet, on four empty nodes with four GPUs each."""
    nodes = [node(name, gpus=4) for name in "abcd"]
    second = replace(queued(2, tasks="1..16", gpus=1), curve=curve, **changes)  # type: ignore[arg-type]
    return world(*nodes, second)


UP_TO_EIGHT = SharedCurve(((1, 1, 100.0), (4, 1, 26.0), (8, 2, 14.0), (12, 3, 15.0), (16, 4, 16.0)))
UP_TO_TWO = SharedCurve(((1, 1, 100.0), (2, 1, 60.0), (3, 1, 70.0), (4, 1, 75.0), (8, 2, 90.0)))


@pytest.mark.parametrize(("curve", "width"), [(None, 4), (UP_TO_EIGHT, 8), (UP_TO_TWO, 2)])
def test_the_second_job_of_a_sweep_starts_at_the_width_that_the_first_found_best(
    curve: SharedCurve | None, width: int
) -> None:
    assert widths(next_of_sweep(curve)) == {2: width}


def test_two_jobs_of_a_script_that_does_not_scale_leave_the_rest_to_one_that_does() -> None:
    flat, steep = (replace(queued(n, tasks="1..8", gpus=1), curve=one) for n, one in ((1, UP_TO_TWO), (2, UP_TO_EIGHT)))
    assert widths(world(node("a", gpus=4), node("b", gpus=4), flat, steep)) == {1: 2, 2: 6}


def test_what_it_measured_itself_counts_more_than_what_others_did() -> None:
    alone = trains(1, on="a", width=1, tasks="1..4", gpus=1, epoch_s=((1, 100.0), (2, 99.0), (4, 98.0)))
    told = replace(alone, curve=UP_TO_EIGHT)
    assert make_plan(world(node("a", gpus=4), told, now=1000.0)).actions == ()
