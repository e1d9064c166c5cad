"""How many tasks of an array run at once, where, and who gives way to whom?"""

from __future__ import annotations

from dataclasses import replace

from swell.model.job import JobState
from swell.model.plan import Plan, SetSlots, Slot, Snapshot, Start, Verdict
from swell.model.reason import Code
from swell.model.resources import Resources
from swell.planner import check_plan, make_plan

from .simulation import applied
from .world import array, drained, node, queued, running, slots, world

FOR_ROOM, IN_LINE = Code.WAITING_FOR_ROOM, Code.WAITING_IN_LINE


def plan_of(snapshot: Snapshot) -> Plan:
    plan = make_plan(snapshot)
    check_plan(snapshot, plan)
    return plan


# -- how many ------------------------------------------------------------------------------------------------


def test_an_array_starts_with_one_slot_per_free_cpu():
    now = world(node("a", cpus=4), array(1, tasks=100))
    assert plan_of(now) == Plan((Start(1, 4, slots(4, "a")),))


def test_never_more_at_once_than_was_asked():
    now = world(node("a", cpus=4), array(1, tasks=100, at_once=3))
    assert plan_of(now) == Plan((Start(1, 3, slots(3, "a")),))


def test_never_more_slots_than_tasks():
    assert plan_of(world(node("a", cpus=4), array(1, tasks=2))) == Plan((Start(1, 2, slots(2, "a")),))


def test_an_array_starts_with_less_than_it_may_have():
    now = world(node("a", cpus=4), running(1, on="a", cpus=3), array(2, at_once=4))
    assert plan_of(now) == Plan((Start(2, 1, slots(1, "a")),))


def test_an_array_goes_where_most_of_it_fits():
    """It stays on its node for good, so the tightest fit was the worst choice: one slot for ever."""
    now = world(node("a", cpus=1), node("b", cpus=8), node("c", cpus=6), array(1, at_once=6))
    assert plan_of(now) == Plan((Start(1, 6, slots(6, "c")),))


def on_nodes(*nodes: str) -> tuple[Slot, ...]:
    """Slots of one CPU, one for each word."""
    return tuple(Slot(number, name, Resources(1000)) for number, name in enumerate(nodes))


def test_an_array_grows_on_its_node_first_and_then_on_others():
    now = world(node("a", cpus=4), node("b", cpus=64), array(1, slots=2, at_once=6))
    assert plan_of(now) == Plan((SetSlots(1, on_nodes("a", "a", "a", "a", "b", "b")),))


def test_an_array_starts_on_several_nodes_the_largest_first():
    now = world(node("a", cpus=1), node("b", cpus=2), node("c", cpus=3), array(1, tasks=100))
    assert plan_of(now) == Plan((Start(1, 6, on_nodes("c", "c", "c", "b", "b", "a")),))


def test_an_array_gets_nothing_more_on_a_node_where_its_attempt_has_ended():
    """Its worker there was lost and has come back, and would never begin what it is given."""
    now = world(node("a", cpus=2), node("b", cpus=2), replace(array(1, slots=2), ended_on=frozenset("b")))
    assert plan_of(now) == Plan()


def test_an_array_leaves_a_node_that_is_cordoned_and_goes_on_elsewhere():
    a, b = node("a", cpus=2, labels={}, is_cordoned=True), node("b", cpus=2, labels={})
    now = world(a, b, array(1, slots=2, at_once=4))
    draining = tuple(map(drained, slots(2, "a")))
    assert plan_of(now) == Plan((SetSlots(1, (*draining, *slots(4, "b")[2:])),))


def test_an_array_ahead_claims_what_arrays_behind_it_hold_on_any_node():
    now = world(node("a", cpus=2), node("b", cpus=2), array(1, slots=2, at_once=4), array(2, slots=2, on="b"))
    assert plan_of(now) == Plan((SetSlots(2, tuple(map(drained, slots(2, "b")))),))


def test_an_array_that_has_all_it_wants_is_left_alone():
    assert plan_of(world(node("a", cpus=4), array(1, slots=2, at_once=2))) == Plan()


def test_an_array_near_its_end_does_not_grow():
    assert plan_of(world(node("a", cpus=4), array(1, slots=2, tasks=2))) == Plan()


def test_a_draining_slot_still_counts_as_one_at_once():
    now = world(node("a", cpus=8), array(1, slots=3, draining=(2,), at_once=3))
    assert plan_of(now) == Plan()


def test_a_new_slot_has_a_number_nobody_has():
    now = world(node("a", cpus=8), array(1, slots=3, draining=(0, 1), at_once=4))
    kept = (drained(Slot(0, "a", Resources(1000))), drained(Slot(1, "a", Resources(1000))))
    assert plan_of(now) == Plan((SetSlots(1, (*kept, *slots(2, "a", first=2))),))


def test_the_tasks_of_an_array_have_devices_of_their_own():
    now = world(node("a", gpus=3), array(1, gpus=1, slots=1))
    (change,) = plan_of(now).actions
    assert [slot.devices for slot in change.slots] == [("a-gpu0",), ("a-gpu1",), ("a-gpu2",)]


