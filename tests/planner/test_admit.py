"""Who starts, who waits, and behind whom?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from swell.model.job import JobState
from swell.model.plan import Plan, Snapshot, Verdict
from swell.model.reason import Code
from swell.model.resources import Resources
from swell.planner import check_plan, make_plan

from .simulation import applied
from .world import array, node, queued, running, world

FOR_ROOM, IN_LINE = Code.WAITING_FOR_ROOM, Code.WAITING_IN_LINE


def plan_of(snapshot: Snapshot) -> Plan:
    plan = make_plan(snapshot)
    check_plan(snapshot, plan)
    return plan


def decided(snapshot: Snapshot) -> tuple[list[int], dict[int, Verdict]]:
    """Who starts, in order, and why the others do not."""
    plan = plan_of(snapshot)
    return [action.job for action in plan.actions], plan.verdicts


# -- the line ------------------------------------------------------------------------------------------------


def test_nothing_to_do_is_an_empty_plan():
    assert plan_of(world(node("a"))) == Plan()


def test_the_higher_priority_starts_first():
    now = world(node("a", cpus=1), queued(1, priority=1), queued(2, priority=9))
    assert decided(now) == ([2], {1: Verdict(FOR_ROOM)})


def test_inside_a_priority_who_came_first_starts_first():
    now = world(node("a", cpus=2), queued(3), queued(1), queued(2))
    assert decided(now) == ([1, 2], {3: Verdict(FOR_ROOM)})


def test_a_held_job_is_not_in_the_line():
    held = replace(queued(1, priority=9), state=JobState.HELD)
    assert decided(world(node("a", cpus=1), held, queued(2))) == ([2], {})


# -- one place after another ---------------------------------------------------------------------------------


def test_a_gang_starts_whole():
    now = world(node("a", gpus=2), node("b", gpus=2), queued(1, gpus=1, tasks=4))
    (start,) = plan_of(now).actions
    assert [slot.node for slot in start.slots] == ["a", "a", "b", "b"]


def test_a_gang_that_does_not_fit_whole_does_not_start_at_all():
    now = world(node("a", gpus=2), running(1, on="a", gpus=1), queued(2, gpus=1, tasks=2))
    assert decided(now) == ([], {2: Verdict(FOR_ROOM)})


def test_two_gangs_never_hold_half_each():
    now = world(node("a", gpus=2), node("b", gpus=1), queued(1, gpus=1, tasks=2), queued(2, gpus=1, tasks=2))
    assert decided(now) == ([1], {2: Verdict(FOR_ROOM)})


def test_the_roles_of_a_gang_start_together_or_not_at_all():
    heavy = (Resources(4000, 0, 4), 1)
    fits = queued(1, cpus=2, tasks=2, extra=heavy)
    waits = queued(2, cpus=2, tasks=2, extra=heavy)
    now = world(node("a", cpus=8), node("b", cpus=4, gpus=4), fits, waits)
    (start,) = plan_of(now).actions
    assert [(slot.node, slot.resources.gpus) for slot in start.slots] == [("a", 0), ("a", 0), ("b", 4)]
    assert plan_of(now).verdicts == {2: Verdict(FOR_ROOM)}


def test_fractions_of_a_cpu_add_up_exactly():
    now = world(node("a", cpus=1), *(queued(n, cpus=0.1) for n in range(1, 12)))
    assert decided(now) == ([*range(1, 11)], {11: Verdict(FOR_ROOM)})


def test_memory_is_counted():
    now = world(node("a", memory_gib=16), queued(1, memory_gib=10), queued(2, memory_gib=10))
    assert decided(now) == ([1], {2: Verdict(FOR_ROOM)})


def test_gpus_are_whole():
    now = world(node("a", gpus=2), queued(1, gpus=1), queued(2, gpus=1), queued(3, gpus=1))
    assert decided(now) == ([1, 2], {3: Verdict(FOR_ROOM)})


# -- reasons -------------------------------------------------------------------------------------------------


def test_without_any_machine_everybody_is_told_so():
    assert decided(world(queued(1), queued(2))) == ([], dict.fromkeys((1, 2), Verdict(Code.NO_WORKER)))


def test_one_that_is_too_large_for_the_empty_cluster_cannot_run_here():
    now = world(node("a", gpus=4), node("b", gpus=4), queued(1, gpus=5))
    assert decided(now) == ([], {1: Verdict(Code.CANNOT_RUN_HERE)})


def test_one_that_cannot_run_here_blocks_nobody():
    now = world(node("a", cpus=2), queued(1, priority=9, gpus=1), queued(2), queued(3, cpus=3), queued(4), queued(5))
    assert decided(now) == (
        [2, 4],
        {1: Verdict(Code.CANNOT_RUN_HERE), 3: Verdict(Code.CANNOT_RUN_HERE), 5: Verdict(FOR_ROOM)},
    )


def test_one_that_fits_only_where_nobody_answers_is_told_so():
    now = world(node("a", cpus=2), node("b", cpus=8, is_reachable=False), queued(1, cpus=4))
    assert decided(now) == ([], {1: Verdict(Code.WORKER_UNREACHABLE)})


def test_one_that_waits_for_an_unreachable_machine_blocks_nobody():
    now = world(
        node("a", cpus=2),
        node("b", cpus=8, is_reachable=False),
        running(1, on="a", cpus=1),
        queued(2, cpus=4, priority=9),
        queued(3, cpus=1),
        queued(4, cpus=1),
    )
    assert decided(now) == ([3], {2: Verdict(Code.WORKER_UNREACHABLE), 4: Verdict(FOR_ROOM)})


def test_nothing_new_is_sent_to_a_machine_that_does_not_answer():
    now = world(node("a", is_reachable=False), queued(1), array(2))
    assert decided(now) == ([], dict.fromkeys((1, 2), Verdict(Code.WORKER_UNREACHABLE)))


def test_those_behind_the_first_that_waits_are_told_who_it_is():
    now = world(node("a", cpus=2), running(1, on="a", cpus=2), queued(2), queued(3), queued(4, cpus=2))
    assert decided(now)[1] == {2: Verdict(FOR_ROOM), 3: Verdict(FOR_ROOM, 2), 4: Verdict(FOR_ROOM, 2)}


def test_in_line_means_that_room_is_still_free_when_its_turn_comes():
    """Once another had been let in, a job of a shape refused before was still told that its room is free."""
    now = world(
        node("a", cpus=3),
        running(1, on="a", cpus=2, time="10m"),
        queued(2, cpus=3),
        queued(3, cpus=1),
        queued(4, cpus=1, time="5m"),
        queued(5, cpus=1),
    )
    assert decided(now) == ([4], {2: Verdict(FOR_ROOM), 3: Verdict(IN_LINE, 2), 5: Verdict(FOR_ROOM, 2)})


# -- backfill ------------------------------------------------------------------------------------------------


def beside_a_reservation(candidate_cpus: float, candidate_time: str | None, holder_time: str | None) -> Plan:
    """Job 1 holds 2 of 4 CPUs, job 2 wants 3 and waits for it, job 3 would fit now."""
    return plan_of(
        world(
            node("a", cpus=4),
            running(1, on="a", cpus=2, time=holder_time),
            queued(2, cpus=3),
            queued(3, cpus=candidate_cpus, time=candidate_time),
        )
    )


@pytest.mark.parametrize(
    ("cpus", "time", "holder_time", "starts"),
    [
        pytest.param(2, "5m", "10m", True, id="one that ends before the first can start goes ahead"),
        pytest.param(2, "10m", "10m", True, id="also when it ends at that very moment"),
        pytest.param(2, "20m", "10m", False, id="one that would still be there does not"),
        pytest.param(2, None, "10m", False, id="nor does an endless one"),
        pytest.param(1, None, "10m", True, id="an endless one that leaves the reservation alone goes ahead"),
        pytest.param(2, "20m", None, True, id="before an endless one anybody with a limit goes ahead"),
        pytest.param(2, None, None, False, id="but not an endless one on the room of the first"),
        pytest.param(1, None, None, True, id="only beside it"),
    ],
)
def test_backfill(cpus: float, time: str | None, holder_time: str | None, starts: bool):
    plan = beside_a_reservation(cpus, time, holder_time)
    waits = {} if starts else {3: Verdict(IN_LINE, 2)}
    assert [action.job for action in plan.actions] == [3] * starts
    assert plan.verdicts == {2: Verdict(FOR_ROOM), **waits}


def test_several_that_leave_the_reservation_alone_share_what_is_left():
    now = world(
        node("a", cpus=8),
        running(1, on="a", cpus=4, time="10m"),
        queued(2, cpus=6),
        *(queued(n, cpus=1) for n in (3, 4, 5)),
    )
    assert decided(now) == ([3, 4], {2: Verdict(FOR_ROOM), 5: Verdict(IN_LINE, 2)})


def test_backfilled_ones_count_from_their_own_start():
    """Job 1 must end at 600; at 300 a job of 10 minutes would last until 900."""
    first, late = queued(2, cpus=2), queued(3, time="10m")
    now = world(node("a", cpus=2), running(1, on="a", time="10m"), first, late, now=300.0)
    assert decided(now) == ([], {2: Verdict(FOR_ROOM), 3: Verdict(IN_LINE, 2)})


def test_one_that_is_being_stopped_is_about_to_give_its_room_back():
    """It has no limit, so it counted as endless, and a job of five hours went ahead of the one that waits."""
    now = world(
        node("a", cpus=2),
        running(1, on="a", cpus=1, state=JobState.STOPPING),
        queued(2, cpus=2),
        queued(3, cpus=1, time="5h"),
    )
    assert decided(now) == ([], {2: Verdict(FOR_ROOM), 3: Verdict(IN_LINE, 2)})


def test_one_that_is_starting_has_its_whole_limit_before_it():
    for began in (None, 300.0):
        starting = running(1, on="a", cpus=1, time="10m", state=JobState.STARTING)
        asked = replace(starting, started_at=began)
        now = world(node("a", cpus=2), asked, queued(2, cpus=2), queued(3, time="10m"), now=300.0)
        assert decided(now) == ([3], {2: Verdict(FOR_ROOM)})


def test_an_endless_one_let_in_beside_a_reservation_does_not_become_its_cause():
    """Job 9 waits for job 5; job 2 was let in beside it. Released first, it made room for job 10 on paper."""
    now = world(
        node("a", cpus=8),
        running(5, on="a", cpus=4, started=0.0),
        running(2, on="a", cpus=2, started=60.0),
        queued(9, cpus=6, priority=9),
        queued(10, cpus=2),
        now=120.0,
    )
    assert decided(now) == ([], {9: Verdict(FOR_ROOM), 10: Verdict(IN_LINE, 9)})


def test_an_array_that_started_in_the_same_breath_is_known_to_hold_its_room():
    """It was forgotten among the holders, so the job behind it got no reservation at all."""
    now = world(
        node("a", cpus=4),
        array(1, at_once=2),
        queued(2, cpus=4),
        queued(3, cpus=2),
        queued(4, cpus=2, time="1m"),
    )
    assert decided(now) == ([1, 4], {2: Verdict(FOR_ROOM), 3: Verdict(IN_LINE, 2)})


def test_equal_shapes_need_not_be_one_object():
    jobs = [queued(n, cpus=3) for n in range(1, 5)]
    apart = (replace(job, shape=replace(job.shape)) for job in jobs)
    assert plan_of(world(node("a", cpus=4), *jobs)) == plan_of(world(node("a", cpus=4), *apart))


def test_a_reservation_stays_where_it_is_when_others_start_beside_it():
    """Chosen by the tightest fit it moved to node b as soon as job 4 was there, and then job 3 started."""
    now = world(
        node("a", cpus=8, memory_gib=16, gpus=4),
        node("b", cpus=8, memory_gib=8, gpus=5),
        running(1, on="a", gpus=3, time="10m"),
        running(2, on="b", gpus=4, memory_gib=6, time="10m"),
        queued(3, gpus=4),
        queued(4, gpus=1, memory_gib=4),
        queued(5, gpus=1, memory_gib=1),
    )
    plan = plan_of(now)
    assert [action.job for action in plan.actions] == [5]
    assert make_plan(applied(now, plan)).actions == ()
