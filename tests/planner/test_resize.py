"""Who is asked to give room back, and who grows?

All jobs here have run for a long time (the clock stands at 1000) unless a story says otherwise.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from swell.model.job import JobState, ResizeMode
from swell.model.plan import JobView, Plan, Resize, Snapshot, Start, Verdict
from swell.model.reason import Code
from swell.model.resources import Resources
from swell.model.training import Training
from swell.planner import check_plan, make_plan
from swell.planner.check import BrokenPlan

from .plans import AT_CHECKPOINT, FOR_ROOM, IMMEDIATE, NEVER, NOW, asked, grows, plan_of, preempts, shrinks, started
from .world import node, queued, running, trains, world

# -- room for one that waits ---------------------------------------------------------------------------------


def test_a_job_shrinks_at_its_next_checkpoint_for_one_that_waits():
    plan = plan_of(node("a", gpus=4), trains(1, on="a", gpus="1..4", width=4), queued(2, gpus=2))
    assert plan == Plan((shrinks(1, 2, room_for=2),), {2: FOR_ROOM})


def test_several_shrink_where_one_is_not_enough_and_nobody_below_its_least_width():
    plan = plan_of(
        node("a", gpus=8),
        trains(1, on="a", gpus="2..4", width=4),
        trains(2, on="a", gpus="3..4", width=4),
        queued(3, gpus=3),
    )
    assert plan == Plan((shrinks(1, 2, room_for=3), shrinks(2, 3, room_for=3)), {3: FOR_ROOM})


def test_nobody_shrinks_for_one_that_would_still_not_fit():
    plan = plan_of(
        node("a", gpus=8),
        trains(1, on="a", gpus="2..4", width=4),
        trains(2, on="a", gpus="3..4", width=4),
        queued(3, gpus=4),
    )
    assert plan == Plan((), {3: FOR_ROOM})


def test_no_more_is_taken_than_is_missing():
    plan = plan_of(node("a", gpus=8), trains(1, on="a", gpus="1..8", width=7), queued(2, gpus=3))
    assert plan == Plan((shrinks(1, 5, room_for=2),), {2: FOR_ROOM})


def test_one_that_never_reported_a_checkpoint_is_not_asked_and_others_are():
    plan = plan_of(
        node("a", gpus=8),
        trains(1, on="a", gpus="1..4", width=4, checkpoint_at=None),
        trains(2, on="a", gpus="1..4", width=4),
        queued(3, gpus=3),
    )
    assert plan == Plan((shrinks(2, 1, room_for=3),), {3: FOR_ROOM})


def test_one_that_reports_nothing_at_all_keeps_its_width_once_it_has_started():
    silent = replace(trains(1, on="a", gpus="1..4", width=4), training=None)
    assert plan_of(node("a", gpus=4), silent, queued(2, gpus=2)) == Plan((), {2: FOR_ROOM})


def test_one_that_says_never_is_never_asked():
    rigid = trains(1, on="a", gpus="1..4", width=4, mode=NEVER)
    assert plan_of(node("a", gpus=4), rigid, queued(2, gpus=2, priority=9)) == Plan((), {2: FOR_ROOM})


def test_an_immediate_one_is_stopped_without_a_deadline():
    plan = plan_of(node("a", gpus=4), trains(1, on="a", gpus="1..4", width=4, mode=IMMEDIATE), queued(2, gpus=2))
    assert plan == Plan((Resize(1, 2, IMMEDIATE, None, 2),), {2: FOR_ROOM})


def test_one_whose_restart_costs_more_than_the_change_will_last_keeps_as_much_as_there_is():
    """All widths below its present one were worth nothing, so it was sent to the narrowest."""
    dear = trains(1, on="a", gpus="1..8", width=8, restart_s=900.0, epoch_s=((8, 10.0),))
    plan = plan_of(node("a", gpus=8), dear, queued(2, gpus=2))
    assert plan == Plan((shrinks(1, 6, room_for=2),), {2: FOR_ROOM})


def test_an_immediate_one_need_not_report_anything():
    silent = replace(trains(1, on="a", gpus="1..4", width=4, mode=IMMEDIATE), training=None)
    plan = plan_of(node("a", gpus=4), silent, queued(2, gpus=2))
    assert plan == Plan((Resize(1, 2, IMMEDIATE, None, 2),), {2: FOR_ROOM})


@pytest.mark.parametrize(
    ("every_s", "deadline_s"),
    [
        pytest.param(None, 600.0, id="one checkpoint so far"),
        pytest.param(5.0, 60.0, id="often: a minute all the same"),
        pytest.param(100.0, 300.0, id="three of its usual intervals"),
    ],
)
def test_the_deadline_follows_how_often_it_makes_checkpoints(every_s: float | None, deadline_s: float):
    plan = plan_of(node("a", gpus=2), trains(1, on="a", gpus="1..2", width=2, every_s=every_s), queued(2, gpus=1))
    assert plan.actions == (shrinks(1, 1, room_for=2, deadline_s=deadline_s),)


def test_one_that_has_just_started_is_not_asked_before_it_has_run_for_as_long_as_a_restart_takes():
    just = trains(1, on="a", gpus="1..2", width=2, started=NOW - 29.0, checkpoint_at=NOW - 1.0)
    later = replace(just, started_at=NOW - 30.0)
    assert asked(plan_of(node("a", gpus=2), just, queued(2, gpus=1))) == []
    assert asked(plan_of(node("a", gpus=2), later, queued(2, gpus=1))) == [1]


@pytest.mark.parametrize(("restart_s", "least_s"), [(1.0, 60.0), (15.0, 60.0), (30.0, 120.0)])
def test_an_immediate_one_without_a_checkpoint_of_its_own_has_had_a_minute_or_four_restarts(restart_s, least_s):
    """Or it would be restarted again and again without getting anywhere."""
    just = trains(1, on="a", gpus="1..2", width=2, checkpoint_at=5.0, mode=IMMEDIATE, restart_s=restart_s)
    just = replace(just, started_at=NOW - least_s + 1)
    later = replace(just, started_at=NOW - least_s)
    assert asked(plan_of(node("a", gpus=2), just, queued(2, gpus=1))) == []
    assert asked(plan_of(node("a", gpus=2), later, queued(2, gpus=1))) == [1]


def begun_just_now(mode: ResizeMode = IMMEDIATE, **more: object) -> JobView:
    """A second ago, at 2 of 1..4 GPUs; it has reported nothing."""
    job = trains(1, on="a", gpus="1..4", width=2, mode=mode, started=NOW - 1.0)
    return replace(job, training=None, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [1, 4])
def test_a_width_that_was_asked_for_by_hand_is_given_at_once(width: int):
    """`swell scale` of an immediate job did nothing for two minutes, and said nothing."""
    assert plan_of(node("a", gpus=4), begun_just_now()) == Plan()
    assert plan_of(node("a", gpus=4), begun_just_now(wanted=width)) == Plan((Resize(1, width, IMMEDIATE, None, None),))


def test_one_that_may_be_stopped_as_soon_as_it_runs_grows_and_shrinks_in_its_first_minutes():
    """genai's default: a job without a notifier was left as it was for two minutes when another had completed."""
    at_once = begun_just_now(is_at_once=True)
    assert plan_of(node("a", gpus=4), at_once) == Plan((grows(1, 4, IMMEDIATE),))
    assert plan_of(node("a", gpus=2), at_once, queued(2, gpus=1)) == Plan(
        (Resize(1, 1, IMMEDIATE, None, 2),), {2: FOR_ROOM}
    )


