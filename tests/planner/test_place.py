"""Which node and which devices does each task get?"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from swell.model.cluster import Node
from swell.model.placement import Company, PlacementRules
from swell.model.plan import Slot, Snapshot, Start
from swell.model.resources import Resources
from swell.planner import make_plan

from .plans import starts
from .world import array, node, queued, running, world


def test_a_start_names_node_size_and_devices_of_every_task():
    now = world(node("a", gpus=4), queued(1, cpus=2, memory_gib=1, gpus=2, tasks=2))
    task = Resources(2000, 1024, 2)
    first, second = ("a-gpu0", "a-gpu1"), ("a-gpu2", "a-gpu3")
    assert make_plan(now).actions == (Start(1, 2, (Slot(0, "a", task, first), Slot(1, "a", task, second))),)


def test_best_fit_keeps_the_large_machine_for_the_large_job():
    now = world(node("a", gpus=8), node("b", gpus=2), queued(1, gpus=2), queued(2, gpus=8))
    assert starts(now) == {1: ["b"], 2: ["a"]}


def test_a_job_without_gpus_goes_where_no_gpu_is_blocked():
    now = world(node("a", cpus=4, gpus=4), node("b", cpus=64), queued(1, cpus=4), queued(2, cpus=1, gpus=4))
    assert starts(now) == {1: ["b"], 2: ["a"]}


def test_the_fuller_of_two_equal_machines_is_the_tighter():
    now = world(node("a", gpus=4), node("b", gpus=4), running(1, on="b", gpus=2), queued(2, gpus=1))
    assert starts(now) == {2: ["b"]}


def test_a_gang_stays_on_one_machine_if_one_holds_it():
    now = world(node("a", gpus=2), node("b", gpus=2), node("c", gpus=4), queued(1, gpus=1, tasks=4))
    assert starts(now) == {1: ["c"] * 4}


def test_a_gang_that_must_spread_uses_few_machines():
    now = world(node("a", gpus=1), node("b", gpus=3), node("c", gpus=2), queued(1, gpus=1, tasks=5))
    assert starts(now) == {1: ["b", "b", "b", "c", "c"]}


def test_the_demanding_role_is_placed_first():
    demanding = (Resources(4000, 128 * 1024), 1)
    small, large = node("a", cpus=8, memory_gib=64), node("b", cpus=4, memory_gib=128)
    assert starts(world(small, large, queued(1, cpus=4, memory_gib=32, extra=demanding))) == {1: ["a", "b"]}


def test_devices_are_given_in_order_and_those_in_use_are_left_out():
    now = world(node("a", gpus=4), running(1, on="a", gpus=1), queued(2, gpus=2))
    (start,) = make_plan(now).actions
    assert start.slots[0].devices == ("a-gpu1", "a-gpu2")


def test_elastic_jobs_that_start_together_get_neighbouring_devices():
    now = world(node("a", gpus=4), queued(1, gpus="1..2"), queued(2, gpus="1..2"))
    devices = {action.job: action.slots[0].devices for action in make_plan(now).actions}
    assert devices == {1: ("a-gpu0", "a-gpu1"), 2: ("a-gpu2", "a-gpu3")}


def test_devices_are_given_in_the_order_of_the_node_whatever_they_are_called():
    now = world(node("a", gpus=12), queued(1, gpus=3), queued(2, gpus=9))
    devices = {action.job: action.slots[0].devices for action in make_plan(now).actions}
    assert devices == {1: tuple(f"a-gpu{n}" for n in range(3)), 2: tuple(f"a-gpu{n}" for n in range(3, 12))}


def test_the_devices_of_a_draining_slot_are_not_free():
    now = world(node("a", gpus=2), array(1, gpus=1, slots=1, draining=(0,), tasks=1), queued(2, gpus=1))
    (start,) = make_plan(now).actions
    assert (start.job, start.slots[0].devices) == (2, ("a-gpu1",))


def test_a_device_that_vanished_under_its_job_is_counted_once():
    """The GPU fell off the bus; the job still holds it. The others can be used, and planning goes on."""
    whole = world(node("a", gpus=3), running(1, on="a", gpus=1), queued(2, gpus=1), queued(3, gpus=1))
    broken = replace(whole.nodes[0], devices=whole.nodes[0].devices[1:])
    now = Snapshot(0.0, (broken,), whole.jobs)
    assert starts(now) == {2: ["a"]}


def test_a_machine_that_lost_memory_still_takes_jobs_that_need_none():
    now = world(node("a", memory_gib=4), running(1, on="a", memory_gib=8), queued(2), queued(3, memory_gib=1))
    assert starts(now) == {2: ["a"]}


def test_a_job_on_a_machine_that_is_gone_holds_nothing_elsewhere():
    now = world(node("a", gpus=1), running(1, on="gone", gpus=1), queued(2, gpus=1))
    assert starts(now) == {2: ["a"]}


# -- tasks that ask for nothing --------------------------------------------------------------------------------------


def on_cluster(name: str, *, pods: int = 110) -> Node:
    return replace(node(name, labels={}), tasks_max=pods)


def test_pods_without_requests_are_spread_over_the_nodes():
    nodes = [on_cluster(name) for name in "abc"]
    alone = [queued(number, cpus=0) for number in range(1, 7)]
    assert Counter(starts(world(*nodes, *alone))[number][0] for number in range(1, 7)) == {"a": 2, "b": 2, "c": 2}
    assert starts(world(*nodes, queued(1, cpus=0, tasks=5)))[1] == ["a", "a", "b", "b", "c"]


def test_pods_without_requests_go_first_where_most_more_fit():
    nodes = (on_cluster("a", pods=2), on_cluster("b", pods=5), on_cluster("c", pods=4))
    assert starts(world(*nodes, queued(1, cpus=0, tasks=4)))[1] == ["b", "b", "b", "c"]
    assert starts(world(*nodes, queued(1, cpus=0, tasks=11)))[1] == ["a"] * 2 + ["b"] * 5 + ["c"] * 4


def test_tasks_without_requests_stay_together_where_they_ask_for_it():
    gang = queued(1, cpus=0, tasks=4)
    gang = replace(gang, shape=replace(gang.shape, rules=(PlacementRules(company=Company.TOGETHER),)))
    assert len(set(starts(world(*(on_cluster(name) for name in "abc"), gang))[1])) == 1


@given(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.integers(1, 30))
def test_pods_without_requests_are_as_even_as_the_nodes_allow(pods, tasks):
    now = world(*(on_cluster(f"n{n}", pods=one) for n, one in enumerate(pods)), queued(1, cpus=0, tasks=tasks))
    found = Counter(starts(now).get(1, ()))
    assert found.total() == (tasks if tasks <= sum(pods) else 0)
    left = {f"n{n}": one - found[f"n{n}"] for n, one in enumerate(pods)}
    used = [left[name] for name in found]
    assert all(more <= 1 + least for least in used for more in left.values())
