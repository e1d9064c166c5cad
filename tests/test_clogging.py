"""Does the clogging benchmark play the gangs' program fairly, and tell a clogged cluster from a busy one?"""

from __future__ import annotations

import random

from bench.clogging import GANGS, GPUS, RUN_S, Gang, Play, Result, draw_sizes, rows
from bench.racecourse import pod
from bench.rows import Row

from swell.engines.kubernetes.watch.observed_objects import PodSeen, read_pod

PAIR, TRIO = Gang("pair", 2), Gang("trio", 3)


def pods(**phases: str) -> dict[str, PodSeen]:
    """`pair_0="Running"`: every pod that does not wait has a node."""
    return {name.replace("_", "-"): seen(name.replace("_", "-"), phase) for name, phase in phases.items()}


def seen(name: str, phase: str) -> PodSeen:
    document = pod(name, "anybody", name.rpartition("-")[0], gpus=1)
    document["metadata"] |= {"uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"}
    document["spec"] |= {} if phase == "Pending" else {"nodeName": "kwok-0"}
    return read_pod(document | {"status": {"phase": phase}})


def test_a_gang_ends_when_all_its_members_have_run_for_the_time_of_its_program() -> None:
    play = Play((PAIR,), gpus=4)
    running = pods(pair_0="Running", pair_1="Running")

    assert play.look(running, 100.0) == ()
    assert play.look(running, 100.0 + RUN_S - 0.1) == ()
    assert play.look(running, 100.0 + RUN_S) == ("pair-0", "pair-1")
    assert play.look(pods(pair_0="Succeeded", pair_1="Running"), 100.1 + RUN_S) == ("pair-1",)
    assert play.done_at == {}
    assert play.look(pods(pair_0="Succeeded", pair_1="Succeeded"), 100.2 + RUN_S) == ()
    assert play.done_at == {PAIR: 100.2 + RUN_S}


def test_a_gang_of_which_one_is_missing_or_waits_runs_for_ever() -> None:
    play = Play((PAIR, TRIO), gpus=8)
    halves = pods(pair_0="Running", pair_1="Pending", trio_0="Running", trio_2="Running")

    assert [play.look(halves, now) for now in (0.0, RUN_S, 100 * RUN_S)] == [(), (), ()]
    assert play.done_at == {}


def test_a_gang_that_lost_a_member_begins_again_when_it_is_whole_again() -> None:
    play = Play((PAIR,), gpus=4)
    whole = pods(pair_0="Running", pair_1="Running")
    play.look(whole, 0.0)
    play.look(pods(pair_0="Running", pair_1="Pending"), RUN_S - 1)

    assert play.look(whole, RUN_S) == ()
    assert play.look(whole, 2 * RUN_S) == ("pair-0", "pair-1")


def test_gangs_that_are_not_whole_and_hold_every_gpu_have_clogged_the_cluster() -> None:
    play = Play((PAIR, TRIO), gpus=3)
    play.look(pods(pair_0="Running", trio_0="Running", pair_1="Pending"), 5.0)
    assert play.clogged_at is None

    halves = pods(pair_0="Running", trio_0="Running", trio_1="Running", pair_1="Pending", trio_2="Pending")
    play.look(halves, 6.0)
    play.look(halves, 7.0)
    assert play.clogged_at == 6.0


def test_a_full_cluster_in_which_one_gang_is_whole_is_not_clogged() -> None:
    play = Play((PAIR, TRIO), gpus=3)

    play.look(pods(pair_0="Running", pair_1="Running", trio_0="Running", trio_1="Pending"), 5.0)

    assert play.clogged_at is None


def test_a_cluster_is_not_clogged_any_more_once_there_is_room() -> None:
    play = Play((PAIR, TRIO), gpus=2)
    play.look(pods(pair_0="Running", trio_0="Running"), 5.0)
    play.look(pods(pair_0="Running", trio_0="Failed"), 6.0)

    assert play.clogged_at is None


def test_a_seed_draws_the_same_gangs_every_time() -> None:
    sizes = draw_sizes(random.Random(1))

    assert sizes == draw_sizes(random.Random(1))
    assert len(sizes) == GANGS
    assert set(sizes) == {2, 3, 4, 5, 6}
    assert max(sizes) <= GPUS


def test_rows_tell_how_many_were_done_and_how_long_all_took_where_all_were() -> None:
    results = {
        "swell": Result(GANGS, 130.0, None),
        "coscheduling": Result(GANGS, 260.0, None),
        "kube-scheduler": Result(3, 12.0, 14.0),
    }

    work = {"GPUs": 16, "each runs, s": 5.0, "sizes": [2, 6]}
    clogged = {"their last after, s": 12.0, "they clogged after, s": 14.0}
    slow = {"their last after, s": 260.0, "they clogged after, s": None}
    assert list(rows((2, 6), results)) == [
        Row("clogging", "the work alone", "s", None, 2.5, detail=work),
        Row("clogging", "done beside kube-scheduler", "of 50", 50, 3, detail=clogged),
        Row("clogging", "until the last beside kube-scheduler", "s", 130.0, None),
        Row("clogging", "done beside coscheduling", "of 50", 50, 50, detail=slow),
        Row("clogging", "until the last beside coscheduling", "s", 130.0, 260.0),
    ]
