"""JobSets of which each Job has the nodes of one domain to itself."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from swell.model.cluster import Node
from swell.model.job import JobState
from swell.model.placement import Domain, PlacementRules
from swell.model.plan import JobView, Plan, Slot, Start
from swell.model.reason import Code
from swell.planner import check_plan, explain, make_plan
from swell.planner.check import BrokenPlan

from .world import node, queued, running, world

ZONE = "zone"


def exclusive(job: int, jobs: int, pods: int, *, gpus: int = 0, **more: object) -> JobView:
    """So many Jobs of so many pods, each in a zone of its own."""
    view = queued(job, tasks=jobs * pods, gpus=0, **more)  # type: ignore[arg-type]
    resources = replace(view.shape.roles[0][0], gpus=gpus)
    shape = replace(
        view.shape,
        roles=((resources, jobs * pods),),
        rules=(PlacementRules(domain=Domain(ZONE, pods)),),
        is_jobset=True,
    )
    return replace(view, shape=shape)


def ordinary(job: int, pods: int, **more: object) -> JobView:
    view = queued(job, tasks=pods, **more)  # type: ignore[arg-type]
    return replace(view, shape=replace(view.shape, is_jobset=True))


def holding(job: JobView, *nodes: str) -> JobView:
    """It runs there, one task each."""
    resources = job.shape.roles[0][0]
    held = tuple(
        Slot(rank, name, resources, tuple(f"{name}-gpu{n}" for n in range(resources.gpus)))
        for rank, name in enumerate(nodes)
    )
    return replace(job, state=JobState.RUNNING, slots=held, width=len(nodes), started_at=0.0)


def zones(*sizes: tuple[str, int], gpus: int = 4) -> list[Node]:
    """`("a", 2)`: nodes a1 and a2 in zone a."""
    return [node(f"{name}{n + 1}", gpus=gpus, labels={ZONE: name}) for name, count in sizes for n in range(count)]


def planned(*things: Node | JobView) -> Plan:
    snapshot = world(*things)
    plan = make_plan(snapshot)
    check_plan(snapshot, plan)
    return plan


def nodes_of(plan: Plan) -> dict[int, list[str]]:
    return {action.job: [slot.node for slot in action.slots] for action in plan.actions if isinstance(action, Start)}


def test_each_job_of_a_set_is_in_one_domain_and_no_two_in_the_same():
    plan = planned(*zones(("a", 2), ("b", 2), ("c", 2)), exclusive(1, 3, 2, gpus=4))
    assert nodes_of(plan) == {1: ["a1", "a2", "b1", "b2", "c1", "c2"]}


def test_a_job_goes_where_it_leaves_the_least_room():
    plan = planned(*zones(("large", 3), ("small", 1)), exclusive(1, 1, 1, gpus=4))
    assert nodes_of(plan) == {1: ["small1"]}


def test_a_set_that_fits_only_in_parts_does_not_start():
    """Its second Job would have no domain: the gang is whole, or not at all."""
    plan = planned(*zones(("a", 2)), exclusive(1, 2, 2))
    assert nodes_of(plan) == {}
    assert plan.verdicts[1].code is Code.NO_SUITABLE_NODE


def test_a_set_waits_for_a_domain_of_which_others_hold_a_part():
    waits = exclusive(2, 1, 2, gpus=4)
    things = (*zones(("a", 2)), running(1, on="a1", gpus=4), waits)
    plan = planned(*things)
    assert (nodes_of(plan), plan.verdicts[2].code) == ({}, Code.WAITING_FOR_ROOM)
    assert nodes_of(planned(*zones(("a", 2)), waits)) == {2: ["a1", "a2"]}


def test_two_sets_that_start_together_share_no_domain():
    plan = planned(*zones(("a", 1), ("b", 1)), exclusive(1, 1, 1), exclusive(2, 1, 1))
    assert nodes_of(plan) == {1: ["a1"], 2: ["b1"]}


def test_a_domain_of_a_running_set_is_left_alone_though_it_has_room():
    runs = holding(exclusive(1, 1, 1), "a1")
    plan = planned(*zones(("a", 2)), runs, exclusive(2, 1, 1))
    assert nodes_of(plan) == {}


#: What is there, and what is said of a job that cannot start.
SAID = (
    (
        (*zones(("a", 2)), holding(exclusive(1, 1, 1), "a1"), exclusive(2, 1, 1)),
        Code.WAITING_FOR_ROOM,
        (
            "each of its 1 Jobs wants a domain (zone) to itself; of 1 domains 1 could hold one, and 1 of those is used "
            "by other JobSets (job 1)"
        ),
    ),
    (
        (*zones(("a", 2), ("b", 2), ("c", 1)), holding(ordinary(1, 1), "b1"), exclusive(2, 2, 2, gpus=4)),
        Code.WAITING_FOR_ROOM,
        (
            "each of its 2 Jobs wants a domain (zone) to itself; of 3 domains 2 could hold one, and 1 of those is used "
            "by other JobSets (job 1)"
        ),
    ),
    (
        (*zones(("a", 2), ("b", 1)), exclusive(2, 2, 2, gpus=4)),
        Code.NO_SUITABLE_NODE,
        "each of its 2 Jobs wants a domain (zone) to itself; of 2 domains 1 could hold one",
    ),
)


@pytest.mark.parametrize(("things", "code", "message"), SAID)
def test_why_says_how_many_domains_there_are_and_who_uses_them(
    things: tuple[Node | JobView, ...], code: Code, message: str
):
    snapshot = world(*things)
    reason = explain(snapshot, snapshot.jobs_by_id[2], make_plan(snapshot).verdicts[2])
    assert (reason.code, reason.message) == (code, message)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_set_that_shares_its_nodes_stays_off_them_too(is_first: bool):
    other = ordinary(1 if is_first else 3, 2)
    plan = planned(*zones(("a", 1), ("b", 1)), exclusive(2, 1, 1, gpus=4), other)
    [alone] = nodes_of(plan)[2]
    assert alone not in nodes_of(plan)[other.id]
    runs = holding(exclusive(2, 1, 1, gpus=4), "a1")
    assert nodes_of(planned(*zones(("a", 2), ("b", 1)), runs, other)) == {other.id: ["b1", "b1"]}


def test_jobs_that_are_no_sets_go_wherever_there_is_room():
    """Kubernetes' rule is about pods of JobSets."""
    runs = holding(exclusive(1, 1, 1), "a1")
    assert nodes_of(planned(*zones(("a", 1)), runs, queued(2))) == {2: ["a1"]}


