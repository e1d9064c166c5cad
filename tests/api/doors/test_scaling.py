"""How wide a job would be if it were started again now, on a cluster whose nodes are not for everybody."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.world import node, queued, running, shape, world
from swell.api.doors.scaling import free_gpus, new_width
from swell.model.cluster import Node
from swell.model.placement import Effect, PlacementRules, Taint, Toleration
from swell.model.plan import Standing
from swell.model.resources import Resources

FOR_ML = Taint("team", "ml", Effect.NO_SCHEDULE)
OPEN = {"pool": "open"}


@pytest.mark.parametrize(
    ("what", "other", "rules", "width"),
    [
        ("a node for everybody", node("b", gpus=2, labels=OPEN), None, 4),
        ("a machine of our own has no rules", node("b", gpus=2, is_cordoned=True), None, 4),
        ("it is cordoned", node("b", gpus=2, labels=OPEN, is_cordoned=True), None, 2),
        ("its taint is not tolerated", node("b", gpus=2, labels=OPEN, taints=(FOR_ML,)), None, 2),
        (
            "its taint is tolerated",
            node("b", gpus=2, labels=OPEN, taints=(FOR_ML,)),
            PlacementRules(tolerations=(Toleration("team", "ml"),)),
            4,
        ),
        (
            "its label is another one",
            node("b", gpus=2, labels={"pool": "other"}),
            PlacementRules(selector=(("pool", "open"),)),
            2,
        ),
        ("it is out of reach", node("b", gpus=2, labels=OPEN, is_reachable=False), None, 2),
    ],
)
def test_only_gpus_that_the_job_may_use_count(what: str, other: Node, rules: PlacementRules | None, width: int) -> None:
    job = queued(1, gpus=1, tasks="1..8")
    job = replace(job, shape=replace(job.shape, rules=() if rules is None else (rules,)))
    assert new_width(job, world(node("a", gpus=2, labels=OPEN), other, job)) == width, what


def test_what_it_holds_on_a_node_that_was_cordoned_since_it_would_not_get_again() -> None:
    now = world(
        node("a", gpus=2, labels=OPEN),
        node("b", gpus=2, labels=OPEN, is_cordoned=True),
        running(1, on="b", gpus=1, tasks=2),
    )
    job = replace(now.jobs_by_id[1], shape=shape(gpus=1, tasks="1..8"))
    assert free_gpus(now) == {"a": 2}
    assert new_width(job, now) == 2


@pytest.mark.parametrize(
    ("what", "others", "gpus_max", "width"),
    [
        ("no limit", 1, None, 4),
        ("all of the limit", 0, 3, 3),
        ("what others of the same user leave", 1, 3, 2),
        ("its least", 2, 3, 1),
        ("not even that: it would not come back", 3, 3, 2),
    ],
)
def test_it_is_no_wider_than_its_user_may_hold(what: str, others: int, gpus_max: int | None, width: int) -> None:
    now = world(
        node("a", gpus=4),
        node("b", gpus=4),
        running(1, on="a", gpus=1, tasks=2, user="ann"),
        *(running(2 + n, on="b", gpus=1, user="ann") for n in range(others)),
        running(9, on="b", gpus=1, user="ben"),
    )
    now = replace(now, users={"ann": Standing(gpus_max=gpus_max)})
    job = replace(now.jobs_by_id[1], shape=shape(gpus=1, tasks="1..4"), width=2)
    assert new_width(job, now) == width, what


def test_what_tasks_hold_that_do_not_grow_counts() -> None:
    now = replace(world(node("a", gpus=8), node("b", gpus=8)), users={"ann": Standing(gpus_max=7)})
    wide = queued(1, gpus=1, tasks="1..8", extra=(Resources(gpus=3), 1), user="ann")
    assert new_width(wide, now) == 4
