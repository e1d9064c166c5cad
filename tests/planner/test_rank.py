"""Who stands before whom: fair share, limits, estimates that were wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swell.model.plan import JobView, Plan, Preempt, Snapshot, Standing, Start, Verdict
from swell.model.quota import MIB, DiskUse
from swell.model.reason import Code
from swell.planner import check_plan, explain, make_plan
from swell.planner.rank import line_up

from .simulation import applied
from .world import array, node, queued, running, trains, world

HOUR_S = 3600.0


def with_users(snapshot: Snapshot, **users: Standing) -> Snapshot:
    return replace(snapshot, users=users)


def planned(now: Snapshot) -> Plan:
    plan = make_plan(now)
    check_plan(now, plan)
    return plan


def started(now: Snapshot) -> list[int]:
    return sorted(action.job for action in planned(now).actions if isinstance(action, Start))


def why(now: Snapshot, job: int) -> tuple[Code, str]:
    reason = explain(now, now.jobs_by_id[job], planned(now).verdicts[job])
    return reason.code, reason.message


def served(now: Snapshot) -> list[int]:
    return [job.id for job in line_up(now)]


# -- fair share ----------------------------------------------------------------------------------------------


def test_one_who_submits_many_jobs_first_stands_in_nobodys_way() -> None:
    many = [queued(n, gpus=1, user="anna") for n in range(1, 301)]
    now = world(node("a", cpus=500, gpus=4), *many, queued(301, gpus=1, user="ben"), queued(302, gpus=1, user="ben"))
    assert started(now) == [1, 2, 301, 302]
    assert served(now)[:5] == [1, 301, 2, 302, 3]


def test_what_was_used_lately_counts() -> None:
    jobs = [queued(1, gpus=1, user="anna"), queued(2, gpus=1, user="anna"), queued(3, gpus=1, user="ben")]
    now = with_users(world(node("a", gpus=1), *jobs), anna=Standing(used_gpu_s=5 * HOUR_S), ben=Standing())
    assert started(now) == [3]
    assert why(now, 1)[0] is Code.WAITING_FOR_ROOM
    waiting = with_users(
        world(node("a", gpus=1), running(9, on="a", gpus=1, user="cleo"), *jobs), anna=Standing(5 * HOUR_S)
    )
    code, message = why(waiting, 1)
    assert code is Code.FAIR_SHARE
    assert message == (
        "it wants 1 CPU, 1 GPU; job 3 of ben is ahead of it: ben has recently used 0.0 GPU-hours and anna 5.0; "
        "queued jobs count, too"
    )


def test_what_runs_counts_for_those_behind_it_and_not_for_those_before() -> None:
    now = world(
        node("a", gpus=4),
        queued(1, gpus=4, user="anna"),
        running(2, on="a", gpus=2, user="anna"),
        queued(3, gpus=4, user="anna"),
        queued(4, gpus=4, user="ben"),
    )
    assert served(now) == [1, 4, 3]


def test_priority_goes_before_fairness() -> None:
    jobs = (queued(1, gpus=1, user="anna", priority=1), queued(2, gpus=1, user="ben"))
    now = with_users(world(node("a", gpus=1), *jobs), anna=Standing(used_gpu_s=100 * HOUR_S))
    assert started(now) == [1]


def test_jobs_without_gpus_count_little() -> None:
    now = world(
        node("a", cpus=64, gpus=1),
        *(queued(n, cpus=1, user="anna") for n in range(1, 9)),
        queued(9, gpus=1, user="anna"),
        queued(10, gpus=1, user="ben"),
        queued(11, gpus=1, user="ben"),
    )
    assert [job for job in served(now) if job > 8] == [10, 9, 11]


def test_alone_everything_is_as_it_was() -> None:
    now = world(node("a", gpus=1), queued(1, gpus=4), queued(2, gpus=1), queued(3, gpus=1))
    assert served(now) == [1, 2, 3]


# -- limits --------------------------------------------------------------------------------------------------


def test_nobody_holds_more_gpus_than_they_may() -> None:
    now = with_users(
        world(node("a", gpus=8), *(queued(n, gpus=1, user="anna") for n in (1, 2, 3)), queued(4, gpus=1, user="ben")),
        anna=Standing(gpus_max=2),
    )
    assert started(now) == [1, 2, 4]
    full = world(node("a", gpus=8), running(1, on="a", gpus=2, user="anna"), queued(2, gpus=1, user="anna"))
    assert why(with_users(full, anna=Standing(gpus_max=2)), 2) == (
        Code.USER_LIMIT,
        "it wants 1 CPU, 1 GPU; anna holds 2 of at most 2 GPUs",
    )


def test_a_job_that_wants_more_than_its_owner_may_hold_is_told_so() -> None:
    now = with_users(world(node("a", gpus=8), queued(1, gpus=4, user="anna")), anna=Standing(gpus_max=2))
    assert why(now, 1) == (
        Code.USER_LIMIT,
        "it wants 1 CPU, 4 GPUs, but anna may hold at most 2 GPUs; waiting will not help",
    )


def test_nobody_runs_more_jobs_than_they_may() -> None:
    now = with_users(
        world(node("a"), running(1, on="a", user="anna"), *(queued(n, user="anna") for n in (2, 3))),
        anna=Standing(running_max=2),
    )
    assert started(now) == [2]


FULL = DiskUse(30 * MIB, 20 * MIB, ((7, 25 * MIB), (8, 5 * MIB)))


def test_nothing_more_begins_of_who_has_too_much_on_the_disk_and_what_has_begun_goes_on() -> None:
    """Job 3 gave its room to somebody for a while; were it held, a resize would end it."""
    now = with_users(
        world(
            node("a", cpus=4, gpus=4),
            running(1, on="a", user="anna"),
            queued(2, user="anna"),
            replace(queued(3, user="anna"), used_s=60.0),
            queued(4, user="ben"),
        ),
        anna=Standing(disk=FULL),
        ben=Standing(disk=DiskUse(20 * MIB, 20 * MIB)),
    )
    assert started(now) == [3, 4]
    assert why(now, 2) == (
        Code.USER_LIMIT,
        f"anna has {FULL.in_words}; no more of their jobs start",
    )
    told = explain(now, now.jobs_by_id[2], Verdict(Code.USER_LIMIT))
    assert told.evidence == {"user": "anna", "disk_mib": 30.0, "disk_mib_max": 20, "largest": [7, 8]}
    assert told.next.startswith("delete jobs that have ended, with their logs and checkpoints (swell delete 7)")


def test_who_has_too_much_on_the_disk_holds_nothing_back_from_others() -> None:
    now = with_users(
        world(node("a", gpus=2), queued(1, gpus=2, user="anna"), queued(2, gpus=2, user="ben")),
        anna=Standing(disk=FULL),
    )
    assert started(now) == [2]
    assert why(now, 1)[0] is Code.USER_LIMIT


def test_one_at_their_limit_holds_nothing_back_from_others() -> None:
    now = with_users(
        world(
            node("a", gpus=4),
            running(1, on="a", gpus=2, user="anna"),
            queued(2, gpus=2, user="anna"),
            queued(3, gpus=2, user="ben"),
        ),
        anna=Standing(gpus_max=2),
    )
    assert started(now) == [3]


def test_what_is_reserved_for_a_job_counts_for_its_owners_limit() -> None:
    """A later job of hers used the limit up; the next plan gave the reservation away to whoever came next."""
    now = with_users(
        world(
            node("a", gpus=3),
            running(1, on="a", user="anna"),
            running(2, on="a", gpus=1, user="ben"),
            queued(3, gpus=3, user="anna"),
            queued(4, user="anna"),
            queued(5, gpus=1, user="ben"),
            queued(6, user="ben"),
        ),
        anna=Standing(running_max=2),
    )
    assert started(now) == [6]
    assert started(applied(now, planned(now))) == []
    assert why(now, 4) == (
        Code.USER_LIMIT,
        (
            "it wants 1 CPU; anna holds 1 of at most 2 running jobs, and the rest is reserved for their jobs that "
            "are ahead of it"
        ),
    )


def test_an_array_that_starts_with_fewer_slots_than_it_may_have_is_one_running_job() -> None:
    """It was counted once for what it got and once for what it waits for; the next plan started job 3."""
    now = with_users(
        world(
            node("a", cpus=2),
            node("b", cpus=1, memory_gib=0),
            array(1, tasks=4, slots=1, memory_gib=1, user="ben"),
            array(2, tasks=4, at_once=2, memory_gib=1, user="anna", priority=1),
            array(3, tasks=1, user="anna"),
        ),
        anna=Standing(running_max=2),
    )
    assert started(now) == [2, 3]
    assert started(applied(now, planned(now))) == []


def test_an_array_has_as_many_slots_as_its_owner_may_hold() -> None:
    now = with_users(world(node("a", gpus=8), array(1, gpus=1, user="anna")), anna=Standing(gpus_max=3))
    [start] = planned(now).actions
    assert isinstance(start, Start)
    assert start.width == 3


def test_shares_count_by_their_part_of_a_gpu() -> None:
    now = with_users(world(node("a", gpus=4), array(1, gpu_gib=4, user="anna")), anna=Standing(gpus_max=1))
    [start] = planned(now).actions
    assert isinstance(start, Start)
    assert start.width == 4


def test_elastic_jobs_grow_to_their_owners_limit_together() -> None:
    def mine(job: int) -> JobView:
        return replace(trains(job, on="a", width=1, gpus="1..8"), user="anna")

    now = with_users(replace(world(node("a", gpus=8), mine(1), mine(2)), now=10_000.0), anna=Standing(gpus_max=5))
    widths = {action.job: action.width for action in planned(now).actions}  # type: ignore[union-attr]
    assert sum(widths.values()) + (2 - len(widths)) == 5


def test_an_elastic_job_shrinks_for_the_next_one_of_its_owner() -> None:
    wide = replace(trains(1, on="a", width=4, gpus="1..4"), user="anna")
    now = with_users(
        replace(world(node("a", gpus=8), wide, queued(2, gpus=2, user="anna")), now=10_000.0), anna=Standing(gpus_max=4)
    )
    [resize] = planned(now).actions
    assert (resize.job, resize.width) == (1, 2)  # type: ignore[union-attr]
    assert why(now, 2)[0] is Code.USER_LIMIT


def test_the_check_refuses_more_than_a_user_may_hold() -> None:
    now = world(node("a", gpus=2), queued(1, gpus=2, user="anna"))
    plan = make_plan(now)
    with pytest.raises(AssertionError, match="anna holds more GPUs than they may"):
        check_plan(with_users(now, anna=Standing(gpus_max=1)), plan)


# -- estimates -----------------------------------------------------------------------------------------------


def late(job: JobView) -> JobView:
    return replace(job, estimate_s=HOUR_S, used_s=2 * HOUR_S)


def test_one_that_ran_longer_than_its_estimate_goes_last_of_its_priority() -> None:
    now = world(node("a", gpus=1), late(queued(1, gpus=1)), queued(2, gpus=1), queued(3, gpus=1, priority=-1))
    assert served(now) == [2, 1, 3]
    code, message = why(now, 1)
    assert code is Code.OVER_ESTIMATE
    assert message.startswith(
        "it has run for 2.0 h, longer than its estimate of 1.0 h, so other jobs of the same priority go first; "
        "it wants "
    )


def test_it_gives_its_room_to_one_of_its_priority_that_has_not() -> None:
    over = replace(trains(1, on="a", width=1, gpus=1, left=None), estimate_s=HOUR_S)
    now = replace(world(node("a", gpus=1), over, queued(2, gpus=1)), now=10_000.0)
    [preempt] = planned(now).actions
    assert isinstance(preempt, Preempt)
    assert (preempt.job, preempt.room_for) == (1, 2)


def test_what_it_measured_counts_more_than_what_its_user_guessed() -> None:
    measured = replace(trains(1, on="a", width=1, gpus=1, left=50.0), estimate_s=HOUR_S)
    now = replace(world(node("a", gpus=1), measured, queued(2, gpus=1)), now=10_000.0)
    assert planned(now).actions == ()


def test_one_that_starts_is_as_wide_as_its_owners_limit_allows_while_others_still_hold_theirs() -> None:
    wide = replace(trains(1, on="a", width=2, gpus="1..2"), user="anna")
    fresh = queued(2, gpus="1..4", user="anna")
    now = with_users(replace(world(node("a", gpus=4), wide, fresh), now=10_000.0), anna=Standing(gpus_max=3))
    starts = [action for action in planned(now).actions if isinstance(action, Start)]
    assert [(start.job, start.width) for start in starts] == [(2, 1)]
