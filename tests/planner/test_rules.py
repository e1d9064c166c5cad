"""A cluster's rules: which nodes a task may go to, and what is said when there is none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swell.model.cluster import Node
from swell.model.job import JobState
from swell.model.placement import (
    CORDON,
    Company,
    Effect,
    Operator,
    PlacementRules,
    Requirement,
    Taint,
    Term,
    Toleration,
)
from swell.model.plan import JobView, Plan, Resize, SetSlots, Slot, Snapshot, Start, Verdict
from swell.model.reason import Code
from swell.model.resources import Resources
from swell.planner import check_plan, explain, make_plan
from swell.planner.check import BrokenPlan
from swell.planner.policies import POLICIES

from .plans import preempts
from .world import array, drained, node, queued, running, slots, trains, under, world

GPU = Taint("gpu", "yes", Effect.NO_SCHEDULE)
IN_A = PlacementRules(selector=(("zone", "a"),))
TAGGED = PlacementRules(selector=(("swell.dev/tag", "big"),))
APART, TOGETHER = PlacementRules(company=Company.APART), PlacementRules(company=Company.TOGETHER)
A, B = {"zone": "a"}, {"zone": "b"}


def planned(*things: Node | JobView, now: float = 0.0) -> Plan:
    snapshot = world(*things, now=now)
    plan = make_plan(snapshot)
    check_plan(snapshot, plan)
    return plan


def nodes_of(plan: Plan) -> dict[int, list[str]]:
    """Where each task of those that start goes."""
    return {action.job: [slot.node for slot in action.slots] for action in plan.actions if isinstance(action, Start)}


# -- which nodes ---------------------------------------------------------------------------------------------

ONE_NODE = (
    (node("n", labels=A), None, True),
    (node("n", labels=A), IN_A, True),
    (node("n", labels=B), IN_A, False),
    (node("n", labels={}), IN_A, False),
    (node("n"), IN_A, True),  # a machine of our own: nobody labels it
    (node("n"), TAGGED, False),  # but a tag is the label of a worker that has one
    (node("n", labels={"swell.dev/tag": "small"}), TAGGED, False),
    (node("n", labels={"swell.dev/tag": "big"}), TAGGED, True),
    (node("n", labels=B), PlacementRules(terms=(Term((Requirement("zone", Operator.IN, ("b", "c")),)),)), True),
    (node("n", labels=A), PlacementRules(terms=(Term((Requirement("zone", Operator.IN, ("b", "c")),)),)), False),
    (node("n", labels={}, taints=(GPU,)), None, False),
    (node("n", labels={}, taints=(GPU,)), PlacementRules(tolerations=(Toleration("gpu", "yes"),)), True),
    (node("n", labels={}, taints=(Taint("old", "", Effect.PREFER_NO_SCHEDULE),)), None, True),
    (node("n", labels={}, is_cordoned=True), None, False),
    (node("n", labels={}, is_cordoned=True), PlacementRules(tolerations=(Toleration(CORDON.key, None),)), True),
    (node("n", labels={}, tasks_max=0), None, False),
    (node("n", labels={}, tasks_max=1), None, True),
)


@pytest.mark.parametrize(("machine", "rules", "is_allowed"), ONE_NODE)
def test_a_job_starts_on_a_node_exactly_if_its_rules_allow_that(
    machine: Node, rules: PlacementRules | None, is_allowed: bool
):
    plan = planned(machine, under(queued(1), rules))
    assert nodes_of(plan) == ({1: ["n"]} if is_allowed else {})


def test_a_job_that_selects_a_tag_goes_to_the_worker_with_the_tag():
    """It went to the machine without a tag, because rules did not apply to machines that have no labels."""
    untagged, tagged = node("a"), node("b", cpus=128, labels={"swell.dev/tag": "big"})
    assert nodes_of(planned(untagged, tagged, under(queued(1), TAGGED))) == {1: ["b"]}


def test_a_job_that_selects_a_tag_that_no_worker_has_is_told_so():
    snapshot = world(node("a"), under(queued(1), TAGGED))
    plan = make_plan(snapshot)
    assert plan.verdicts == {1: Verdict(Code.NO_SUITABLE_NODE)}
    reason = explain(snapshot, snapshot.jobs_by_id[1], plan.verdicts[1])
    assert "1 node: its label swell.dev/tag is not there, not big" in reason.message


def test_the_check_refuses_a_plan_that_sends_a_job_with_a_tag_to_a_machine_without_labels():
    snapshot = world(node("a"), under(queued(1), TAGGED))
    start = make_plan(world(node("a"), queued(1)))
    with pytest.raises(BrokenPlan, match=r"job 1 may not use a, which has no label swell\.dev/tag"):
        check_plan(snapshot, start)


@pytest.mark.parametrize("policy", POLICIES)
def test_no_policy_sends_a_job_with_a_tag_to_a_machine_without_labels(policy: str):
    tagged = node("b", labels={"swell.dev/tag": "big"})
    assert nodes_of(POLICIES[policy](world(node("a", cpus=128), tagged, under(queued(1), TAGGED)))) == {1: ["b"]}


def test_among_the_allowed_nodes_the_tightest_is_chosen():
    nodes = (node("a", gpus=8, labels=A), node("b", gpus=1, labels=B), node("c", gpus=4, labels=A))
    assert nodes_of(planned(*nodes, under(queued(1, gpus=1), IN_A))) == {1: ["c"]}


def test_every_role_has_rules_of_its_own_and_the_one_with_least_choice_is_placed_first():
    """The workers would fill the only node that the master may use."""
    nodes = (node("a", gpus=4, cpus=4, labels=A), node("b", gpus=4, cpus=4, labels=B))
    job = queued(1, gpus=1, tasks=7, extra=(Resources(1000), 1))
    assert nodes_of(planned(*nodes, under(job, None, IN_A))) == {1: ["b"] * 4 + ["a"] * 4}


def test_jobs_of_one_size_and_other_rules_are_of_different_kinds():
    nodes = (node("a", gpus=1, labels=A), node("b", gpus=1, labels=B))
    jobs = (under(queued(1, gpus=1), IN_A), under(queued(2, gpus=1), IN_A), queued(3, gpus=1))
    assert nodes_of(planned(*nodes, *jobs)) == {1: ["a"], 3: ["b"]}


# -- company -------------------------------------------------------------------------------------------------


def test_tasks_that_want_to_be_apart_get_a_node_each():
    nodes = tuple(node(name, gpus=8, labels={}) for name in "abc")
    assert nodes_of(planned(*nodes, under(queued(1, gpus=1, tasks=3), APART))) == {1: ["a", "b", "c"]}


def test_tasks_that_want_to_be_together_wait_until_one_node_holds_them():
    nodes = (node("a", gpus=2, labels={}), node("b", gpus=4, labels={}), node("c", gpus=4, labels={}))
    holders = (running(1, on="b", gpus=2), running(2, on="c", gpus=1))
    job = under(queued(3, gpus=1, tasks=4), TOGETHER)
    assert planned(*nodes, *holders, job).verdicts == {3: Verdict(Code.WAITING_FOR_ROOM)}
    assert nodes_of(planned(*nodes, holders[0], job)) == {3: ["c"] * 4}


def test_company_is_a_rule_of_clusters_and_means_nothing_on_machines_of_our_own():
    assert nodes_of(planned(node("a", gpus=2), under(queued(1, gpus=1, tasks=2), APART))) == {1: ["a", "a"]}
    nodes = (node("a", gpus=2), node("b", gpus=2))
    assert nodes_of(planned(*nodes, under(queued(1, gpus=1, tasks=3), TOGETHER))) == {1: ["a", "a", "b"]}


def test_an_elastic_gang_grows_as_its_company_allows():
    nodes = (node("a", gpus=2, labels={}), node("b", gpus=4, labels={}), node("c", gpus=4, labels={}))
    elastic = queued(1, gpus=1, tasks="2..8")
    assert nodes_of(planned(*nodes, under(elastic, APART))) == {1: ["a", "b", "c"]}
    assert nodes_of(planned(*nodes, under(elastic, TOGETHER))) == {1: ["b"] * 4}
    assert nodes_of(planned(*nodes, elastic)) == {1: ["b"] * 4}  # its first run, before anything is measured


def test_an_array_whose_tasks_want_to_be_apart_runs_one_at_a_time():
    job = under(array(1, tasks=5), APART)
    plan = planned(node("a", labels={}), job)
    assert nodes_of(plan) == {1: ["a"]}


# -- how many tasks ------------------------------------------------------------------------------------------


def test_a_node_gets_no_more_tasks_than_it_takes():
    nodes = (node("a", tasks_max=2), node("b", tasks_max=3))
    assert nodes_of(planned(*nodes, queued(1, tasks=5))) == {1: ["b", "b", "b", "a", "a"]}
    assert planned(*nodes, queued(1, tasks=6)).verdicts == {1: Verdict(Code.CANNOT_RUN_HERE)}
    assert planned(*nodes, running(1, on="a"), queued(2, tasks=5)).verdicts == {2: Verdict(Code.WAITING_FOR_ROOM)}


def test_also_tasks_that_want_nothing_or_share_a_gpu_are_counted():
    card = node("a", gpus=1, tasks_max=2)
    assert nodes_of(planned(card, queued(1, cpus=0, tasks=2))) == {1: ["a", "a"]}
    assert nodes_of(planned(card, *(queued(n, cpus=0, gpu_gib=1) for n in (1, 2, 3)))) == {1: ["a"], 2: ["a"]}


def test_an_array_has_no_more_lanes_than_its_node_takes_tasks():
    plan = planned(node("a", tasks_max=3), running(1, on="a"), array(2, tasks=9))
    assert nodes_of(plan) == {2: ["a", "a"]}


def test_an_elastic_gang_grows_up_to_what_its_nodes_take():
    nodes = (node("a", gpus=8, tasks_max=3), node("b", gpus=8, tasks_max=1))
    assert nodes_of(planned(*nodes, queued(1, gpus=1, tasks="1..9"))) == {1: ["a", "a", "a", "b"]}


# -- those that run ------------------------------------------------------------------------------------------


def test_a_cordon_leaves_alone_what_runs_and_lets_nobody_in():
    nodes = (node("a", gpus=2, labels={}, is_cordoned=True), node("b", gpus=1, labels={}))
    plan = planned(*nodes, running(1, on="a", gpus=1), queued(2, gpus=1), queued(3, gpus=1))
    assert nodes_of(plan) == {2: ["b"]}
    assert plan.verdicts == {3: Verdict(Code.WAITING_FOR_ROOM)}


def test_the_lanes_of_an_array_on_a_cordoned_node_end_with_their_tasks():
    """Every task is a new one to the node; the rest of the array goes elsewhere at once."""
    job = array(1, slots=2, tasks=9, at_once=3, on="a")
    plan = planned(node("a", labels={}, is_cordoned=True), node("b", labels={}), job)
    assert plan.actions == (SetSlots(1, (*map(drained, job.slots), *slots(1, "b", first=2))),)


def test_an_elastic_job_on_a_cordoned_node_is_not_resized():
    """It could not come back to where it is, and nobody else could use what it gave."""
    nodes = (node("a", gpus=4, labels={}, is_cordoned=True), node("b", gpus=1, labels={}))
    job = trains(1, on="a", width=2, gpus="1..4", started=-1000.0)
    assert planned(*nodes, job).actions == ()


def test_a_job_grows_only_into_nodes_that_it_may_use():
    job = trains(1, on="a", width=2, gpus=1, tasks="2..8", started=-1000.0)
    tainted = node("b", gpus=4, labels={}, taints=(GPU,))
    assert planned(node("a", gpus=2, labels={}), tainted, job).actions == ()
    plan = planned(node("a", gpus=2, labels={}), replace(tainted, taints=()), job)
    assert plan.actions == (Resize(1, 4, job.mode, None),)


def test_a_victim_where_the_waiting_job_may_not_go_is_left_alone():
    nodes = (node("a", gpus=1, labels=A), node("b", gpus=1, labels=B))
    low = (trains(1, on="b", width=1, gpus=1, started=-500.0), trains(2, on="a", width=1, gpus=1, started=-5000.0))
    urgent = under(queued(3, gpus=1, priority=9), IN_A)
    assert planned(*nodes, *low, urgent).actions == (preempts(2, 3),)
    assert planned(*nodes, low[0], running(2, on="a", gpus=1), urgent).actions == ()


def test_a_reservation_leaves_nodes_alone_that_its_holder_may_not_use():
    nodes = (node("a", gpus=2, labels=A), node("b", gpus=2, labels=B))
    first = under(queued(2, gpus=2), IN_A)
    plan = planned(*nodes, running(1, on="a", gpus=1, time="1h"), first, queued(3, gpus=2), queued(4, gpus=1))
    assert nodes_of(plan) == {3: ["b"]}
    assert plan.verdicts == {2: Verdict(Code.WAITING_FOR_ROOM), 4: Verdict(Code.WAITING_IN_LINE, 2)}


# -- less than is held ---------------------------------------------------------------------------------------

SHRUNK = (
    {"cpus_milli": 1000},
    {"memory_mib": 100},
    {"tasks_max": 1},
    {"tasks_max": 0, "cpus_milli": 0, "memory_mib": 0, "devices": ()},
)


@pytest.mark.parametrize("less", SHRUNK)
def test_a_node_that_has_less_than_is_held_there_gets_nothing_new_and_loses_nothing(less: dict[str, int]):
    """Pods of others came, or a device went: neither is a reason to touch what runs."""
    before = world(
        node("a", gpus=4, cpus=8, memory_gib=8, labels={}),
        running(1, on="a", cpus=2, memory_gib=1, gpus=1, tasks=2),
        trains(2, on="a", width=1, gpus=1),
        queued(3, cpus=2, memory_gib=1, gpus=1),
        queued(4, cpus=1, memory_gib=1),
    )
    now = replace(before, nodes=(replace(before.nodes[0], **less),))
    plan = make_plan(now)
    check_plan(now, plan)
    assert plan.actions == ()
    assert all(explain(now, now.jobs_by_id[job], verdict).message for job, verdict in plan.verdicts.items())


def test_a_device_that_outsiders_use_beside_us_stays_ours_and_is_given_to_nobody_else():
    before = world(node("a", gpus=2, labels={}), running(1, on="a", gpus=1), queued(2, gpus=1), queued(3, gpus=1))
    machine = before.nodes[0]
    both = tuple(replace(device, outsiders_mib=500) for device in machine.devices)
    first = replace(before, nodes=(replace(machine, devices=(both[0], machine.devices[1])),))
    plan = make_plan(first)
    check_plan(first, plan)
    assert plan.actions == (Start(2, 1, (Slot(0, "a", Resources(1000, 0, 1), ("a-gpu1",)),)),)
    second = replace(before, nodes=(replace(machine, devices=both),))
    assert make_plan(second).actions == ()


def test_lanes_of_an_array_drain_where_there_is_less_than_they_hold():
    job = array(1, slots=3, tasks=9)
    assert planned(node("a", labels={}, tasks_max=2), job).actions == (
        SetSlots(1, (*job.slots[:2], drained(job.slots[2]))),
    )


# -- why -----------------------------------------------------------------------------------------------------


def why(snapshot: Snapshot, job: int) -> tuple[Code, str]:
    reason = explain(snapshot, snapshot.jobs_by_id[job], make_plan(snapshot).verdicts[job])
    return reason.code, reason.message


TAINTED = tuple(node(name, gpus=8, labels={}, taints=(GPU,)) for name in "abc")
CORDONED = node("d", gpus=8, labels={}, is_cordoned=True)


def test_when_no_node_is_allowed_the_objections_are_counted():
    now = world(*TAINTED, CORDONED, queued(1, gpus=1))
    assert make_plan(now).verdicts == {1: Verdict(Code.NO_SUITABLE_NODE)}
    reason = explain(now, now.jobs[0], Verdict(Code.NO_SUITABLE_NODE))
    assert reason.message == (
        "it wants 1 CPU, 1 GPU, but its placement rules allow none of the 4 nodes; "
        "3 nodes: its taint gpu=yes:NoSchedule is not tolerated; 1 node: it is cordoned"
    )
    assert reason.evidence["nodes_allowed"] == 0
    assert reason.evidence["objections"] == [
        "3 nodes: its taint gpu=yes:NoSchedule is not tolerated",
        "1 node: it is cordoned",
    ]
    assert reason.next == (
        "change its node selector, affinity or tolerations, or label, untaint or uncordon a node; "
        "it starts as soon as nodes allow it"
    )


def test_when_the_allowed_nodes_are_too_small_that_is_told_with_what_keeps_it_off_the_others():
    now = world(node("small", gpus=2, labels={}), *TAINTED, queued(1, gpus=4))
    code, message = why(now, 1)
    assert code is Code.NO_SUITABLE_NODE
    assert message == (
        "it wants 1 CPU, 4 GPUs, and the 1 of 4 nodes that its placement rules allow could not hold that even "
        "if they were empty; "
        "3 nodes: its taint gpu=yes:NoSchedule is not tolerated"
    )


def test_when_there_are_too_few_nodes_to_be_apart_that_is_told():
    now = world(node("a", gpus=8, labels={}), under(queued(1, gpus=1, tasks=2), APART))
    code, message = why(now, 1)
    assert code is Code.NO_SUITABLE_NODE
    assert message == (
        "it wants 2 tasks of 1 CPU, 1 GPU, all at once on as many different nodes, "
        "and the 1 of 1 nodes that its placement rules allow could not hold that even if they were empty"
    )


def test_what_no_node_could_hold_without_rules_cannot_run_here():
    now = world(*TAINTED, queued(1, gpus=9))
    assert make_plan(now).verdicts == {1: Verdict(Code.CANNOT_RUN_HERE)}


def test_when_the_allowed_nodes_are_full_only_those_are_spoken_of():
    now = world(
        node("z", gpus=2, labels={}),
        *TAINTED,
        running(1, on="z", gpus=2),
        running(2, on="b", gpus=1),
        queued(3, gpus=1),
    )
    code, message = why(now, 3)
    assert code is Code.WAITING_FOR_ROOM
    assert message == (
        "it wants 1 CPU, 1 GPU; the most that is free on one node is 63 CPUs, 0 GPUs; the rest is used by job 1; "
        "its placement rules exclude 3 nodes: its taint gpu=yes:NoSchedule is not tolerated"
    )


def test_nodes_that_take_no_more_tasks_are_named_as_such():
    now = world(node("a", tasks_max=1), node("b", tasks_max=1), running(1, on="a"), running(2, on="b"), queued(3))
    code, message = why(now, 3)
    assert code is Code.WAITING_FOR_ROOM
    assert message == (
        "it wants 1 CPU; the most that is free on one node is 0 CPUs; the rest is used by jobs 1, 2; "
        "2 nodes hold the maximum number of pods"
    )


# -- the second opinion --------------------------------------------------------------------------------------


def start(job: int, *nodes: str) -> Start:
    return Start(job, len(nodes), tuple(Slot(rank, name, Resources(1000)) for rank, name in enumerate(nodes)))


BROKEN = (
    ((node("a", labels=B), under(queued(1), IN_A)), start(1, "a"), "may not use a: its label zone is b, not a"),
    ((node("a", labels={}, taints=(GPU,)), queued(1)), start(1, "a"), "its taint gpu=yes:NoSchedule is not tolerated"),
    ((node("a", labels={}, is_cordoned=True), queued(1)), start(1, "a"), "may not use a: it is cordoned"),
    ((node("a", labels={}), under(queued(1, tasks=2), APART)), start(1, "a", "a"), "2 tasks on a want to be apart"),
    (
        (node("a", labels={}), node("b", labels={}), under(queued(1, tasks=2), TOGETHER)),
        start(1, "a", "b"),
        "tasks that want to be on one node are on several",
    ),
    ((node("a", tasks_max=2), running(2, on="a"), queued(1, tasks=2)), start(1, "a", "a"), "has 3 tasks and takes 2"),
)


@pytest.mark.parametrize(("things", "action", "problem"), BROKEN)
def test_the_check_refuses_a_start_against_the_rules(things: tuple[Node | JobView, ...], action: Start, problem: str):
    with pytest.raises(BrokenPlan, match=problem):
        check_plan(world(*things), Plan((action,)))


def test_the_check_refuses_another_lane_against_the_rules():
    job = array(1, slots=1, on="a", tasks=5)
    more = SetSlots(1, (*job.slots, Slot(1, "a", Resources(1000))))
    with pytest.raises(BrokenPlan, match="it is cordoned"):
        check_plan(world(node("a", labels={}, is_cordoned=True), job), Plan((more,)))
    with pytest.raises(BrokenPlan, match="2 tasks on a want to be apart"):
        check_plan(world(node("a", labels={}), under(job, APART)), Plan((more,)))


def test_the_check_looks_at_the_rules_of_each_role():
    nodes = (node("a", labels=A), node("b", labels=B))
    job = under(queued(1, tasks=1, extra=(Resources(1000), 1)), None, IN_A)
    check_plan(world(*nodes, job), Plan((replace(start(1, "b", "a"), width=1),)))
    with pytest.raises(BrokenPlan, match="may not use b"):
        check_plan(world(*nodes, job), Plan((replace(start(1, "a", "b"), width=1),)))


def test_the_check_lets_what_runs_stay_where_it_is():
    job = running(1, on="a", state=JobState.RUNNING)
    check_plan(world(node("a", labels={}, is_cordoned=True, tasks_max=0), job), Plan())