def test_an_array_takes_nothing_from_running_jobs():
    now = world(node("a", cpus=2), running(1, on="a", cpus=2), array(2, priority=9))
    assert plan_of(now) == Plan((), {2: Verdict(FOR_ROOM)})


# -- giving way ----------------------------------------------------------------------------------------------


def test_a_job_ahead_drains_as_many_slots_as_it_needs_and_waits_for_them():
    now = world(node("a", cpus=4), array(1, slots=4), queued(2, cpus=2, priority=1))
    one, two, three, four = slots(4, "a")
    change = SetSlots(1, (one, two, drained(three), drained(four)))
    assert plan_of(now) == Plan((change,), {2: Verdict(FOR_ROOM)})


def test_it_does_not_start_before_the_last_of_them_has_gone():
    now = world(node("a", cpus=4), array(1, slots=4, draining=(2, 3)), queued(2, cpus=2, priority=1))
    assert plan_of(now) == Plan((), {2: Verdict(FOR_ROOM)})
    later = world(node("a", cpus=4), array(1, slots=3, draining=(2,)), queued(2, cpus=2, priority=1))
    assert plan_of(later) == Plan((), {2: Verdict(FOR_ROOM)})


def test_slots_that_drain_already_are_enough_whatever_their_numbers():
    now = world(node("a", cpus=4), array(1, slots=4, draining=(0, 1)), queued(2, cpus=2, priority=1))
    assert plan_of(now) == Plan((), {2: Verdict(FOR_ROOM)})


def test_it_starts_when_they_have_gone_and_the_array_stays_small():
    now = world(node("a", cpus=4), array(1, slots=2), queued(2, cpus=2, priority=1))
    assert plan_of(now) == Plan((Start(2, 1, slots(1, "a", cpus=2)),))


def test_an_array_ahead_of_a_job_keeps_its_slots():
    now = world(node("a", cpus=4), array(1, slots=4), queued(2, cpus=2))
    assert plan_of(now) == Plan((), {2: Verdict(FOR_ROOM)})


def test_an_array_may_lose_its_last_slot():
    now = world(node("a", cpus=2), array(1, slots=2), queued(2, cpus=2, priority=1))
    change = SetSlots(1, tuple(drained(slot) for slot in slots(2, "a")))
    assert plan_of(now) == Plan((change,), {2: Verdict(FOR_ROOM)})


def test_an_array_whose_last_slot_has_gone_waits_to_be_queued_again():
    """Its tasks are known to one worker only; moving a running array would run them twice."""
    bare = replace(array(1, slots=1), slots=())
    assert plan_of(world(node("a", cpus=2), bare)) == Plan()


def test_jobs_of_one_shape_drain_a_slot_each():
    """Only the first of them did: the second waited for the first to start before it asked."""
    now = world(node("a", cpus=4), array(1, slots=4), queued(2, priority=1), queued(3, priority=1))
    one, two, three, four = slots(4, "a")
    change = SetSlots(1, (one, two, drained(three), drained(four)))
    assert plan_of(now) == Plan((change,), {2: Verdict(FOR_ROOM), 3: Verdict(FOR_ROOM, 2)})


def test_a_small_job_does_not_take_the_room_that_drains_for_the_one_ahead():
    """One of three drained slots has gone; job 3 took it, and job 2 had to wait for the other two."""
    now = world(
        node("a", cpus=4),
        array(1, slots=3, draining=(1, 2)),
        queued(2, cpus=2, priority=2),
        queued(3, cpus=1, priority=1),
    )
    assert plan_of(now) == Plan((), {2: Verdict(FOR_ROOM), 3: Verdict(IN_LINE, 2)})


def test_an_array_ahead_drains_the_slots_of_an_array_behind():
    now = world(node("a", cpus=4), array(1, slots=4), array(2, priority=1, at_once=3))
    one, *others = slots(4, "a")
    change = SetSlots(1, (one, *(drained(slot) for slot in others)))
    assert plan_of(now) == Plan((change,), {2: Verdict(FOR_ROOM)})


def test_a_running_array_goes_on_draining_those_behind_until_it_has_what_it_wants():
    """With one slot it stopped asking, and a lower priority kept the rest of the machine."""
    now = world(node("a", cpus=4), array(1, slots=3), array(2, slots=1, priority=1))
    change = SetSlots(1, tuple(drained(slot) for slot in slots(3, "a")))
    assert plan_of(now) == Plan((change,))


def test_a_job_behind_a_reservation_still_drains_an_array_behind_it():
    """Job 3 waits for job 1 on node a; job 4 wants what the array has on node b."""
    now = world(
        node("a", cpus=4),
        node("b", cpus=2),
        running(1, on="a", cpus=4),
        array(2, on="b", slots=2),
        queued(3, cpus=4, priority=2),
        queued(4, cpus=1, priority=1),
    )
    one, two = slots(2, "b")
    verdicts = {3: Verdict(FOR_ROOM), 4: Verdict(FOR_ROOM, 3)}
    assert plan_of(now) == Plan((SetSlots(2, (one, drained(two))),), verdicts)


