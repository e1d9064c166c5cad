"""Several jobs on one GPU, by memory; and GPUs that others use."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swell.model.cluster import Node
from swell.model.plan import Plan, SetSlots, Snapshot, Start
from swell.model.reason import Code
from swell.planner.check import BrokenPlan, check_plan
from swell.planner.plan import make_plan
from swell.planner.why.explain import explain

from .simulation import applied
from .world import GIB, array, node, queued, running, world


def planned(now: Snapshot) -> Plan:
    plan = make_plan(now)
    check_plan(now, plan)
    return plan


def started(plan: Plan) -> dict[int, tuple[str, ...]]:
    """Which devices each job was given."""
    return {
        action.job: tuple(device for slot in action.slots for device in slot.devices)
        for action in plan.actions
        if isinstance(action, Start)
    }


def mixed(name: str, *sizes_gib: int) -> Node:
    """A node whose GPUs differ."""
    alike = node(name, gpus=len(sizes_gib))
    devices = (replace(device, memory_mib=gib * GIB) for device, gib in zip(alike.devices, sizes_gib, strict=True))
    return replace(alike, devices=tuple(devices))


def why(now: Snapshot, job: int) -> tuple[Code, str]:
    plan = planned(now)
    reason = explain(now, now.jobs_by_id[job], plan.verdicts[job])
    return reason.code, reason.message


def test_jobs_share_a_gpu_as_long_as_its_memory_lasts() -> None:
    now = world(node("a", gpus=1), *(queued(n, gpu_gib=6) for n in (1, 2, 3)))
    assert started(planned(now)) == {1: ("a-gpu0",), 2: ("a-gpu0",)}
    assert why(now, 3)[0] is Code.WAITING_FOR_ROOM


def test_a_share_goes_where_least_is_left_over() -> None:
    now = world(
        node("a", gpus=3),
        running(1, on="a", gpu_gib=4, device="a-gpu0"),
        running(2, on="a", gpu_gib=9, device="a-gpu1"),
        queued(3, gpu_gib=6),
    )
    assert started(planned(now)) == {3: ("a-gpu1",)}


def test_an_open_gpu_on_another_node_is_used_before_a_whole_one_is_opened() -> None:
    now = world(
        node("small", gpus=1),
        node("large", gpus=8),
        running(1, on="large", gpu_gib=4, device="large-gpu5"),
        queued(2, gpu_gib=8),
    )
    assert started(planned(now)) == {2: ("large-gpu5",)}


def test_a_gpu_is_opened_on_the_node_that_has_fewest_whole_ones() -> None:
    now = world(node("small", gpus=1), node("large", gpus=8), queued(1, gpu_gib=8))
    assert started(planned(now)) == {1: ("small-gpu0",)}


def test_a_whole_gpu_is_not_taken_where_somebody_shares() -> None:
    now = world(node("a", gpus=2), running(1, on="a", gpu_gib=1, device="a-gpu0"), queued(2, gpus=2), queued(3, gpus=1))
    assert started(planned(now)) == {}
    now = world(node("a", gpus=2), running(1, on="a", gpu_gib=1, device="a-gpu0"), queued(3, gpus=1))
    assert started(planned(now)) == {3: ("a-gpu1",)}


def test_whole_and_shared_ones_that_start_together_never_meet() -> None:
    now = world(node("a", gpus=3), queued(1, gpus=1), queued(2, gpu_gib=10), queued(3, gpus=1), queued(4, gpu_gib=10))
    given = started(planned(now))
    assert given == {1: ("a-gpu0",), 2: ("a-gpu1",), 3: ("a-gpu2",)}


def test_whole_gpus_are_the_smallest_so_that_large_shares_find_room() -> None:
    now = world(mixed("a", 8, 16, 8), queued(1, gpus=1, tasks=2), queued(2, gpu_gib=1), queued(3, gpu_gib=9))
    assert started(planned(now)) == {1: ("a-gpu0", "a-gpu2"), 2: ("a-gpu1",), 3: ("a-gpu1",)}


def test_a_share_opens_the_smallest_gpu_that_has_room_for_it() -> None:
    now = world(mixed("a", 24, 16, 8), queued(1, gpu_gib=9), queued(2, gpu_gib=20))
    assert started(planned(now)) == {1: ("a-gpu1",), 2: ("a-gpu0",)}


def test_what_starts_beside_a_reservation_does_not_depend_on_when_its_gpus_are_looked_at() -> None:
    """Job 1 had no GPUs by name until the plan was done, so room was kept for job 3 as if one of them were another.

    Job 4 was told to wait, and the next plan, which knew the names, started it.
    """
    now = world(
        mixed("a", 8, 16, 16),
        queued(1, gpus=1, tasks=2),
        queued(2, gpu_gib=9),
        queued(3, gpu_gib=10),
        queued(4, gpu_gib=1),
    )
    plan = planned(now)
    assert started(plan) == {1: ("a-gpu0", "a-gpu1"), 2: ("a-gpu2",), 4: ("a-gpu2",)}
    assert plan.verdicts.keys() == {3}
    assert planned(applied(now, plan)).actions == ()


def test_an_exclusive_job_with_a_least_memory_gets_a_whole_gpu_that_has_it() -> None:
    now = world(node("a", gpus=2, gpu_gib=8), node("b", gpus=4, gpu_gib=40), queued(1, gpus=1, gpu_gib=20))
    assert started(planned(now)) == {1: ("b-gpu0",)}


def test_a_gang_of_shares_may_be_on_one_gpu() -> None:
    now = world(node("a", gpus=2), queued(1, tasks=3, gpu_gib=6))
    assert started(planned(now)) == {1: ("a-gpu0", "a-gpu0", "a-gpu1")}


def test_the_tasks_of_an_array_share_gpus() -> None:
    now = world(node("a", gpus=1), array(1, tasks=10, gpu_gib=5))
    assert started(planned(now)) == {1: ("a-gpu0",) * 3}


def test_an_array_that_shares_grows_into_what_is_free() -> None:
    now = world(node("a", gpus=2), array(1, tasks=10, gpu_gib=5, slots=3, devices=("a-gpu0",) * 3))
    [change] = planned(now).actions
    assert isinstance(change, SetSlots)
    assert [slot.devices for slot in change.slots] == [("a-gpu0",)] * 3 + [("a-gpu1",)] * 3


def test_an_array_behind_gives_back_as_many_shares_as_are_needed() -> None:
    now = world(
        node("a", gpus=1),
        array(1, tasks=10, gpu_gib=5, slots=3, devices=("a-gpu0",) * 3),
        queued(2, gpu_gib=8, priority=1),
    )
    [change] = planned(now).actions
    assert isinstance(change, SetSlots)
    assert [slot.is_draining for slot in change.slots] == [False, True, True]


def test_room_kept_for_shares_stays_where_it_is_when_others_open_a_gpu() -> None:
    """Job 3 opened a GPU on which room was kept for job 1; the next plan moved more of it there, and drained job 2."""
    now = world(
        mixed("a", 16, 24, 16, 8),
        queued(1, tasks=3, gpu_gib=9, priority=1),
        array(2, tasks=10, at_once=3, gpu_gib=9, slots=3, devices=("a-gpu0", "a-gpu2", "a-gpu1")),
        queued(3, tasks=2, gpu_gib=4),
    )
    plan = planned(now)
    [change, start] = plan.actions
    assert isinstance(change, SetSlots)
    assert [slot.is_draining for slot in change.slots] == [True, True, False]
    assert isinstance(start, Start)
    assert [slot.devices for slot in start.slots] == [("a-gpu1",), ("a-gpu3",)]
    assert planned(applied(now, plan)).actions == ()


def test_nothing_is_added_on_a_gpu_that_is_emptied_for_somebody() -> None:
    """An array was started beside the slot that is drained for job 2; the next plan drained it again, and so on."""
    now = world(
        node("a", gpus=2),
        running(1, on="a", gpu_gib=9, device="a-gpu1"),
        queued(2, gpus=1),
        array(3, tasks=5, at_once=2, gpu_gib=10, slots=1, devices=("a-gpu0",), draining=(0,)),
        array(4, tasks=5, at_once=2, gpu_gib=4),
        queued(5, gpu_gib=4),
    )
    plan = planned(now)
    assert "a-gpu0" not in {device for devices in started(plan).values() for device in devices}
    assert planned(applied(now, plan)).actions == ()


def test_room_for_a_whole_gpu_is_there_when_the_last_share_has_ended() -> None:
    shares = [running(n, on="a", gpu_gib=4, device="a-gpu0", time=f"{n}h") for n in (1, 2)]
    now = world(
        node("a", gpus=1), *shares, queued(3, gpus=1), queued(4, gpu_gib=4, time="30m"), queued(5, gpu_gib=4, time="3h")
    )
    assert started(planned(now)) == {4: ("a-gpu0",)}, "one that ends in time may go first, one that does not may not"
    assert why(now, 5)[0] is Code.WAITING_IN_LINE


def test_a_share_opens_another_gpu_rather_than_one_that_is_to_become_whole_for_somebody() -> None:
    now = world(
        node("a", gpus=1, gpu_gib=8),
        node("b", gpus=2),
        running(1, on="b", gpu_gib=12, device="b-gpu0", time="1h"),
        queued(2, gpus=2),
        queued(3, gpu_gib=1),
    )
    assert started(planned(now)) == {3: ("a-gpu0",)}
    assert why(now, 2)[0] is Code.WAITING_FOR_ROOM


def test_a_job_that_uses_more_than_it_reserved_is_counted_with_what_it_uses() -> None:
    over = running(1, on="a", gpu_gib=20, device="a-gpu0")
    now = world(node("a", gpus=1), over, queued(2, gpu_gib=1))
    assert started(planned(now)) == {}


def test_a_gpu_that_outsiders_use_is_taken() -> None:
    now = world(node("a", gpus=2, outsiders_gib=(1,)), queued(1, gpus=1), queued(2, gpus=1), queued(3, gpu_gib=1))
    assert started(planned(now)) == {1: ("a-gpu1",)}
    assert why(now, 2) == (
        Code.WAITING_FOR_ROOM,
        "it wants 1 CPU, 1 GPU; free here is 64 CPUs, 1 GPU; processes outside Swell use 1 GPU",
    )


def test_outsiders_beside_our_own_shares_take_from_what_is_left() -> None:
    now = world(
        node("a", gpus=1, outsiders_gib=(6,)),
        running(1, on="a", gpu_gib=6, device="a-gpu0"),
        queued(2, gpu_gib=5),
        queued(3, gpu_gib=3),
    )
    assert started(planned(now)) == {3: ("a-gpu0",)}


def test_more_memory_than_any_gpu_has_can_never_run() -> None:
    now = world(node("a", gpus=2), queued(1, gpu_gib=24))
    code, message = why(now, 1)
    assert code is Code.CANNOT_RUN_HERE
    assert message == (
        "it wants 1 CPU, 24 GiB of one GPU's memory, but this machine has 64 CPUs, 16 GiB of one GPU's memory; "
        "waiting will not help"
    )


def test_a_gpu_of_which_nobody_says_how_much_memory_it_has_is_not_shared_and_why_says_so() -> None:
    nodes = (node("a", gpus=2, gpu_gib=0), node("b", gpus=2, gpu_gib=4), node("c", cpus=1, gpus=1, gpu_gib=0))
    now = world(*nodes, queued(1, cpus=2, gpu_gib=6), queued(2, gpu_gib=2))
    assert started(planned(now)) == {2: ("b-gpu0",)}
    reason = explain(now, now.jobs_by_id[1], planned(now).verdicts[1])
    assert (reason.code, reason.message, reason.next, reason.evidence["gpu_memory_unknown"]) == (
        Code.CANNOT_RUN_HERE,
        (
            "it wants 2 CPUs, 6 GiB of one GPU's memory, but the GPU memory of a is unknown: the label "
            "nvidia.com/gpu.memory is missing there"
        ),
        (
            "label the nodes (`kubectl label node a nvidia.com/gpu.memory=MIB`; NVIDIA's GPU feature discovery "
            "sets it automatically), or cancel it and submit it again with whole GPUs"
        ),
        "a",
    )


def test_why_names_what_is_left_on_the_fullest_gpu_that_could_hold_it() -> None:
    now = world(node("a", gpus=1), running(1, on="a", gpu_gib=12, device="a-gpu0"), queued(2, gpu_gib=6))
    code, message = why(now, 2)
    assert code is Code.WAITING_FOR_ROOM
    assert message == (
        "it wants 1 CPU, 6 GiB of one GPU's memory; free here is 63 CPUs, 4 GiB of one GPU's memory; "
        "the rest is used by job 1"
    )


def test_the_check_refuses_memory_promised_twice() -> None:
    now = world(node("a", gpus=2), running(1, on="a", gpu_gib=12, device="a-gpu0"), queued(2, gpu_gib=6))
    good = make_plan(now)
    [start] = good.actions
    assert isinstance(start, Start)
    bad = replace(start, slots=(replace(start.slots[0], devices=("a-gpu0",)),))
    with pytest.raises(BrokenPlan, match="device a-gpu0 of a: its memory is promised beyond its size"):
        check_plan(now, Plan((bad,), {}))
