"""What each reference policy does, in small worlds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.planner.world import array, node, queued, running, trains, world

from swell.model.job import ResizeMode
from swell.model.plan import JobView, Preempt, Resize, Snapshot, Standing, Start
from swell.model.policy import POLICY_NAMES
from swell.model.training import Training
from swell.planner.policies import POLICIES, check_of

REFERENCES = [name for name in POLICY_NAMES if name != "swell"]


def test_every_policy_that_has_a_name_is_there() -> None:
    assert tuple(POLICIES) == POLICY_NAMES


def started(policy: str, snapshot: Snapshot) -> list[int]:
    plan = POLICIES[policy](snapshot)
    check_of(policy)(snapshot, plan)
    return [action.job for action in plan.actions if isinstance(action, Start)]


def holds(job: int, *, gpus: int) -> JobView:
    return replace(running(job, on="a", gpus=gpus, started=-1.0), width=gpus)


def lasting(job: JobView, seconds: float) -> JobView:
    return replace(job, estimate_s=seconds)


def resumable(job: JobView, left: float, *, at: float = 0.0) -> JobView:
    """It may be stopped at any moment, and says how many epochs of 100 s on one GPU are left."""
    return replace(job, mode=ResizeMode.IMMEDIATE, training=Training(left, ((1, 1, 100.0),), 30.0, at))


def test_fifo_lets_nobody_pass() -> None:
    snapshot = world(node("a", gpus=4), holds(1, gpus=2), queued(2, gpus=4), queued(3, gpus=1))
    assert started("fifo", snapshot) == []
    assert started("kube-default", snapshot) == [3]


def test_backfill_lets_those_pass_who_are_done_before_the_first_can_start() -> None:
    box = node("a", gpus=4)
    holder, first = lasting(holds(1, gpus=2), 1000.0), queued(2, gpus=4)
    short, long = lasting(queued(3, gpus=1), 900.0), lasting(queued(4, gpus=1), 1100.0)
    assert started("backfill", world(box, holder, first, short, long)) == [3]


def test_backfill_lets_those_pass_who_fit_beside_the_first() -> None:
    nodes = node("a", gpus=4), node("b", gpus=1)
    holder, first = lasting(holds(1, gpus=2), 1000.0), queued(2, gpus=4)
    assert started("backfill", world(*nodes, holder, first, queued(3, gpus=1))) == [3]


def test_srtf_stops_the_longest_for_the_shortest() -> None:
    snapshot = world(node("a", gpus=2), resumable(holds(1, gpus=2), 50), resumable(queued(2, gpus=2), 5))
    assert POLICIES["srtf"](snapshot).actions == (Preempt(1, ResizeMode.IMMEDIATE, None, 2),)


def test_tiresias_puts_those_who_had_much_behind_those_who_had_little() -> None:
    old = resumable(holds(1, gpus=2), 50)
    snapshot = world(node("a", gpus=2), old, queued(2, gpus=2))
    before = replace(snapshot, now=8 * 3600.0 - 2)
    assert POLICIES["tiresias"](before).actions == ()
    after = replace(snapshot, now=8 * 3600.0 - 1)
    assert POLICIES["tiresias"](after).actions == (Preempt(1, ResizeMode.IMMEDIATE, None, 2),)


def test_optimus_gives_the_next_gpu_to_whom_it_saves_the_most() -> None:
    long, short = (
        resumable(trains(n, on="a", width=1, gpus="1..4", started=-1.0), left) for n, left in ((1, 50), (2, 5))
    )
    plan = POLICIES["optimus"](world(node("a", gpus=4), long, short))
    assert plan.actions == (Resize(1, 3, ResizeMode.IMMEDIATE, None),)


def test_genai_gives_what_one_node_has_up_to_the_limit() -> None:
    waiting = queued(1, gpus="1..8")
    plan = POLICIES["genai"](world(node("a", gpus=2), node("b", gpus=4), waiting))
    [start] = plan.actions
    assert isinstance(start, Start)
    assert (start.width, {slot.node for slot in start.slots}) == (4, {"b"})


@pytest.mark.parametrize("policy", REFERENCES)
def test_no_policy_gives_a_user_more_than_they_may_have(policy: str) -> None:
    jobs = (replace(queued(n, gpus=2), user="eva") for n in (1, 2, 3))
    snapshot = replace(world(node("a", gpus=8), *jobs), users={"eva": Standing(gpus_max=4)})
    assert len(started(policy, snapshot)) == 2


@pytest.mark.parametrize("policy", REFERENCES)
def test_no_policy_starts_who_waits_for_another_or_for_a_moment(policy: str) -> None:
    follows, later = replace(queued(1), waits_for=(9,)), replace(queued(2), not_before=100.0)
    assert started(policy, world(node("a"), follows, later, queued(3))) == [3]


@pytest.mark.parametrize("policy", REFERENCES)
def test_planning_twice_changes_nothing(policy: str) -> None:
    snapshot = world(node("a", gpus=4), queued(1, gpus=1), queued(2, gpus=2), queued(3, gpus=4))
    assert POLICIES[policy](snapshot) == POLICIES[policy](replace(snapshot, jobs=snapshot.jobs[::-1]))


def start_of(policy: str, snapshot: Snapshot, job: int) -> Start:
    plan = POLICIES[policy](snapshot)
    check_of(policy)(snapshot, plan)
    [start] = [action for action in plan.actions if isinstance(action, Start) and action.job == job]
    return start


GREEDY = [name for name in REFERENCES if name != "optimus"]  # which gives every job its least width first


@pytest.mark.parametrize("policy", GREEDY)
def test_an_array_that_is_larger_than_the_cluster_starts_with_the_slots_that_fit(policy: str) -> None:
    """100 indices of one CPU never started on 16 CPUs, and under fifo every job behind them waited for ever."""
    snapshot = world(node("a", cpus=16), array(1, tasks=100))
    assert start_of(policy, snapshot, 1).width == 16


@pytest.mark.parametrize("policy", REFERENCES)
def test_an_array_starts_beside_other_jobs_with_the_slots_that_are_left(policy: str) -> None:
    snapshot = world(node("a", cpus=4), running(1, on="a", cpus=3, started=-1.0), array(2, tasks=100), queued(3))
    assert started(policy, snapshot) == [2]
    assert start_of(policy, snapshot, 2).width == 1


@pytest.mark.parametrize("policy", GREEDY)
def test_an_array_starts_with_the_gpus_that_its_user_may_have(policy: str) -> None:
    jobs = array(1, tasks=100, gpus=1, user="eva")
    snapshot = replace(world(node("a", gpus=8), jobs), users={"eva": Standing(gpus_max=4)})
    assert start_of(policy, snapshot, 1).width == 4


@pytest.mark.parametrize("policy", REFERENCES)
def test_an_array_waits_while_not_even_one_of_its_tasks_fits(policy: str) -> None:
    assert started(policy, world(node("a", cpus=16), array(1, tasks=100, cpus=17))) == []


def test_backfill_lets_an_array_pass_with_the_slots_that_fit_beside_the_first() -> None:
    nodes = node("a", gpus=4), node("b", gpus=2)
    holder, first = lasting(holds(1, gpus=2), 1000.0), queued(2, gpus=4)
    assert start_of("backfill", world(*nodes, holder, first, array(3, tasks=9, gpus=1)), 3).width == 2


def test_backfill_holds_the_room_that_an_array_can_use_when_others_end() -> None:
    """The array that waits first is larger than the cluster: when it can start was unknown, so anybody passed."""
    holder, first = lasting(holds(1, gpus=4), 1000.0), array(2, tasks=99, gpus=1, cpus=20)
    short, long = lasting(queued(3, cpus=1), 900.0), lasting(queued(4, cpus=50), 1100.0)
    assert started("backfill", world(node("a", gpus=4), holder, first, short, long)) == [3]
