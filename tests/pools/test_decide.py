"""How many workers a pool launches, as a table, and what holds whatever happens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swell.model.pool import PoolDemand
from swell.pools.backend import WorkerState
from swell.pools.decide import RETRY_S, RETRY_S_MAX, SURPLUS_S, Decision, PoolFacts, decide, retry_s
from swell.pools.ledger import LaunchedWorker, LaunchTotals
from swell.pools.options import PoolOptions, read_pool_options

NOW = 10_000.0
PENDING, RUNNING, UNKNOWN = WorkerState.PENDING, WorkerState.RUNNING, WorkerState.UNKNOWN


def options(**given: Any) -> PoolOptions:
    told = {"server": "https://box.lab:8443", "token_file": "/t"}
    return replace(read_pool_options("slurm", told, folder=Path("/pools")), **given)


def entries(pending: int = 0, starting: int = 0, nodes: int = 0, unknown: int = 0) -> tuple[LaunchedWorker, ...]:
    """Pending in the backend; running and not registered; nodes of the server; in a state that nobody knows."""
    kinds = [(PENDING, False)] * pending + [(RUNNING, False)] * starting
    kinds += [(RUNNING, True)] * nodes + [(UNKNOWN, False)] * unknown
    return tuple(
        LaunchedWorker(
            f"lab-{number:08x}", NOW - 100, f"b{number}", state, has_registered=is_node, seen_at=NOW, running_since=NOW
        )
        for number, (state, is_node) in enumerate(kinds)
    )


def facts(workers: int | None = 0, had: tuple[LaunchedWorker, ...] | None = (), **given: Any) -> PoolFacts:
    demand = given.pop("demand", PoolDemand(workers))
    return PoolFacts(NOW, had, demand, **given)


@pytest.mark.parametrize(
    ("wanted", "had", "told", "launch", "standing"),
    [
        (0, entries(), {}, 0, 0),  # nobody waits
        (4, entries(), {}, 4, 0),  # as many as are missing, in one round
        (40, entries(), {}, 10, 0),  # within the maximum
        (40, entries(), {"workers_max": 50}, 10, 0),  # and within one round's number
        (4, entries(pending=4), {}, 0, 0),  # all are on their way: codalab-worksheets#4078
        (4, entries(pending=1, starting=2), {}, 1, 0),
        (4, entries(nodes=3), {}, 4, 0),  # nodes are busy with other jobs
        (4, entries(nodes=8), {}, 2, 0),  # and count against the maximum
        (4, entries(unknown=2), {}, 2, 0),  # in an unknown state it may still come
        (4, entries(unknown=10), {}, 0, 0),
        (0, entries(), {"workers_min": 2}, 0, 2),  # the minimum, at once
        (3, entries(), {"workers_min": 2}, 1, 2),  # whose workers run waiting jobs, too
        (0, entries(nodes=1, pending=1), {"workers_min": 2}, 0, 0),
        (None, entries(), {}, 0, 0),  # a server that has not planned yet
        (None, entries(), {"workers_min": 1}, 0, 1),
    ],
)
def test_as_many_are_launched_as_are_missing(
    wanted: int | None, had: tuple[LaunchedWorker, ...], told: dict[str, Any], launch: int, standing: int
) -> None:
    decision = decide(options(**told), facts(wanted, had))
    assert (decision.launch, decision.standing, decision.cancel, decision.kill) == (launch, standing, (), ())


def test_what_cannot_be_asked_is_unknown_and_nothing_is_launched() -> None:
    with_minimum = options(workers_min=3)
    assert decide(with_minimum, facts(5, None)) == Decision()
    assert decide(with_minimum, facts(demand=None)) == Decision()


def test_the_next_round_waits_for_the_launch_rate_and_the_minimum_does_not() -> None:
    soon = LaunchTotals(launched_at=NOW - 5)
    assert decide(options(launch_s=10.0), facts(5, totals=soon)).launch == 0
    assert decide(options(launch_s=10.0, workers_min=2), facts(5, totals=soon)).standing == 2
    assert decide(options(launch_s=10.0), facts(5, totals=LaunchTotals(launched_at=NOW - 10))).launch == 5


@pytest.mark.parametrize(("failures", "pause"), [(1, RETRY_S), (2, 2 * RETRY_S), (3, 4 * RETRY_S), (50, RETRY_S_MAX)])
def test_after_failed_starts_it_waits_twice_as_long_each_time_and_then_tries_one(failures: int, pause: float) -> None:
    early = LaunchTotals(failures=failures, failed_at=NOW - pause + 1)
    assert decide(options(workers_min=2), facts(5, totals=early)) == Decision()
    assert retry_s(early, NOW) == 1.0
    due = replace(early, failed_at=NOW - pause)
    assert decide(options(), facts(5, totals=due)) == Decision(launch=1)
    assert decide(options(workers_min=2), facts(5, totals=due)) == Decision(standing=1)
    assert decide(options(), facts(5, entries(pending=1), totals=due)).launch == 0  # it is being tried


def test_what_waits_in_the_backend_and_nobody_wants_is_taken_back_after_a_while() -> None:
    had = entries(pending=3, starting=1, nodes=1)
    first = decide(options(), facts(2, had))
    assert (first.cancel, first.surplus_since) == ((), NOW)
    later = decide(options(), facts(2, had, surplus_since=NOW - SURPLUS_S))
    assert later.cancel == ("lab-00000001", "lab-00000002")  # the youngest; the one that starts counts for the others
    assert decide(options(workers_min=4), facts(0, had, surplus_since=NOW - SURPLUS_S)).cancel == ("lab-00000002",)
    assert decide(options(), facts(4, had, surplus_since=NOW - SURPLUS_S)).surplus_since is None
    assert decide(options(), facts(None, had, surplus_since=NOW - SURPLUS_S)).cancel == ()


def test_one_that_runs_and_never_registers_is_killed() -> None:
    silent = replace(entries(starting=1)[0], running_since=NOW - 601)
    assert decide(options(), facts(1, (silent,))).kill == (silent.id,)
    assert decide(options(), facts(1, (replace(silent, has_registered=True),))).kill == ()


def test_people_may_end_a_worker_of_this_pool_only() -> None:
    had = entries(nodes=2)
    demand = PoolDemand(0, kills=("lab-00000000", "lab-00000001", "lab-deadbeef"), forced=("lab-00000001",))
    decision = decide(options(), facts(had=had, demand=demand))
    assert (decision.cancel, decision.kill) == (("lab-00000000",), ("lab-00000001",))


def test_a_pool_that_stops_takes_back_what_waits_and_leaves_jobs_alone() -> None:
    standing = replace(entries(nodes=1)[0], id="lab-ffffffff", is_standing=True)
    had = (*entries(pending=1, nodes=1), standing)
    stopping = decide(options(workers_min=1), facts(had=had, demand=PoolDemand(9, is_stopping=True)))
    assert stopping == Decision(cancel=("lab-00000000", "lab-ffffffff"), is_stopping=True)
    assert decide(options(), facts(had=entries(nodes=1), demand=PoolDemand(9, is_stopping=True))).ends
    all_of_them = decide(options(), facts(had=had, demand=PoolDemand(9, is_stopping=True, ends_workers=True)))
    assert len(all_of_them.cancel) == 3


@pytest.mark.parametrize("has_launched", [True, False])
def test_a_pool_whose_backend_is_away_stops_unless_workers_of_it_may_be_there(has_launched: bool) -> None:
    """It went on for ever, with the problem of a backend that nobody wanted any more."""
    asked = facts(had=None, demand=PoolDemand(9, is_stopping=True), has_launched=has_launched)
    assert decide(options(), asked) == Decision(is_stopping=True, ends=not has_launched)


@given(
    st.integers(0, 30) | st.none(),
    st.tuples(*[st.integers(0, 6)] * 4),
    st.integers(0, 8),
    st.integers(1, 8),
    st.integers(1, 5),
    st.integers(0, 4),
    st.floats(0, 2000),
    st.floats(0, 2000),
)
def test_whatever_is_known_it_keeps_its_bounds(
    wanted: int | None,
    kinds: tuple[int, int, int, int],
    least: int,
    most: int,
    at_once: int,
    failures: int,
    failed_ago: float,
    launched_ago: float,
) -> None:
    had = entries(*kinds)
    told = options(workers_min=min(least, most), workers_max=most, launches_max=at_once)
    totals = LaunchTotals(failures=failures, failed_at=NOW - failed_ago, launched_at=NOW - launched_ago)
    found = decide(told, facts(wanted, had, totals=totals))
    more = found.launch + found.standing
    under_way = kinds[0] + kinds[1] + kinds[3]
    assert more >= 0
    assert not more or len(had) + more <= told.workers_max  # never above the maximum
    assert found.launch <= max(0, (wanted or 0) - under_way)  # never more than are missing
    assert found.launch <= told.launches_max
    if not failures:  # while starting works the minimum is there after one round
        assert len(had) + more >= min(told.workers_min, told.workers_max)
    else:
        assert more <= 1
