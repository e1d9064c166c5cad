"""What follows from a log of events whose answers are known by hand?"""

from __future__ import annotations

from dataclasses import replace

from experiments.logs import gang, pod, run, submitted
from swell.experiments.events import EventKind, RunEvent
from swell.experiments.figures import RunEnd
from swell.experiments.measure import GangOutcome, GangTimes, measure_gangs
from swell.experiments.occupancy import Occupied, Stay, stays

PAIR = [
    submitted("a", 1.0),
    *pod("a", 0, "n0", created=1.5, bound=3.0, running=4.0, succeeded=14.0),
    *pod("a", 1, "n1", created=2.0, bound=6.0, running=8.0, succeeded=18.0),
]


def test_the_time_of_a_gang_is_its_wait_its_start_up_and_its_run() -> None:
    [found] = measure_gangs([gang("a", 2)], PAIR, 20.0)

    assert found == GangTimes("a", 2, GangOutcome.DONE, 1.0, 2.0, 3.0, 6.0, 8.0, 18.0, 20.0)
    assert (found.wait_s, found.spread_s, found.startup_s, found.run_s) == (5.0, 3.0, 2.0, 10.0)
    assert found.total_s == 17.0 == 5.0 + 2.0 + 10.0


def test_the_order_in_which_events_are_written_does_not_matter() -> None:
    assert measure_gangs([gang("a", 2)], PAIR[::-1], 20.0) == measure_gangs([gang("a", 2)], PAIR, 20.0)


def test_overlapping_gangs_are_told_apart_and_what_incomplete_ones_hold_is_clogged() -> None:
    """b holds n2 from 1 to 7 and lacks its second rank until 5: four seconds of one node are clogged."""
    events = [
        *[submitted("a"), *pod("a", 0, "n0", bound=1.0, running=1.0, succeeded=4.0)],
        *pod("a", 1, "n1", bound=1.0, running=1.0, succeeded=4.0),
        *[submitted("b"), *pod("b", 0, "n2", bound=1.0, running=1.0, succeeded=7.0)],
        *pod("b", 1, "n0", bound=5.0, running=5.0, succeeded=7.0),
    ]
    found = run([gang("a", 2), gang("b", 2)], events, watched_s=7.0)

    assert [one.run_s for one in found.times] == [3.0, 2.0]
    assert found.figures.clogged_node_s == 4.0
    assert found.figures.clogged == 4.0 / (4 * 7.0)
    assert found.figures.makespan_s == 7.0
    assert found.figures.utilization == (3 + 3 + 6 + 2) / (4 * 7.0)  # CPU-seconds held, of 4 CPUs for 7 s
    assert (found.figures.gangs_per_s, found.figures.pods_per_s) == (2 / 5.0, 4 / 5.0)


def test_a_gang_binding_rank_by_rank_is_clogged_only_until_its_last_rank_is_bound() -> None:
    found = run([gang("a", 2)], PAIR, watched_s=20.0)

    assert found.curve == (
        Occupied(0.0, 0, 0, 0, 0),
        Occupied(3.0, 1, 1000, 0, 1),
        Occupied(6.0, 2, 2000, 0, 0),
        Occupied(14.0, 1, 1000, 0, 0),
        Occupied(18.0, 0, 0, 0, 0),
    )


def test_a_stage_that_nobody_saw_is_put_at_the_next_stage_and_marked() -> None:
    events = [submitted("a"), *pod("a", 0, running=5.0, succeeded=9.0)]
    [found] = measure_gangs([gang("a", 1)], events, 9.0)

    assert (found.created_s, found.bound_s, found.running_s, found.ended_s) == (5.0, 5.0, 5.0, 9.0)
    assert found.estimated == ("created", "bound")


def test_an_end_without_anything_before_it_still_ends_the_gang() -> None:
    events = [submitted("a"), RunEvent(9.0, EventKind.SUCCEEDED, "a", 0)]
    [found] = measure_gangs([gang("a", 1)], events, 9.0)

    assert (found.outcome, found.total_s, found.run_s) == (GangOutcome.DONE, 9.0, 0.0)
    assert found.estimated == ("created", "bound", "running")


def stamped(events: list[RunEvent], ahead: float) -> list[RunEvent]:
    return [replace(event, stamp=event.at + ahead) for event in events]