def test_but_not_before_it_has_run_as_long_as_its_restart_is_known_to_take():
    known = replace(begun_just_now(is_at_once=True), training=Training(restart_s=20.0))
    assert plan_of(node("a", gpus=4), known) == Plan()
    assert plan_of(node("a", gpus=4), known, now=NOW + 19.0) == Plan((grows(1, 4, IMMEDIATE),))


@pytest.mark.parametrize("yielding", [1, 2, 0])
def test_one_that_is_asked_already_is_not_asked_again(yielding: int):
    leaving = trains(1, on="a", gpus="1..4", width=4, yielding=yielding)
    assert plan_of(node("a", gpus=4), leaving, queued(2, gpus=2)) == Plan((), {2: FOR_ROOM})


def test_what_is_being_given_back_counts_so_only_the_rest_is_asked_for():
    """Job 1 is about to give 2 of its 4; of the 3 that are wanted 1 is missing."""
    plan = plan_of(
        node("a", gpus=8),
        trains(1, on="a", gpus="1..4", width=4, yielding=2),
        trains(2, on="a", gpus="1..4", width=4),
        queued(3, gpus=3),
    )
    assert plan == Plan((shrinks(2, 3, room_for=3),), {3: FOR_ROOM})


def test_one_that_grows_is_not_counted_on_but_its_wish_gives_way():
    """It was to come back with 4; the one that came meanwhile gets its room first."""
    plan = plan_of(node("a", gpus=4), trains(1, on="a", gpus="1..4", width=2, yielding=4), queued(2, gpus=2))
    assert started(plan) == {2: 2}


