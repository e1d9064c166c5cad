"""How wide does an elastic job start?"""

from __future__ import annotations

import pytest

from swell.model.plan import Snapshot, Start, Verdict
from swell.model.reason import Code
from swell.planner import check_plan, make_plan

from .world import array, node, queued, running, world


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
    assert (start.width, [slot.node for slot in start.slots]) == (5, ["b", "b", "a", "a", "a"])


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
    """Six CPUs are free; job 2 needs four of them as soon as its two GPUs are."""
    now = world(
        node("a", cpus=8, gpus=2),
        array(1, gpus=1, slots=2),
        queued(2, cpus=4, gpus=2, priority=2),
        queued(3, tasks="1..4", priority=1),
    )
    assert widths(now) == {3: 2}