def test_a_stage_that_was_heard_of_late_is_put_at_its_stamp_whatever_the_clusters_clock_says() -> None:
    for ahead in (0.0, 300.0, -7200.0):
        seen = stamped(PAIR, ahead)
        late = [replace(one, at=8.0, is_late=True) if one.kind is EventKind.BOUND else one for one in seen]
        [found] = measure_gangs([gang("a", 2)], late, 20.0)

        assert (found.first_bound_s, found.bound_s, found.estimated) == (3.0, 6.0, ("bound",))


def test_a_stamp_that_cannot_be_is_kept_between_what_came_before_and_after() -> None:
    seen = stamped(PAIR, 0.0)
    odd = [replace(one, at=8.0, is_late=True, stamp=500.0) if one.kind is EventKind.BOUND else one for one in seen]
    [found] = measure_gangs([gang("a", 2)], odd, 20.0)

    assert (found.first_bound_s, found.bound_s, found.running_s) == (4.0, 8.0, 8.0)
    assert (found.spread_s, found.startup_s) == (4.0, 0.0)


def test_an_unfinished_gang_is_there_and_its_time_is_at_least_what_it_was_watched() -> None:
    events = [submitted("a", 2.0), *pod("a", 0, bound=3.0, running=3.0)]
    found = run([gang("a", 2), gang("b", 1)], events, watched_s=62.0, end=RunEnd.STUCK)

    first, second = found.times
    assert (first.outcome, first.is_censored, first.total_s, first.run_s) == (GangOutcome.UNFINISHED, True, 60.0, None)
    assert (second.outcome, second.total_s, second.created_s) == (GangOutcome.UNFINISHED, 62.0, None)
    assert (found.figures.makespan_s, found.figures.at_least_s, found.figures.unfinished) == (None, 62.0, 2)
    assert found.figures.clogged_node_s == 59.0


def test_a_gang_deleted_half_way_is_censored_where_it_was_deleted_and_holds_nothing_after() -> None:
    events = [
        submitted("a"),
        *pod("a", 0, "n0", created=0.0, bound=1.0, running=1.0),
        RunEvent(11.0, EventKind.DELETED, "a"),
        submitted("b"),
        *pod("b", 0, "n1", bound=1.0, running=1.0, succeeded=31.0),
    ]
    found = run([gang("a", 1), gang("b", 1)], events, watched_s=31.0)

    deleted = found.times[0]
    assert (deleted.outcome, deleted.is_censored, deleted.total_s, deleted.run_s) == (
        GangOutcome.DELETED,
        True,
        11.0,
        None,
    )
    assert (found.figures.done, found.figures.deleted, found.figures.makespan_s) == (1, 1, None)
    assert stays(events, 31.0) == (Stay("a", 0, "n0", 1.0, 11.0), Stay("b", 0, "n1", 1.0, 31.0))


def test_pods_that_are_cleared_away_after_their_end_change_nothing() -> None:
    cleared = [*PAIR, RunEvent(19.0, EventKind.DELETED, "a", 0), RunEvent(19.0, EventKind.DELETED, "a")]

    assert run([gang("a", 2)], cleared, watched_s=20.0).figures == run([gang("a", 2)], PAIR, watched_s=20.0).figures


def test_a_gang_that_was_evicted_counts_with_its_last_beginning() -> None:
    events = [
        submitted("a"),
        *pod("a", 0, created=0.0, bound=1.0, running=2.0, released=5.0),
        *pod("a", 0, "n1", created=6.0, bound=8.0, running=9.0, succeeded=19.0),
    ]
    [found] = measure_gangs([gang("a", 1)], events, 19.0)

    assert (found.restarts, found.wait_s, found.run_s, found.total_s) == (1, 8.0, 10.0, 19.0)


def test_a_rank_that_failed_fails_its_gang() -> None:
    events = [
        submitted("a"),
        *pod("a", 0, bound=1.0, running=1.0, failed=5.0),
        *pod("a", 1, bound=1.0, running=1.0),
    ]
    found = run([gang("a", 2)], events, watched_s=9.0)

    assert (found.times[0].outcome, found.times[0].ended_s, found.figures.failed) == (GangOutcome.FAILED, 5.0, 1)
    assert found.figures.makespan_s is None


def test_a_contender_that_finishes_nothing_has_no_makespan_and_no_rate() -> None:
    found = run([gang("a", 2)], [submitted("a")], watched_s=100.0, end=RunEnd.STUCK)

    figures = found.figures
    assert (figures.done, figures.makespan_s, figures.gangs_per_s, figures.pods_per_s) == (0, None, None, None)
    assert (figures.utilization, figures.clogged_node_s, figures.at_least_s) == (0.0, 0.0, 100.0)