def test_those_who_wait_stand_in_line_for_what_is_given_back():
    plan = plan_of(node("a", gpus=4), trains(1, on="a", gpus="1..4", width=4), queued(2, gpus=2), queued(3, gpus=2))
    assert plan == Plan((shrinks(1, 2, room_for=2),), {2: FOR_ROOM, 3: Verdict(Code.WAITING_FOR_ROOM, 2)})


def test_two_that_both_get_room_are_told_to_wait_and_one_donor_serves_both():
    plan = plan_of(node("a", gpus=8), trains(1, on="a", gpus="1..8", width=8), queued(2, gpus=2), queued(3, gpus=2))
    assert plan == Plan((shrinks(1, 4, room_for=2),), {2: FOR_ROOM, 3: Verdict(Code.WAITING_FOR_ROOM, 2)})


def test_on_nodes_of_two_sizes_the_one_shrinks_on_whose_node_it_fits():
    """Both have 3 to spare; only node b has 4 CPUs left for the one that waits."""
    plan = plan_of(
        node("a", cpus=2, gpus=4),
        node("b", cpus=8, gpus=4),
        trains(1, on="a", gpus="1..4", width=4),
        trains(2, on="b", gpus="1..4", width=4),
        queued(3, gpus=2, cpus=4),
    )
    assert plan == Plan((shrinks(2, 2, room_for=3),), {3: FOR_ROOM})


def test_one_on_a_machine_that_does_not_answer_is_left_alone():
    """It was charged for room it does not take from anybody, and told to shrink for others' use."""
    plan = plan_of(
        node("a", gpus=4),
        node("b", gpus=4, is_reachable=False),
        trains(1, on="b", gpus="1..4", width=4),
        trains(2, on="a", gpus="1..4", width=4, left=1.0),
    )
    assert plan == Plan()


# -- tasks instead of GPUs -----------------------------------------------------------------------------------


def test_a_job_of_cpu_tasks_gives_tasks_back():
    plan = plan_of(node("a", cpus=8), trains(1, on="a", tasks="1..4", cpus=2, width=4), queued(2, cpus=3))
    assert plan == Plan((shrinks(1, 2, room_for=2),), {2: FOR_ROOM})


def test_a_job_of_cpu_tasks_grows_into_what_is_free():
    plan = plan_of(node("a", cpus=8), trains(1, on="a", tasks="1..8", cpus=1, width=2))
    assert plan == Plan((grows(1, 4),))


def test_a_job_of_tasks_with_gpus_counts_gpus():
    plan = plan_of(
        node("a", gpus=4),
        node("b", gpus=4),
        trains(1, on=("a", "a", "b", "b"), tasks="2..4", gpus=2, width=4),
        queued(2, gpus=2),
    )
    assert plan == Plan((shrinks(1, 3, room_for=2),), {2: FOR_ROOM})


