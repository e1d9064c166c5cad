"""Whose pods are evicted, and for whom? Only a PriorityClass of a cluster says so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swell.model.cluster import Node
from swell.model.job import JobState, ResizeMode
from swell.model.plan import JobView, Plan, Preempt, Snapshot, Start, Verdict
from swell.model.reason import Code
from swell.planner import check_plan, explain, make_plan
from swell.planner.check import BrokenPlan

from .plans import FOR_ROOM, IMMEDIATE, NOW, asked, plan_of, preempts
from .world import array, node, queued, running, trains, world


def of_cluster(name: str, gpus: int) -> Node:
    return node(name, gpus=gpus, labels={})


def classed(job: int, *, priority: int, gpus: int, tasks: int = 1) -> JobView:
    """With a PriorityClass that takes the room of others."""
    return replace(queued(job, gpus=gpus, tasks=tasks, priority=priority), preempts=True)


def evicts(victim: int, winner: int) -> Preempt:
    return Preempt(victim, IMMEDIATE, None, winner, evicts=True)


def test_a_priority_class_takes_the_room_of_a_job_that_cannot_save():
    plan = plan_of(of_cluster("a", 2), running(1, on="a", gpus=2), classed(2, gpus=2, priority=1))
    assert plan == Plan((evicts(1, winner=2),), {2: FOR_ROOM})


@pytest.mark.parametrize("state", [JobState.STARTING, JobState.RUNNING])
def test_a_job_is_evicted_whole(state: JobState):
    plan = plan_of(of_cluster("a", 4), running(1, on="a", gpus=1, tasks=4, state=state), classed(2, gpus=1, priority=1))
    assert plan == Plan((evicts(1, winner=2),), {2: FOR_ROOM})


def test_those_that_can_save_are_asked_first_whatever_their_priority():
    plan = plan_of(
        of_cluster("a", 4),
        running(1, on="a", gpus=2, priority=0),
        trains(2, on="a", gpus=2, width=2, priority=5),
        classed(3, gpus=2, priority=9),
    )
    assert plan == Plan((preempts(2, winner=3),), {3: FOR_ROOM})


def test_who_can_save_and_is_not_enough_is_asked_beside_the_one_that_is_evicted():
    plan = plan_of(
        of_cluster("a", 4),
        running(1, on="a", gpus=2),
        trains(2, on="a", gpus=2, width=2),
        classed(3, gpus=4, priority=9),
    )
    assert plan == Plan((evicts(1, winner=3), preempts(2, winner=3)), {3: FOR_ROOM})


def test_the_lowest_priority_is_evicted_first_and_only_as_many_as_are_needed():
    plan = plan_of(
        of_cluster("a", 6),
        running(1, on="a", gpus=2, priority=3),
        running(2, on="a", gpus=2, priority=1),
        running(3, on="a", gpus=2, priority=2),
        classed(4, gpus=2, priority=9),
    )
    assert plan == Plan((evicts(2, winner=4),), {4: FOR_ROOM})


def test_one_that_waits_for_its_turn_does_not_hold_back_one_of_its_shape_and_priority_that_takes_the_room_of_others():
    """Jobs of one shape were refused together."""
    waits, takes = queued(2, gpus=2, priority=1), classed(3, gpus=2, priority=1)
    takes = replace(takes, shape=waits.shape)
    busy = [running(1, on="a", gpus=2), running(4, on="b", gpus=2)]
    plan = plan_of(of_cluster("a", 2), of_cluster("b", 2), *busy, waits, takes)
    assert [one.room_for for one in plan.actions if isinstance(one, Preempt)] == [3]


@pytest.mark.parametrize("draining", [(), (0, 1)])
def test_an_array_is_evicted_whole(draining: tuple[int, ...]):
    """Its slots were drained instead: a class waited for tasks that may run for days."""
    busy = array(1, on="a", gpus=1, slots=2, tasks=9, draining=draining)
    assert plan_of(of_cluster("a", 2), busy, classed(2, gpus=2, priority=1)) == Plan(
        (evicts(1, winner=2),), {2: FOR_ROOM}
    )


def test_of_several_arrays_only_those_are_evicted_that_are_in_the_way():
    plan = plan_of(
        of_cluster("a", 2),
        of_cluster("b", 2),
        array(1, on="a", gpus=1, slots=2, tasks=2),
        array(2, on="b", gpus=1, slots=2, tasks=2, priority=1),
        classed(3, gpus=2, priority=2),
    )
    assert plan == Plan((evicts(1, winner=3),), {3: FOR_ROOM})


def test_a_gang_and_an_array_are_evicted_together_when_neither_is_enough():
    plan = plan_of(
        of_cluster("a", 4),
        running(1, on="a", gpus=2),
        array(2, on="a", gpus=1, slots=2, tasks=2),
        classed(3, gpus=4, priority=1),
    )
    assert plan == Plan((evicts(1, winner=3), evicts(2, winner=3)), {3: FOR_ROOM})


def test_no_array_is_evicted_where_those_that_can_save_make_room():
    plan = plan_of(
        of_cluster("a", 2),
        of_cluster("b", 2),
        array(1, on="b", gpus=1, slots=2, tasks=2, priority=3),
        trains(2, on="a", gpus=2, width=2),
        classed(3, gpus=2, priority=2),
    )
    assert plan == Plan((preempts(2, winner=3),), {3: FOR_ROOM})


def test_an_array_evicts_nobody():
    """It would give its lanes back as soon as somebody ahead of it needs them."""
    wants = replace(array(2, gpus=2, tasks=2, priority=1), preempts=True)
    busy = array(1, on="a", gpus=2, slots=1, tasks=4)
    assert not [one for one in plan_of(of_cluster("a", 2), busy, wants).actions if _is_evict(one)]


KEPT = {
    "of the same priority": running(1, on="a", gpus=2, priority=1),
    "of a higher one": running(1, on="a", gpus=2, priority=2),
    "being stopped": running(1, on="a", gpus=2, state=JobState.STOPPING),
    "leaving at its checkpoint": replace(trains(1, on="a", gpus=2, width=2), yielding=0),
    "able to save, and started a moment ago": trains(1, on="a", gpus=2, width=2, started=NOW - 1.0),
    "an array of the same priority": array(1, on="a", gpus=2, slots=1, tasks=4, priority=1),
}


@pytest.mark.parametrize("why", KEPT)
def test_nobody_is_evicted_who_is(why: str):
    assert not [
        one for one in plan_of(of_cluster("a", 2), KEPT[why], classed(2, gpus=2, priority=1)).actions if _is_evict(one)
    ]


def test_without_a_class_or_with_preemption_policy_never_nobody_is_evicted():
    plan = plan_of(of_cluster("a", 2), running(1, on="a", gpus=2), queued(2, gpus=2, priority=9))
    assert plan == Plan((), {2: FOR_ROOM})


def test_on_machines_of_our_own_nobody_is_evicted():
    plan = plan_of(node("a", gpus=2), running(1, on="a", gpus=2), classed(2, gpus=2, priority=9))
    assert plan == Plan((), {2: FOR_ROOM})


def test_nobody_is_evicted_for_a_job_that_would_not_fit_even_then():
    plan = plan_of(of_cluster("a", 2), running(1, on="a", gpus=2), classed(2, gpus=3, priority=9))
    assert plan == Plan((), {2: Verdict(Code.CANNOT_RUN_HERE)})


def _is_evict(action: object) -> bool:
    return isinstance(action, Preempt) and action.evicts


@st.composite
def full_clusters(draw: st.DrawFn) -> Snapshot:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    nodes = [of_cluster(f"n{number}", gpus) for number, gpus in enumerate(sizes)]
    jobs: list[JobView] = []
    for number, gpus in enumerate(sizes):
        while gpus:
            taken = draw(st.integers(1, gpus))
            gpus -= taken
            priority, job = draw(st.integers(0, 3)), len(jobs) + 1
            made, more = draw(st.sampled_from([(running, {}), (trains, {"width": taken}), (array, {"slots": 1})]))
            jobs.append(made(job, on=f"n{number}", gpus=taken, priority=priority, **more))  # type: ignore[operator]
    for _ in range(draw(st.integers(1, 4))):
        wants = queued(len(jobs) + 1, gpus=draw(st.integers(1, 3)), tasks=draw(st.integers(1, 3)))
        wants = replace(wants, priority=draw(st.integers(0, 4)), preempts=draw(st.booleans()))
        jobs.append(wants)
    return world(*nodes, *jobs, now=NOW)


@given(full_clusters())
def test_whoever_is_evicted_is_below_somebody_with_a_class_who_gets_room_by_it(snapshot: Snapshot):
    plan = make_plan(snapshot)
    check_plan(snapshot, plan)
    evicted = [one for one in plan.actions if isinstance(one, Preempt) and one.evicts]
    for one in evicted:
        victim, winner = snapshot.jobs_by_id[one.job], snapshot.jobs_by_id[one.room_for]
        assert winner.preempts
        assert victim.priority < winner.priority
        assert victim.mode is not ResizeMode.IMMEDIATE
        assert victim.training is None
    gone = {one.job for one in plan.actions if isinstance(one, Preempt)}
    after = replace(snapshot, jobs=tuple(job for job in snapshot.jobs if job.id not in gone))
    starting = {one.job for one in make_plan(after).actions if isinstance(one, Start)}
    best = max((snapshot.jobs_by_id[one.room_for].priority for one in evicted), default=None)
    assert best is None or any(snapshot.jobs_by_id[job].priority >= best for job in starting)


# -- the second opinion, and what is said ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("victim", "winner"),
    [
        (running(1, on="a", gpus=2), queued(2, gpus=2, priority=1)),
        (running(1, on="a", gpus=2, priority=1), classed(2, gpus=2, priority=1)),
        (running(1, on="a", gpus=2, state=JobState.STOPPING), classed(2, gpus=2, priority=1)),
        (array(1, on="a", gpus=2, slots=1, tasks=4, priority=1), classed(2, gpus=2, priority=1)),
        (array(1, on="a", gpus=2, slots=1, tasks=4), queued(2, gpus=2, priority=1)),
    ],
)
def test_a_plan_that_evicts_who_may_stay_is_refused(victim: JobView, winner: JobView):
    snapshot = world(of_cluster("a", 2), victim, winner, now=NOW)
    with pytest.raises(BrokenPlan):
        check_plan(snapshot, Plan((evicts(1, winner=2),), {2: FOR_ROOM}))


def test_why_names_who_cannot_be_asked_and_who_decides_that():
    snapshot = world(of_cluster("a", 2), running(1, on="a", gpus=2), queued(2, gpus=2, priority=5), now=NOW)
    said = explain(snapshot, snapshot.jobs_by_id[2], make_plan(snapshot).verdicts[2]).message
    assert (
        "job 1 has a lower priority, but a job is preempted only if it has reported a checkpoint or was submitted with "
    ) in said
    assert said.endswith(
        ", or if a PriorityClass whose preemptionPolicy is not Never is given to the job that waits: the cluster's "
        "administrator decides who may use which (`kubectl get priorityclasses`)"
    )


def test_a_job_that_is_evicted_is_not_asked_twice():
    leaving = replace(running(1, on="a", gpus=2, state=JobState.STOPPING), yielding=0)
    assert asked(plan_of(of_cluster("a", 2), leaving, classed(2, gpus=2, priority=1))) == []
