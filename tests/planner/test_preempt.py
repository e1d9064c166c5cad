"""Who is preempted, and for whom?

All jobs here have run for a long time (the clock stands at 1000) unless a story says otherwise.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from swell.model.plan import Plan, Preempt, Verdict
from swell.model.reason import Code

from .plans import FOR_ROOM, IMMEDIATE, NEVER, NOW, asked, plan_of, preempts, shrinks, started
from .world import array, node, queued, running, trains


def test_a_rigid_job_of_higher_priority_takes_the_room_of_a_lower_one():
    plan = plan_of(node("a", gpus=2), trains(1, on="a", gpus=2, width=2), queued(2, gpus=2, priority=1))
    assert plan == Plan((preempts(1, winner=2),), {2: FOR_ROOM})


def test_equals_are_never_preempted():
    plan = plan_of(node("a", gpus=2), trains(1, on="a", gpus=2, width=2, priority=5), queued(2, gpus=2, priority=5))
    assert plan == Plan((), {2: FOR_ROOM})


def test_shrinking_comes_before_preempting():
    plan = plan_of(
        node("a", gpus=4),
        trains(1, on="a", gpus=1, width=1),
        trains(2, on="a", gpus="1..3", width=3),
        queued(3, gpus=2, priority=9),
    )
    assert plan == Plan((shrinks(2, 1, room_for=3),), {3: FOR_ROOM})


def test_only_as_many_as_are_needed_and_the_cheapest_of_them():
    """Device-seconds of a restart: 4 x 10, 2 x 30, 2 x 15, 2 x 40."""
    plan = plan_of(
        node("a", gpus=10),
        trains(1, on="a", gpus=4, width=4, restart_s=10.0),
        trains(2, on="a", gpus=2, width=2, restart_s=30.0),
        trains(3, on="a", gpus=2, width=2, restart_s=15.0),
        trains(4, on="a", gpus=2, width=2, restart_s=40.0),
        queued(5, gpus=2, priority=1),
    )
    assert plan == Plan((preempts(3, winner=5),), {5: FOR_ROOM})


def test_one_that_turns_out_not_to_be_needed_is_left_alone():
    """The cheapest, job 1, is not enough; with job 2 there is room without it."""
    plan = plan_of(
        node("a", gpus=4),
        trains(1, on="a", gpus=1, width=1, restart_s=1.0),
        trains(2, on="a", gpus=3, width=3, restart_s=30.0),
        queued(3, gpus=3, priority=1),
    )
    assert plan == Plan((preempts(2, winner=3),), {3: FOR_ROOM})


def test_the_lowest_priority_goes_first_whatever_it_costs():
    plan = plan_of(
        node("a", gpus=4),
        trains(1, on="a", gpus=2, width=2, priority=3, restart_s=1.0),
        trains(2, on="a", gpus=2, width=2, priority=1, restart_s=50.0),
        queued(3, gpus=2, priority=9),
    )
    assert plan == Plan((preempts(2, winner=3),), {3: FOR_ROOM})


def test_among_equals_the_one_that_loses_least_work_goes():
    """Both are stopped at any moment; job 1 made its last checkpoint 5 minutes ago, job 2 ten seconds ago."""
    plan = plan_of(
        node("a", gpus=4),
        trains(1, on="a", gpus=2, width=2, mode=IMMEDIATE, checkpoint_at=NOW - 300.0, every_s=400.0),
        trains(2, on="a", gpus=2, width=2, mode=IMMEDIATE, checkpoint_at=NOW - 10.0, every_s=400.0),
        queued(3, gpus=2, priority=1),
    )
    assert plan == Plan((Preempt(2, IMMEDIATE, None, 3),), {3: FOR_ROOM})


@pytest.mark.parametrize(("often", "seldom"), [(1, 2), (2, 1)])
def test_one_that_reports_more_often_is_not_chosen_for_that(often: int, seldom: int):
    """At its checkpoint neither loses any work; the one with the cheaper restart goes."""
    plan = plan_of(
        node("a", gpus=4),
        trains(often, on="a", gpus=2, width=2, every_s=1.0, checkpoint_at=NOW, restart_s=31.0),
        trains(seldom, on="a", gpus=2, width=2, every_s=100.0, checkpoint_at=NOW - 90.0, restart_s=30.0),
        queued(3, gpus=2, priority=1),
    )
    assert plan == Plan((preempts(seldom, winner=3, deadline_s=300.0),), {3: FOR_ROOM})


def test_between_two_that_cost_the_same_the_younger_goes():
    plan = plan_of(
        node("a", gpus=2),
        trains(1, on="a", gpus=1, width=1),
        trains(2, on="a", gpus=1, width=1),
        queued(3, gpus=1, priority=1),
    )
    assert plan == Plan((preempts(2, winner=3),), {3: FOR_ROOM})


def test_nobody_is_preempted_within_four_restarts_of_its_start():
    """A job that is preempted as soon as it has started never gets anywhere."""
    young = trains(1, on="a", gpus=2, width=2, started=NOW - 119.0, checkpoint_at=NOW)
    old = replace(young, started_at=NOW - 120.0)
    urgent = queued(2, gpus=2, priority=1)
    assert plan_of(node("a", gpus=2), young, urgent) == Plan((), {2: FOR_ROOM})
    assert plan_of(node("a", gpus=2), old, urgent) == Plan((preempts(1, winner=2),), {2: FOR_ROOM})


@pytest.mark.parametrize("how", [{"mode": NEVER}, {"checkpoint_at": None}])
def test_one_that_could_not_go_on_is_not_preempted(how: dict[str, object]):
    victim = trains(1, on="a", gpus=2, width=2, **how)  # type: ignore[arg-type]
    assert plan_of(node("a", gpus=2), victim, queued(2, gpus=2, priority=1)) == Plan((), {2: FOR_ROOM})


def test_nobody_is_preempted_in_vain():
    """Even with job 1 gone job 2 holds what job 3 needs."""
    plan = plan_of(
        node("a", gpus=4),
        trains(1, on="a", gpus=1, width=1),
        running(2, on="a", gpus=3),
        queued(3, gpus=4, priority=9),
    )
    assert plan == Plan((), {3: FOR_ROOM})


def test_nobody_on_a_machine_that_does_not_answer_is_preempted():
    plan = plan_of(
        node("a", gpus=2),
        node("b", gpus=2, is_reachable=False),
        trains(1, on="b", gpus=2, width=2, restart_s=1.0),
        trains(2, on="a", gpus=2, width=2),
        queued(3, gpus=2, priority=1),
    )
    assert plan == Plan((preempts(2, winner=3),), {3: FOR_ROOM})


def test_arrays_give_way_before_anybody_is_preempted():
    plan = plan_of(
        node("a", cpus=4),
        trains(1, on="a", tasks=2, cpus=1, width=2),
        array(2, slots=2),
        queued(3, cpus=2, priority=9),
    )
    assert asked(plan) == []
    assert plan.verdicts == {3: FOR_ROOM}


def test_an_elastic_victim_loses_its_last_when_the_rest_is_not_enough():
    plan = plan_of(node("a", gpus=4), trains(1, on="a", gpus="1..4", width=4), queued(2, gpus=4, priority=9))
    assert plan == Plan((preempts(1, winner=2),), {2: FOR_ROOM})


def test_who_lines_up_after_room_was_promised_stands_behind_the_one_it_was_promised_to():
    promised = replace(queued(2, gpus=2), reserved_at=NOW - 10)
    late = replace(queued(1, gpus=2), lined_up_at=NOW - 5)
    plan = plan_of(node("a", gpus=2), late, promised)
    assert (started(plan), plan.verdicts) == ({2: 2}, {1: FOR_ROOM})


def test_but_who_stood_before_it_then_still_does():
    promised = replace(queued(2, gpus=2), reserved_at=NOW - 10)
    plan = plan_of(node("a", gpus=2), replace(queued(1, gpus=2), lined_up_at=NOW - 20), promised)
    assert (started(plan), plan.verdicts) == ({1: 2}, {2: FOR_ROOM})


def test_nor_does_it_come_before_a_higher_priority():
    promised = replace(queued(2, gpus=2), reserved_at=NOW - 10)
    plan = plan_of(node("a", gpus=2), replace(queued(1, gpus=2, priority=1), lined_up_at=NOW), promised)
    assert (started(plan), plan.verdicts) == ({1: 2}, {2: FOR_ROOM})


def test_the_victim_does_not_take_its_room_back():
    """It lines up again with the older number; who preempted it starts first all the same."""
    victim = replace(queued(1, gpus=2), training=trains(1, on="a", gpus=2, width=2).training)
    plan = plan_of(node("a", gpus=2), victim, replace(queued(2, gpus=2, priority=1), reserved_at=NOW))
    assert (started(plan), plan.verdicts) == ({2: 2}, {1: FOR_ROOM})


def test_one_that_waits_for_another_job_or_to_be_tried_again_asks_nobody_for_room():
    follower = replace(queued(2, gpus=2, priority=9), waits_for=(1,))
    later = replace(queued(3, gpus=2, priority=9), not_before=NOW + 1.0)
    plan = plan_of(node("a", gpus=2), trains(1, on="a", gpus="1..2", width=2), follower, later)
    verdicts = {2: Verdict(Code.WAITING_FOR_JOB, 1), 3: Verdict(Code.WAITING_TO_RETRY)}
    assert plan == Plan((), verdicts)


def test_it_is_tried_again_when_its_moment_has_come():
    later = replace(queued(1), not_before=NOW)
    assert started(plan_of(node("a"), later)) == {1: 1}