def test_its_other_roles_stay_as_they_are():
    """A chief without GPUs beside 1 to 3 workers."""
    chief = (Resources(1000, 0, 0), 1)
    job = trains(1, on="a", tasks=1, gpus=1, width=1)
    wide = replace(queued(1, tasks="1..3", gpus=1, extra=chief), state=JobState.RUNNING, started_at=0.0, width=3)
    slots = [replace(job.slots[0], number=n) for n in range(3)] + [replace(job.slots[0], number=3, resources=chief[0])]
    wide = replace(wide, slots=tuple(slots), training=job.training)
    plan = plan_of(node("a", gpus=3), wide, queued(2, gpus=2))
    assert plan == Plan((shrinks(1, 1, room_for=2),), {2: FOR_ROOM})


# -- growth --------------------------------------------------------------------------------------------------


def test_a_job_grows_when_another_has_ended():
    plan = plan_of(node("a", gpus=4), trains(1, on="a", gpus="1..4", width=2))
    assert plan == Plan((grows(1, 4),))


def test_it_grows_only_into_room_that_has_been_seen_to_be_free():
    """Job 2 is about to leave, but its processes may still run."""
    leaving = running(2, on="a", gpus=2, state=JobState.STOPPING)
    assert plan_of(node("a", gpus=4), trains(1, on="a", gpus="1..4", width=2), leaving) == Plan()


def test_a_shrinking_neighbour_is_waited_for():
    plan = plan_of(
        node("a", gpus=4),
        trains(1, on="a", gpus="1..4", width=2, yielding=1),
        trains(2, on="a", gpus="1..4", width=2),
    )
    assert plan == Plan()


def test_those_who_wait_come_before_those_who_grow():
    plan = plan_of(node("a", gpus=4), trains(1, on="a", gpus="1..4", width=1), queued(2, gpus=3))
    assert plan.actions == (Start(2, 3, plan.actions[0].slots),)  # type: ignore[union-attr]


def test_of_two_that_could_grow_the_one_that_is_sooner_done_does():
    plan = plan_of(
        node("a", gpus=4),
        trains(1, on="a", gpus="1..4", width=1, left=1000.0),
        trains(2, on="a", gpus="1..4", width=1, left=20.0),
    )
    assert plan == Plan((grows(2, 3),))


def test_the_higher_priority_grows_first():
    plan = plan_of(
        node("a", gpus=4),
        trains(1, on="a", gpus="1..4", width=1, left=1000.0, priority=5),
        trains(2, on="a", gpus="1..4", width=1, left=20.0),
    )
    assert plan == Plan((grows(1, 3),))


def test_one_that_was_no_faster_when_it_was_wider_is_tried_once_more():
    """One slow measurement wrote every wider width off for ever."""
    flat = trains(1, on="a", gpus="1..8", width=2, epoch_s=((1, 100.0), (2, 60.0), (4, 60.0)))
    assert plan_of(node("a", gpus=8), flat) == Plan((grows(1, 8),))


def test_one_that_was_tried_at_all_widths_stays_at_the_fastest():
    flat = trains(1, on="a", gpus="1..8", width=2, epoch_s=((1, 100.0), (2, 60.0), (4, 60.0), (8, 61.0)))
    assert plan_of(node("a", gpus=8), flat) == Plan()


def test_one_that_is_slower_than_it_was_at_a_narrower_width_goes_back():
    slower = trains(1, on="a", gpus="1..4", width=4, epoch_s=((2, 60.0), (4, 90.0)))
    assert plan_of(node("a", gpus=4), slower) == Plan((Resize(1, 2, AT_CHECKPOINT, None, None),))


def test_one_that_is_nearly_done_does_not_restart_for_more_width():
    assert plan_of(node("a", gpus=4), trains(1, on="a", gpus="1..4", width=2, left=0.5)) == Plan()


def test_a_small_gain_is_worth_a_restart_only_in_quiet_times():
    """Two percent faster, for half a minute; somebody comes every minute, or nobody has for an hour."""
    job = trains(1, on="a", gpus="1..2", width=1, left=1e6, epoch_s=((1, 100.0), (2, 97.0)))
    busy = tuple(NOW - 60.0 * n for n in range(10, 0, -1))
    assert plan_of(node("a", gpus=2), job, arrivals=busy) == Plan()
    assert plan_of(node("a", gpus=2), job, now=NOW + 3600.0, arrivals=busy) == Plan((grows(1, 2),))