def test_a_set_does_not_go_where_another_set_runs():
    runs = holding(ordinary(1, 1), "a1")
    assert nodes_of(planned(*zones(("a", 2), ("b", 1)), runs, exclusive(2, 1, 1))) == {2: ["b1"]}


def test_its_other_roles_stay_off_its_domains():
    alone = exclusive(1, 1, 2, gpus=4)
    resources = replace(alone.shape.roles[0][0], gpus=0)
    shape = replace(alone.shape, roles=(*alone.shape.roles, (resources, 1)), rules=(*alone.shape.rules, None))
    plan = planned(*zones(("a", 2), ("b", 1)), replace(alone, shape=shape))
    assert nodes_of(plan) == {1: ["a1", "a2", "b1"]}


def test_a_domain_must_hold_all_of_a_job_and_nodes_without_the_label_are_none():
    machines = [*zones(("a", 1)), node("bare", gpus=8, labels={})]
    plan = planned(*machines, exclusive(1, 1, 2, gpus=4))
    assert (nodes_of(plan), plan.verdicts[1].code) == ({}, Code.NO_SUITABLE_NODE)


def test_where_it_waits_does_not_change_while_room_is_made():
    """Room is kept for it in the domain that has the most; small jobs that come later do not take that."""
    busy = [running(number, on=name, gpus=4, time="1h") for number, name in ((1, "a1"), (2, "b1"), (3, "b2"))]
    waits = exclusive(4, 1, 2, gpus=4)
    late = [queued(number, gpus=4, time="10h") for number in (5, 6)]
    assert nodes_of(planned(*zones(("a", 2), ("b", 2)), *busy, waits, *late)) == {}


BROKEN = (
    ("two domains", exclusive(1, 1, 2), ["a1", "b1"]),
    ("two Jobs in one domain", exclusive(1, 2, 1), ["a1", "a2"]),
    ("a node without the label", exclusive(1, 1, 1), ["bare"]),
    ("where another set is", exclusive(1, 1, 1), ["c1"]),
    ("a set where another is alone", ordinary(1, 1), ["d1"]),
)


@pytest.mark.parametrize(("what", "job", "nodes"), BROKEN, ids=[one[0] for one in BROKEN])
def test_the_check_refuses_a_plan_that_breaks_the_rule(what: str, job: JobView, nodes: list[str]):
    others = holding(ordinary(8, 1), "c1"), holding(exclusive(9, 1, 1), "d1")
    machines = [*zones(("a", 2), ("b", 1), ("c", 1), ("d", 1)), node("bare", labels={})]
    snapshot = world(*machines, job, *others)
    resources = job.shape.roles[0][0]
    start = Start(1, len(nodes), tuple(Slot(rank, name, resources) for rank, name in enumerate(nodes)))
    with pytest.raises(BrokenPlan):
        check_plan(snapshot, Plan((start,), {}))


@pytest.mark.parametrize("seed", range(60))
def test_no_plan_breaks_the_rule_whatever_is_there(seed: int):
    """Random clusters, planned again and again as jobs start and end; every set that could start alone does at last."""
    chance = random.Random(seed)
    machines = zones(*((name, chance.randint(1, 3)) for name in "abcd"[: chance.randint(1, 4)]))
    jobs = [_any_job(chance, number) for number in range(1, 9)]
    alone = {job.id for job in jobs if nodes_of(planned(*machines, job))}
    started: set[int] = set()
    live = {job.id: job for job in jobs}
    for _ in range(40):
        plan = planned(*machines, *live.values())
        for action in plan.actions:
            if isinstance(action, Start):
                started.add(action.job)
                job = live[action.job]
                live[job.id] = replace(
                    job, state=JobState.RUNNING, slots=action.slots, width=action.width, started_at=0.0
                )
        ending = [job.id for job in live.values() if job.slots]
        if not ending:
            break
        del live[chance.choice(ending)]
    assert started == alone


def _any_job(chance: random.Random, number: int) -> JobView:
    pods, gpus, priority = chance.randint(1, 3), chance.choice((0, 1, 4)), chance.randint(0, 2)
    kind = chance.choice(("alone", "alone", "set", "other"))
    if kind == "alone":
        return exclusive(number, chance.randint(1, 3), pods, gpus=gpus, priority=priority)
    view = ordinary(number, pods, priority=priority) if kind == "set" else queued(number, tasks=pods, priority=priority)
    resources = replace(view.shape.roles[0][0], gpus=gpus)
    return replace(view, shape=replace(view.shape, roles=((resources, pods),)))