def test_a_running_array_does_not_stand_in_the_way_of_a_reservation():
    """It always wants more, so it took the one reservation there is, and the gang behind it had none."""
    now = world(
        node("a", cpus=2),
        node("b", cpus=2),
        array(1, on="a", slots=2, at_once=2, tasks=3),
        running(2, on="b", time="10m"),
        queued(3, cpus=2),
        queued(4, cpus=1),
    )
    assert plan_of(now) == Plan((), {3: Verdict(FOR_ROOM), 4: Verdict(IN_LINE, 3)})


def test_a_node_that_offers_less_than_it_holds_sheds_slots():
    now = world(node("a", cpus=2), array(1, slots=3))
    one, two, three = slots(3, "a")
    assert plan_of(now) == Plan((SetSlots(1, (one, two, drained(three))),))


# -- reservations --------------------------------------------------------------------------------------------


def test_an_array_without_a_limit_leaves_the_reserved_room():
    now = world(node("a", cpus=4), running(1, on="a", cpus=2, time="10m"), queued(2, cpus=4), array(3, slots=2))
    change = SetSlots(3, tuple(drained(slot) for slot in slots(2, "a")))
    assert plan_of(now) == Plan((change,), {2: Verdict(FOR_ROOM)})


def test_an_array_uses_reserved_room_as_long_as_its_tasks_end_in_time():
    def at(now: float) -> Plan:
        holder = running(1, on="a", cpus=2, time="10m")
        behind = array(3, slots=2, time="1m")
        return plan_of(world(node("a", cpus=4), holder, queued(2, cpus=4), behind, now=now))

    waits = {2: Verdict(FOR_ROOM)}
    assert at(540.0) == Plan((), waits)
    change = SetSlots(3, tuple(drained(slot) for slot in slots(2, "a")))
    assert at(541.0) == Plan((change,), waits)


def test_a_queued_array_is_the_first_that_waits_like_any_job():
    now = world(node("a", cpus=3), running(1, on="a", cpus=2, time="10m"), array(2, cpus=2), queued(3, cpus=1))
    assert plan_of(now) == Plan((Start(3, 1, slots(1, "a")),), {2: Verdict(FOR_ROOM)})
    now = world(node("a", cpus=3), running(1, on="a", cpus=2, time="10m"), array(2, cpus=3), queued(3, cpus=1))
    assert plan_of(now) == Plan((), {2: Verdict(FOR_ROOM), 3: Verdict(IN_LINE, 2)})


def test_a_job_behind_an_array_has_a_reservation_for_when_the_array_has_ended():
    now = world(node("a", cpus=4), array(1, slots=2, at_once=2), queued(2, cpus=4), queued(3), queued(4, time="1m"))
    assert plan_of(now) == Plan((Start(4, 1, slots(1, "a")),), {2: Verdict(FOR_ROOM), 3: Verdict(IN_LINE, 2)})


def test_a_job_behind_a_claim_has_a_reservation_for_when_that_one_has_ended():
    now = world(
        node("a", cpus=8, gpus=1),
        array(1, gpus=1, slots=1, draining=(0,)),
        queued(2, gpus=1, priority=3),
        queued(3, cpus=8, priority=2),
        queued(4, priority=1),
    )
    verdicts = {2: Verdict(FOR_ROOM), 3: Verdict(FOR_ROOM, 2), 4: Verdict(IN_LINE, 3)}
    assert plan_of(now) == Plan((), verdicts)


# -- out of reach --------------------------------------------------------------------------------------------


def test_an_array_on_a_machine_that_does_not_answer_is_left_as_it_is():
    now = world(node("a", is_reachable=False), node("b", cpus=1), array(1, slots=2), queued(2, priority=1))
    assert plan_of(now) == Plan((Start(2, 1, slots(1, "b")),))


def test_an_array_that_is_being_stopped_is_not_changed():
    stopping = replace(array(1, slots=2), state=JobState.STOPPING)
    now = world(node("a", cpus=2), stopping, queued(2, priority=1))
    assert plan_of(now) == Plan((), {2: Verdict(FOR_ROOM)})


def test_a_claim_stays_where_it_is_when_others_start_beside_it():
    """Chosen by the tightest fit it moved to node b as soon as job 4 was there, and both arrays were drained."""
    now = world(
        node("a", cpus=8, gpus=4),
        node("b", cpus=8, gpus=5),
        array(1, on="a", gpus=1, slots=4, at_once=4),
        array(2, on="b", gpus=1, slots=4, at_once=4),
        queued(3, gpus=4, priority=2),
        queued(4, gpus=1, priority=1),
    )
    plan = plan_of(now)
    assert [action.job for action in plan.actions] == [1, 4]
    assert plan_of(applied(now, plan)).actions == ()