def test_a_rigid_job_does_not_grow():
    assert plan_of(node("a", gpus=4), trains(1, on="a", gpus=2, width=2)) == Plan()


def test_an_immediate_one_grows_at_once():
    job = trains(1, on="a", gpus="1..4", width=2, mode=IMMEDIATE, checkpoint_at=NOW)
    assert plan_of(node("a", gpus=4), job) == Plan((grows(1, 4, IMMEDIATE),))


def test_one_that_would_lose_work_does_not_grow_into_room_that_others_wait_to_use():
    """It was killed to grow into two GPUs, while two jobs that fit there stood in line behind a larger one, and killed
    again to shrink two minutes later."""
    holder, larger = running(1, on="a", gpus=4), queued(3, gpus=7)
    loses = trains(2, on="a", gpus="2..4", width=2, mode=IMMEDIATE, checkpoint_at=NOW - 100.0)
    safe = replace(loses, mode=AT_CHECKPOINT)
    a = node("a", gpus=8)
    assert asked(plan_of(a, holder, loses, larger, queued(4, gpus=1), queued(5, gpus=1))) == []
    assert asked(plan_of(a, holder, safe, larger, queued(4, gpus=1), queued(5, gpus=1))) == [2]
    assert asked(plan_of(a, holder, replace(loses, wanted=4), larger, queued(4, gpus=1))) == [2]


@pytest.mark.parametrize(("time", "grows_now"), [("17m", []), ("26m", []), ("27m", [2]), (None, [2])])
def test_nor_into_room_that_is_kept_and_soon_complete(time: str | None, grows_now: list[int]):
    """Job 3 gets all when job 1 has ended: in less than ten minutes, in more, or nobody knows. Job 1 began at 0."""
    holder = running(1, on="a", gpus=4, time=time)
    loses = trains(2, on="a", gpus="2..4", width=2, mode=IMMEDIATE, checkpoint_at=NOW - 100.0)
    assert asked(plan_of(node("a", gpus=8), holder, loses, queued(3, gpus=6))) == grows_now


def test_one_that_can_give_it_back_grows_into_room_that_is_kept_for_later():
    """Job 3 waits for job 1, up to an hour; meanwhile job 2 makes use of what is free."""
    plan = plan_of(
        node("a", gpus=4),
        running(1, on="a", gpus=1, time="1h"),
        trains(2, on="a", gpus="1..4", width=1),
        queued(3, gpus=3),
    )
    assert plan == Plan((grows(2, 3),), {3: FOR_ROOM})


def test_and_gives_it_back_when_that_moment_has_come():
    plan = plan_of(node("a", gpus=4), trains(2, on="a", gpus="1..4", width=3), queued(3, gpus=3))
    assert plan == Plan((shrinks(2, 1, room_for=3),), {3: FOR_ROOM})


def test_it_may_move_to_the_node_where_it_can_be_wide():
    plan = plan_of(node("a", gpus=2), node("b", gpus=4), trains(1, on="a", gpus="1..4", width=2))
    assert plan == Plan((grows(1, 4),))


def test_two_nodes_with_two_free_each_do_not_make_a_task_of_four():
    plan = plan_of(
        node("a", gpus=4),
        node("b", gpus=4),
        running(1, on="a", gpus=2),
        running(2, on="b", gpus=2),
        trains(3, on="a", gpus="1..4", width=1),
    )
    assert plan == Plan((grows(3, 2),))


# -- what somebody asked for by hand -------------------------------------------------------------------------


def test_scaled_up_with_room():
    plan = plan_of(node("a", gpus=4), trains(1, on="a", gpus="1..4", width=1, wanted=3))
    assert plan == Plan((grows(1, 3),))


def test_scaled_up_without_room_it_stays_as_it_is():
    plan = plan_of(node("a", gpus=4), running(2, on="a", gpus=3), trains(1, on="a", gpus="1..4", width=1, wanted=3))
    assert plan == Plan()


def test_scaled_up_with_some_room_it_comes_as_near_as_it_can():
    plan = plan_of(node("a", gpus=4), running(2, on="a", gpus=2), trains(1, on="a", gpus="1..4", width=1, wanted=3))
    assert plan == Plan((grows(1, 2),))


