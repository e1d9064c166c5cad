"""A task goes where it spoils least for those that are likely to come."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.plans import starts
from planner.world import node, queued, running, shape, world
from swell.model.cluster import Node
from swell.model.job import JobState
from swell.model.placement import Operator, PlacementRules, Requirement, Term
from swell.model.plan import JobView
from swell.model.resources import Resources
from swell.planner.mix import KINDS_MAX, Mix, NodeState
from swell.planner.nodes import NodeTable

GIB = 1024


def _mix(*tasks: Resources, nodes: tuple[Node, ...] = (node("a", gpus=4),)) -> Mix:
    jobs = [
        JobView(
            n, shape(cpus=one.cpus_milli / 1000, gpus=one.gpus, gpu_gib=one.gpu_memory_mib / GIB), 0, JobState.QUEUED
        )
        for n, one in enumerate(tasks, 1)
    ]
    found = Mix.of(jobs, nodes)
    assert found is not None
    return found


def test_a_light_job_goes_where_the_cpus_for_heavy_ones_are_missing_anyway() -> None:
    """The tightest fit would be the node with fewer GPUs, which then could hold one heavy job less."""
    rich, poor = node("rich", cpus=64, gpus=2), node("poor", cpus=8, gpus=4)
    heavy = [queued(n, cpus=32, gpus=1) for n in range(2, 10)]
    assert starts(world(rich, poor, queued(1, cpus=1, gpus=1), *heavy))[1] == ["poor"]


def test_a_job_leaves_the_last_pair_of_gpus_to_those_who_need_two() -> None:
    pairs = [running(n, on="full", cpus=1, gpus=2) for n in range(1, 9)]
    now = world(node("full", gpus=16), node("pair", gpus=2), node("odd", gpus=3), *pairs, queued(9, gpus=1))
    assert starts(now) == {9: ["odd"]}


def test_with_one_kind_of_task_the_tightest_fit_is_the_best() -> None:
    assert Mix.of([queued(1, gpus=2), queued(2, gpus=2), queued(3)], (node("a", gpus=4),)) is None


def test_the_order_of_the_jobs_makes_no_difference() -> None:
    nodes = node("a", cpus=8, gpus=4), node("b", cpus=32, gpus=3), node("c", cpus=16, gpus=2)
    jobs = [queued(n, cpus=1 + n % 4, gpus=1 + n % 2) for n in range(1, 7)]
    assert starts(world(*nodes, *jobs)) == starts(world(*reversed(nodes), *reversed(jobs)))


def test_what_is_wasted_follows_from_what_still_fits() -> None:
    """Two kinds that were seen, and the whole GPU and the whole node that somebody may want: a quarter each."""
    mix = _mix(Resources(8000, 0, 2), Resources(1000, 0, 0, 12 * GIB))
    empty = NodeState(16_000, 0, 4, 16 * GIB, (), ())
    # A share of 4 GiB more on a whole GPU. The pair: of four GPUs all were usable, now 0.6 * 3 + 0.4 * 2 of 3.75. The
    # share: 0.6 * 4 + 0.4 * 4 * 0.75 were, now 12 GiB on each of four GPUs are. The whole GPU: 4 and then 3. The whole
    # node: 4 and then none.
    pair, share, whole, every = 3.75 - 2.6, 0.6 * (3.75 - 3.75) + 0.4 * (3.75 - 3) - 0.4 * (4 - 3), 0.75, 3.75
    grown = mix.growth(empty, empty.with_opened(16 * GIB, 4 * GIB))
    assert grown == pytest.approx(1e6 * (pair + share + whole + every) / 4, abs=1)


def test_a_node_that_a_kind_may_not_use_is_wasted_on_it() -> None:
    rules = PlacementRules(terms=(Term((Requirement("model", Operator.IN, ("A100",)),)),))
    nodes = node("a", gpus=4, labels={"model": "A100"}), node("t", gpus=4, labels={"model": "T4"})
    picky = replace(shape(cpus=1, gpus=2), rules=(rules,))
    mix = Mix.of([JobView(1, picky, 0, JobState.QUEUED), queued(2, gpus=1)], nodes)
    assert mix is not None
    table = NodeTable.of(nodes, None)
    assert [sum(mix.rules_met(table, name)) for name in ("a", "t")] == [2, 1]


def test_users_who_make_up_kinds_do_not_make_plans_long() -> None:
    mix = _mix(*(Resources(1000 + n, 0, 1) for n in range(2 * KINDS_MAX)))
    assert len(mix._weights) == KINDS_MAX
