"""Which plans are refused? Each test breaks a good plan in one way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swell.model.job import JobState, ResizeMode
from swell.model.plan import Action, JobView, Plan, Preempt, Resize, SetSlots, Slot, Snapshot, Standing, Start, Verdict
from swell.model.quota import DiskUse
from swell.model.reason import Code
from swell.model.resources import Resources
from swell.planner import BrokenPlan, check_plan

from .world import array, drained, node, queued, running, slots, trains, world

WAITS = Verdict(Code.WAITING_FOR_ROOM)


def refused(snapshot: Snapshot, *actions: Action, verdicts: dict[int, Verdict] | None = None) -> str:
    with pytest.raises(BrokenPlan) as refusal:
        check_plan(snapshot, Plan(actions, verdicts or {}))
    return str(refusal.value)


def one(*, cpus: float = 1, memory_gib: float = 0, gpus: int = 0, devices: tuple[str, ...] = ()) -> Slot:
    return Slot(0, "a", Resources(int(cpus * 1000), int(memory_gib * 1024), gpus), devices)


# -- a start -------------------------------------------------------------------------------------------------


def test_a_good_plan_passes():
    now = world(node("a", cpus=2), running(1, on="a"), queued(2), queued(3))
    check_plan(now, Plan((Start(2, 1, (one(),)),), {3: WAITS}))


def test_cpus_beyond_their_number():
    now = world(node("a", cpus=2), running(1, on="a"), queued(2, cpus=2))
    assert refused(now, Start(2, 1, (one(cpus=2),))) == "CPUs of a are promised beyond their number"


def test_memory_beyond_its_size():
    now = world(node("a", memory_gib=8), running(1, on="a", memory_gib=4), queued(2, memory_gib=5))
    assert refused(now, Start(2, 1, (one(memory_gib=5),))) == "memory of a is promised beyond its size"


def test_two_starts_that_fit_alone_but_not_together():
    now = world(node("a", cpus=1), queued(1), queued(2))
    starts = Start(1, 1, (one(),)), Start(2, 1, (one(),))
    assert refused(now, *starts) == "CPUs of a are promised beyond their number"


def test_a_device_promised_twice():
    now = world(node("a", gpus=2), running(1, on="a", gpus=1), queued(2, gpus=1))
    start = Start(2, 1, (one(gpus=1, devices=("a-gpu0",)),))
    assert refused(now, start) == "device a-gpu0 of a is promised 2 times"


def test_a_device_that_is_still_draining():
    now = world(node("a", gpus=1), array(1, gpus=1, slots=1, draining=(0,)), queued(2, gpus=1))
    start = Start(2, 1, (one(gpus=1, devices=("a-gpu0",)),))
    assert refused(now, start) == "device a-gpu0 of a is promised 2 times"


def test_a_device_that_is_not_there():
    now = world(node("a", gpus=1), queued(1, gpus=1))
    start = Start(1, 1, (one(gpus=1, devices=("a-gpu7",)),))
    assert refused(now, start) == "devices ['a-gpu7'] are not on node a"


def test_a_task_without_its_devices():
    now = world(node("a", gpus=1), queued(1, gpus=1))
    assert refused(now, Start(1, 1, (one(gpus=1),))) == "a slot on a has 0 devices, not 1"


def test_half_a_gang():
    now = world(node("a"), queued(1, tasks=2))
    assert refused(now, Start(1, 2, (one(),))) == "job 1: 1 slots are not the 2 tasks it wants"


def test_a_task_smaller_than_it_asked_for():
    now = world(node("a"), queued(1, cpus=2))
    assert refused(now, Start(1, 1, (one(cpus=1),))) == "job 1: 1 slots are not the 1 tasks it wants"


def test_ranks_in_disorder():
    now = world(node("a"), queued(1, tasks=2))
    assert refused(now, Start(1, 2, slots(2, "a", first=1))) == "job 1: ranks are not 0..1"


@pytest.mark.parametrize("width", [1, 5])
def test_a_width_outside_its_range(width: int):
    now = world(node("a"), queued(1, tasks="2..4"))
    assert refused(now, Start(1, width, slots(width, "a"))) == f"job 1: width {width} outside 2..4"


def test_a_job_that_begins_although_its_user_has_too_much_on_the_disk():
    users = {"anna": Standing(disk=DiskUse(11, 10))}
    fresh = replace(world(node("a"), queued(1, user="anna")), users=users)
    start = Start(1, 1, (one(),))
    assert refused(fresh, start) == "anna has more on the disk than they may, and a job of theirs begins"
    resumed = replace(world(node("a"), replace(queued(1, user="anna"), used_s=5.0)), users=users)
    check_plan(resumed, Plan((start,), {}))


def test_starting_a_running_job():
    now = world(node("a"), running(1, on="a"))
    assert refused(now, Start(1, 1, (one(),))) == "start of job 1, which is running"


def test_starting_a_job_that_still_holds_slots():
    requeued = replace(running(1, on="a"), state=JobState.QUEUED)
    assert refused(world(node("a"), requeued), Start(1, 1, (one(),))) == "start of job 1, which still holds 1 slots"


def test_starting_a_job_nobody_knows():
    assert refused(world(node("a")), Start(1, 1, (one(),))) == "an action for job 1, which is not in the snapshot"


def test_starting_a_job_twice():
    start = Start(1, 1, (one(),))
    assert refused(world(node("a"), queued(1)), start, start) == "two actions for job 1"


@pytest.mark.parametrize("place", [node("a", is_reachable=False), node("b")])
def test_a_node_that_is_gone_or_does_not_answer(place: object):
    now = world(place, queued(1))  # type: ignore[arg-type]
    assert refused(now, Start(1, 1, (one(),))) == "the plan uses node a, out of reach"


def test_a_new_slot_that_drains():
    now = world(node("a"), queued(1))
    assert refused(now, Start(1, 1, (drained(one()),))) == "a slot on a is new and draining"


# -- a change of slots ---------------------------------------------------------------------------------------


def test_a_good_change_passes():
    kept, given_back = slots(2, "a")
    now = world(node("a"), array(1, slots=2))
    check_plan(now, Plan((SetSlots(1, (kept, drained(given_back), *slots(3, "a", first=2))),)))


def test_a_slot_that_vanishes():
    now = world(node("a"), array(1, slots=2))
    assert refused(now, SetSlots(1, slots(1, "a"))) == "job 1: slot 1 vanishes before it was seen empty"


def test_a_slot_that_is_undrained():
    now = world(node("a"), array(1, slots=2, draining=(1,)))
    assert refused(now, SetSlots(1, slots(2, "a"))) == "job 1: slot 1 is undrained"


def test_a_slot_that_moves():
    now = world(node("a"), node("b"), array(1, slots=1))
    assert refused(now, SetSlots(1, slots(1, "b"))) == "job 1: slot 0 changes nodes"


def test_a_slot_that_changes_size():
    now = world(node("a"), array(1, slots=1))
    assert refused(now, SetSlots(1, slots(1, "a", cpus=2))) == "job 1: slot 0 changes size"


def test_a_slot_that_changes_devices():
    now = world(node("a", gpus=2), array(1, gpus=1, slots=1))
    assert refused(now, SetSlots(1, (one(gpus=1, devices=("a-gpu1",)),))) == "job 1: slot 0 changes devices"


def test_a_new_slot_of_another_size():
    now = world(node("a"), array(1, slots=1))
    change = SetSlots(1, (*slots(1, "a"), *slots(1, "a", cpus=2, first=1)))
    assert refused(now, change) == "job 1: slot 1 has another size"


def test_a_slot_number_used_twice():
    now = world(node("a"), array(1, slots=1))
    assert refused(now, SetSlots(1, slots(1, "a") * 2)) == "job 1: a slot number is used twice"


def test_more_slots_than_may_run_at_once():
    now = world(node("a"), array(1, slots=2, at_once=2))
    assert refused(now, SetSlots(1, slots(3, "a"))) == "job 1: more slots than may run at once"


def test_slots_of_a_gang():
    now = world(node("a"), running(1, on="a"))
    assert refused(now, SetSlots(1, slots(2, "a"))) == "job 1 is no array; its slots cannot change"


def test_slots_of_an_array_that_is_queued():
    assert refused(world(node("a"), array(1)), SetSlots(1, slots(1, "a"))) == "slots of job 1, which is queued"


def test_new_slots_beyond_the_cpus():
    now = world(node("a", cpus=2), array(1, slots=2))
    assert refused(now, SetSlots(1, slots(3, "a"))) == "CPUs of a are promised beyond their number"


def test_draining_on_a_node_that_offers_less_than_it_holds_is_fine():
    """It was refused as over-committed, and with it every plan until the array had ended."""
    first, second = slots(2, "a")
    check_plan(world(node("a", cpus=1), array(1, slots=2)), Plan((SetSlots(1, (first, drained(second))),)))


# -- freeing resources ----------------------------------------------------------------------------------------

AT_CHECKPOINT, IMMEDIATE, NEVER = ResizeMode.AT_CHECKPOINT, ResizeMode.IMMEDIATE, ResizeMode.NEVER


def trainee(**changes: object) -> JobView:
    return replace(trains(1, on="a", gpus="2..4", width=3), **changes)  # type: ignore[arg-type]


def beside(*jobs: JobView) -> Snapshot:
    return world(node("a", gpus=8), *jobs)


def resize(width: int = 4, when: ResizeMode = AT_CHECKPOINT) -> Resize:
    return Resize(1, width, when, None)


def preempt(winner: int = 2, when: ResizeMode = AT_CHECKPOINT) -> Preempt:
    return Preempt(1, when, 600.0, winner)


BOTH = pytest.mark.parametrize("action", [resize(), preempt()])


def test_a_good_resize_and_a_good_preemption_pass():
    urgent = queued(2, gpus=8, priority=1)
    check_plan(beside(trainee(), urgent), Plan((resize(),), {2: WAITS}))
    check_plan(beside(trainee(), urgent), Plan((preempt(),), {2: WAITS}))


@BOTH
@pytest.mark.parametrize("state", [JobState.STARTING, JobState.STOPPING])
def test_asking_one_that_does_not_run(action: Action, state: JobState):
    assert refused(beside(trainee(state=state)), action) == f"job 1 is {state} and cannot free resources"


@BOTH
def test_asking_one_that_waits(action: Action):
    message = "job 1 is queued and cannot free resources"
    assert refused(beside(queued(1, gpus="2..4")), action, verdicts={1: WAITS}) == message


@BOTH
def test_asking_one_that_holds_nothing(action: Action):
    assert refused(beside(trainee(slots=())), action) == "job 1 is running and cannot free resources"


@BOTH
@pytest.mark.parametrize("yielding", [0, 2, 4])
def test_asking_twice(action: Action, yielding: int):
    assert refused(beside(trainee(yielding=yielding)), action) == "job 1 is asked twice to free resources"


@BOTH
def test_asking_an_array(action: Action):
    lanes = array(1, slots=2)
    assert refused(beside(lanes), action) == "job 1 is an array; it frees its resources slot by slot"


@BOTH
def test_asking_one_that_says_never(action: Action):
    never = replace(action, when=NEVER)  # type: ignore[type-var]
    assert refused(beside(trainee(mode=NEVER)), action) == "job 1 is resized against its mode"
    assert refused(beside(trainee(mode=NEVER)), never) == "job 1 is resized against its mode"  # type: ignore[arg-type]


@BOTH
def test_stopping_one_at_once_that_stops_at_checkpoints(action: Action):
    at_once = replace(action, when=IMMEDIATE)  # type: ignore[type-var]
    assert refused(beside(trainee()), at_once) == "job 1 is resized against its mode"  # type: ignore[arg-type]


@BOTH
@pytest.mark.parametrize("training", [None, trains(1, on="a", width=1, checkpoint_at=None).training])
def test_asking_one_that_never_reported_a_checkpoint(action: Action, training: object):
    assert refused(beside(trainee(training=training)), action) == "job 1 has never reported a checkpoint"


def test_an_immediate_one_needs_none():
    check_plan(beside(trainee(training=None, mode=IMMEDIATE)), Plan((resize(when=IMMEDIATE),)))


@pytest.mark.parametrize("width", [1, 5, 3, 0])
def test_a_resize_outside_its_range_or_to_what_it_has(width: int):
    assert refused(beside(trainee()), resize(width)) == f"job 1: width {width} from 3, range 2..4"


@pytest.mark.parametrize("winner", [queued(2, gpus=8), queued(2, gpus=8, priority=-1)])
def test_preempting_for_one_that_is_not_above_it(winner: JobView):
    message = "job 1 is preempted for one that is not above it"
    assert refused(beside(trainee(), winner), preempt(), verdicts={2: WAITS}) == message


def test_preempting_for_nobody():
    assert refused(beside(trainee()), preempt(7)) == "job 1 is preempted for one that is not above it"


def test_using_the_room_of_one_that_was_only_just_asked():
    """It holds what it has until it has been seen to stop."""
    now = world(node("a", gpus=4), trains(1, on="a", gpus=4, width=4), queued(2, gpus=4, priority=1))
    start = Start(2, 4, (one(gpus=4, devices=tuple(f"a-gpu{n}" for n in range(4))),))
    assert refused(now, preempt(), start) == "device a-gpu0 of a is promised 2 times"


def test_a_resize_and_a_preemption_of_one_job():
    assert refused(beside(trainee()), resize(), preempt()) == "two actions for job 1"


# -- reasons -------------------------------------------------------------------------------------------------


def test_a_waiting_job_without_a_reason():
    message = "either a start or a reason, never both or neither: jobs [1]"
    assert refused(world(node("a"), queued(1))) == message


def test_a_reason_for_a_job_that_starts():
    start = Start(1, 1, (one(),))
    message = "either a start or a reason, never both or neither: jobs [1]"
    assert refused(world(node("a"), queued(1)), start, verdicts={1: WAITS}) == message


def test_a_reason_for_a_job_that_runs():
    message = "either a start or a reason, never both or neither: jobs [1]"
    assert refused(world(node("a"), running(1, on="a")), verdicts={1: WAITS}) == message