def test_scaled_up_others_give_what_they_have_above_their_least():
    plan = plan_of(
        node("a", gpus=4),
        trains(1, on="a", gpus="1..4", width=1, wanted=3),
        trains(2, on="a", gpus="1..4", width=3),
    )
    assert plan == Plan((Resize(2, 1, AT_CHECKPOINT, None, None),))


def test_scaled_down_it_shrinks_although_nobody_waits():
    plan = plan_of(node("a", gpus=4), trains(1, on="a", gpus="1..4", width=4, wanted=2))
    assert plan == Plan((Resize(1, 2, AT_CHECKPOINT, None, None),))


def test_scaled_to_what_it_has_it_stays_although_more_is_free():
    assert plan_of(node("a", gpus=4), trains(1, on="a", gpus="1..4", width=2, wanted=2)) == Plan()


def test_what_was_asked_for_by_hand_gives_way_to_one_that_waits():
    """Its least width is all that it is sure of, like everybody's."""
    plan = plan_of(node("a", gpus=4), trains(1, on="a", gpus="1..4", width=4, wanted=4), queued(2, gpus=2))
    assert plan == Plan((shrinks(1, 2, room_for=2),), {2: FOR_ROOM})


@pytest.mark.parametrize(("wanted", "width"), [(1, 1), (3, 3), (8, 4)])
def test_one_that_waits_starts_with_the_width_somebody_asked_for(wanted: int, width: int):
    waiting = replace(queued(1, gpus="1..8"), wanted=wanted)
    assert started(plan_of(node("a", gpus=4), waiting)) == {1: width}


# -- odd measurements ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch_s", [((2, 0.0),), ((1, 0.0), (2, 0.0), (4, 0.0)), ((1, 5.0), (2, 0.0))])
def test_a_job_that_reports_nonsense_stops_nobody_elses_plan(epoch_s: tuple[tuple[int, float], ...]):
    """Epochs that take no time were divided by: no plan was made as long as that job ran."""
    odd = trains(1, on="a", gpus="1..4", width=2, epoch_s=epoch_s, restart_s=0.0, left=0.0)
    assert started(plan_of(node("a", gpus=4), odd, queued(2, gpus=2))) == {2: 2}


def snapshot_of(*things: JobView) -> Snapshot:
    return world(node("a", gpus=8), *things, now=NOW)


def test_the_order_in_which_jobs_are_told_does_not_matter():
    jobs = [trains(n, on="a", gpus="1..4", width=2, left=10.0 * n) for n in (1, 2, 3)] + [queued(4, gpus=4)]
    now = snapshot_of(*jobs)
    assert make_plan(replace(now, jobs=tuple(reversed(now.jobs)))) == make_plan(now)


def partly_over(priority: int = 0) -> JobView:
    """Four tasks wide, of which the first has ended."""
    whole = trains(1, on="a", tasks="1..4", cpus=2, width=4, priority=priority)
    return replace(whole, slots=whole.slots[1:])


def test_a_gang_of_which_a_task_has_ended_is_not_resized_any_more():
    """Begun again at another width it would do again what that task has done."""
    waits = queued(2, cpus=4)
    assert plan_of(node("a", cpus=8), partly_over(), waits) == Plan((), {2: FOR_ROOM})
    assert plan_of(node("a", cpus=16), partly_over()).actions == ()
    assert [one.job for one in plan_of(node("a", cpus=8), partly_over(), queued(2, cpus=2)).actions] == [2]


def test_a_gang_of_which_a_task_has_ended_still_makes_room_for_a_higher_priority():
    plan = plan_of(node("a", cpus=8), partly_over(), queued(2, cpus=8, priority=9))
    assert plan == Plan((preempts(1, winner=2),), {2: FOR_ROOM})


def test_a_plan_that_resizes_such_a_gang_is_refused():
    with pytest.raises(BrokenPlan):
        check_plan(world(node("a", cpus=8), partly_over(), now=NOW), Plan((shrinks(1, 2, None),), {}))
