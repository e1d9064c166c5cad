"""What attempts held is counted once, whatever happens to them and to us."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest
from sqlalchemy.exc import IntegrityError

from controller.stage import NODE, Stage
from swell.controller.accounting import DAY_S, HALF_LIFE_S, split_over_days
from swell.model.cluster import Device
from swell.model.job import EXIT_YIELDED, ResizeMode, Role
from swell.model.resources import Resources
from swell.model.usage import CPU_WEIGHT, DayOfUse, Used

TODAY = "1970-01-01"  # where the stage's clock begins


def counted(stage: Stage) -> dict[str, Used]:
    """What is stored, by day."""
    found = stage.store.usage(since="1970-01-01")
    assert {one.owner for one in found} <= {"me"}
    return {one.day: one.used for one in found}


def with_running(stage: Stage) -> Used:
    return stage.controller.accounts.used(stage.clock.time)["me"]


def test_an_attempt_counts_from_when_it_was_given_its_room_until_it_ended(stage: Stage) -> None:
    job = stage.gang(2, gpus=1)
    stage.cycle()
    stage.clock.time += 5
    stage.began(job, 0, 1)
    stage.cycle()
    assert counted(stage) == {}
    stage.finish(job, 0, 0, seconds=94)
    assert counted(stage) == {TODAY: Used(gpu_s=200.0, cpu_s=200.0, attempts=1)}


def test_a_job_without_gpus_takes_cores_and_counts_little_in_fair_share(stage: Stage) -> None:
    job = stage.gang(2)
    stage.begin(job)
    stage.finish(job, 0, 0, seconds=100)
    assert counted(stage) == {TODAY: Used(cpu_s=200.0, attempts=1)}
    faded = stage.controller.accounts.faded_gpu_s("me", stage.clock.time)
    assert faded == pytest.approx(200 * CPU_WEIGHT, rel=1e-3)


def test_a_job_that_never_ran_takes_nothing(stage: Stage) -> None:
    job = stage.gang(9)
    stage.cycle()
    stage.controller.cancel([job], by="me", grace_s=None).result()
    stage.cycle()
    assert stage.states(job) == ["cancelled"]
    assert (counted(stage), stage.store.accounts()) == ({}, {})


def test_what_lies_on_both_sides_of_midnight_is_split(stage: Stage) -> None:
    stage.clock.time = DAY_S - 30
    job = stage.gang(1, gpus=2)
    stage.begin(job)
    stage.finish(job, 0, seconds=DAY_S + 40)
    assert counted(stage) == {
        "1970-01-01": Used(60.0, 30.0, attempts=1),
        "1970-01-02": Used(2 * DAY_S, DAY_S),
        "1970-01-03": Used(20.0, 10.0),
    }


def test_a_moment_takes_nothing_and_a_day_is_one_piece():
    assert list(split_over_days(DAY_S, DAY_S)) == []
    assert list(split_over_days(DAY_S, 2 * DAY_S)) == [("1970-01-02", DAY_S)]
    assert list(split_over_days(5.0, 4.0)) == []


def test_every_attempt_of_a_resized_job_counts_and_what_it_lost(stage: Stage) -> None:
    job = stage.elastic(2, 2, resize=ResizeMode.IMMEDIATE)
    stage.begin(job)
    stage.done(stage.controller.requeue(job, by="me", is_now=True), seconds=100)
    stage.finish(job, 143, cause="stopped")
    assert (stage.job(job).attempts, stage.job(job).lost_gpu_seconds) == (2, 200.0)
    assert counted(stage) == {TODAY: Used(gpu_s=200.0, cpu_s=10.0, lost_gpu_s=200.0, attempts=1)}
    stage.began(job, 0)
    stage.cycle(0.0)
    stage.finish(job, 0, seconds=50)
    assert counted(stage) == {TODAY: Used(gpu_s=300.0, cpu_s=15.0, lost_gpu_s=200.0, attempts=2)}


def test_one_that_yields_at_its_checkpoint_loses_nothing(stage: Stage) -> None:
    job = stage.elastic(1, 1)
    stage.begin(job)
    stage.saved(job, 1, seconds=100)
    stage.done(stage.controller.hold(job, by="me"))
    stage.finish(job, EXIT_YIELDED)
    assert stage.states(job) == ["held"]
    assert counted(stage) == {TODAY: Used(gpu_s=100.0, cpu_s=10.0, attempts=1)}


def four_for_ten_seconds(stage: Stage) -> int:
    """An array whose four tasks have run side by side."""
    array = stage.array("0-3", 4)
    stage.cycle(0.0)
    stage.began(array, 0, 1, 2, 3)
    stage.run(array, in_use=(0, 1, 2, 3))
    stage.cycle(10.0)
    return array


def test_an_array_counts_every_slot_as_long_as_it_had_it(stage: Stage) -> None:
    array = four_for_ten_seconds(stage)
    stage.ended(array, 0)
    stage.ended(array, 1)
    stage.run(array, in_use=(2, 3))
    stage.cycle(0.0)
    assert counted(stage) == {TODAY: Used(cpu_s=20.0)}
    assert with_running(stage) == Used(cpu_s=40.0, attempts=1)
    stage.clock.time += 5
    stage.ended(array, 2)
    stage.ended(array, 3)
    stage.run(array, done=True)
    stage.cycle(0.0)
    assert counted(stage) == {TODAY: Used(cpu_s=50.0, attempts=1)}


def test_an_array_that_gives_its_room_back_and_comes_again_counts_both_lives(stage: Stage) -> None:
    array = stage.array("0-9", 4)
    stage.cycle(0.0)
    stage.began(array, 0, 1, 2, 3)
    stage.run(array, in_use=(0, 1, 2, 3), left=6)
    stage.cycle(10.0)
    urgent = stage.submit(roles=(Role("worker", ("true",), Resources(4000, 0, 0), 1),), priority=9)
    stage.cycle(0.0)
    stage.clock.time += 10
    for index in range(4):
        stage.ended(array, index)
    stage.run(array, left=6, revision=2)
    stage.cycle(0.0)
    stage.run(array, revision=2, done=True)
    stage.cycle(0.0)
    assert stage.states(array, urgent) == ["queued", "starting"]
    assert counted(stage) == {TODAY: Used(cpu_s=80.0, attempts=1)}


def test_slots_that_an_array_is_given_later_count_from_then_on(stage: Stage) -> None:
    first = stage.gang(2)
    stage.begin(first)
    array = stage.array("0-3", 4)
    stage.cycle(0.0)
    assert len(stage.store.attempts(array)[0].slots) == 2
    stage.finish(first, 0, 0, seconds=10)
    assert len(stage.store.attempts(array)[0].slots) == 4
    stage.restart()
    stage.clock.time += 5
    for index in range(4):
        stage.ended(array, index)
    stage.run(array, revision=2, done=True)
    stage.cycle(0.0)
    assert stage.states(array) == ["succeeded"]
    assert counted(stage) == {TODAY: Used(cpu_s=2 * 10.0 + 2 * 15.0 + 2 * 5.0, attempts=2)}


def test_a_server_that_was_away_charges_for_no_more_than_was_held(stage: Stage) -> None:
    """The room was given back while it was away; it plans with the slots as it knew them before it hears of that."""
    array = four_for_ten_seconds(stage)
    for index in range(4):
        stage.ended(array, index)
    ends, stage.engine.tasks = stage.engine.tasks, []
    stage.clock.time += 2 * DAY_S
    stage.restart()
    urgent = stage.submit(roles=(Role("worker", ("true",), Resources(4000, 0, 0), 1),), priority=9)
    stage.cycle(0.0)
    assert stage.store.attempts(array)[0].revision == 2
    stage.engine.tasks = ends
    stage.run(array, revision=2, done=True)
    stage.cycle(0.0)
    assert stage.states(array, urgent) == ["succeeded", "starting"]
    assert counted(stage) == {TODAY: Used(cpu_s=40.0, attempts=1)}


def test_a_share_of_a_gpu_counts_by_its_memory(stage: Stage) -> None:
    """Of 1,024 MiB a quarter, for 100 seconds."""
    stage.cycle()
    job = stage.submit()
    stage.cycle(0.0)
    [attempt] = stage.store.open_attempts()
    [slot] = attempt.slots
    share = replace(slot, resources=Resources(1000, 0, 0, 256), devices=("g0",))
    accounts = replace(stage.controller.accounts, held={})
    accounts.hold(replace(attempt, slots=(share,)), "me")
    assert accounts.used(stage.clock.time + 100)["me"] == Used(25.0, 100.0, attempts=1)
    assert stage.states(job) == ["starting"]


def test_a_share_that_is_held_before_its_gpu_is_seen_counts_by_its_memory_from_then_on(stage: Stage) -> None:
    role = Role("worker", ("train",), Resources(100, 0, 0, 256), 1)
    stage.begin(stage.submit(roles=(role,)))
    stage.restart()
    unknown = stage.controller.accounts.faded_gpu_s("me", stage.clock.time + 100)
    stage.cycle(0.0)
    known = stage.controller.accounts.faded_gpu_s("me", stage.clock.time + 100)

    assert (unknown, known) == (pytest.approx(100, rel=1e-3), pytest.approx(25, rel=1e-3))


def test_gpus_that_were_seen_once_are_remembered(stage: Stage) -> None:
    stage.cycle()
    stage.engine.nodes = (replace(NODE, devices=(Device("new", 2048, "m"),)),)
    stage.cycle()
    assert stage.controller.accounts.memory == {("a", "new"): 2048} | {("a", f"g{n}"): 1024 for n in range(4)}


# -- what is held at the moment --------------------------------------------------------------------------------------


def test_what_is_held_now_counts_without_being_stored(stage: Stage) -> None:
    job = stage.gang(1, gpus=2)
    stage.begin(job)
    stage.clock.time += 100
    assert counted(stage) == {}
    assert with_running(stage) == Used(200.0, 100.0, attempts=1)
    assert list(stage.controller.accounts.running(stage.clock.time)) == [
        DayOfUse("me", TODAY, Used(200.0, 100.0)),
        DayOfUse("me", TODAY, Used(attempts=1)),
    ]


def test_fair_share_sees_no_step_when_a_running_job_ends(stage: Stage) -> None:
    job = stage.gang(1, gpus=2)
    stage.begin(job)
    stage.clock.time += HALF_LIFE_S
    before = stage.controller.accounts.faded_gpu_s("me", stage.clock.time)
    stage.finish(job, 0)
    assert stage.controller.accounts.faded_gpu_s("me", stage.clock.time) == pytest.approx(before)
    later = stage.clock.time + HALF_LIFE_S
    assert stage.controller.accounts.faded_gpu_s("me", later) == pytest.approx(before / 2)
    assert stage.controller.accounts.faded_gpu_s("nobody", later) == 0.0


# -- crashes ---------------------------------------------------------------------------------------------------------


def test_after_a_crash_a_running_job_is_counted_from_its_beginning_and_once(stage: Stage) -> None:
    job = stage.gang(1, gpus=2)
    stage.begin(job)
    stage.clock.time += 50
    stage.restart()
    stage.cycle(0.0)
    assert with_running(stage) == Used(100.0, 50.0, attempts=1)
    stage.finish(job, 0, seconds=50)
    stage.restart()
    stage.cycle()
    assert counted(stage) == {TODAY: Used(200.0, 100.0, attempts=1)}
    assert with_running(stage) == Used(200.0, 100.0, attempts=1)
    assert stage.controller.accounts.faded_gpu_s("me", stage.clock.time) == pytest.approx(200, rel=1e-3)


def test_after_a_crash_an_array_goes_on_where_its_slots_were_last_counted(stage: Stage) -> None:
    array = four_for_ten_seconds(stage)
    stage.ended(array, 0)
    stage.run(array, in_use=(1, 2, 3))
    stage.cycle(0.0)
    stage.restart()
    stage.clock.time += 10
    for index in (1, 2, 3):
        stage.ended(array, index)
    stage.run(array, done=True)
    stage.cycle(0.0)
    assert stage.states(array) == ["succeeded"]
    assert counted(stage) == {TODAY: Used(cpu_s=4 * 10.0 + 3 * 10.0, attempts=1)}


def test_a_cycle_that_cannot_be_recorded_counts_nothing_and_the_next_one_everything(stage: Stage) -> None:
    job = stage.gang(1, gpus=2)
    stage.begin(job)
    with closing(sqlite3.connect(stage.folder / "swell.db")) as other:
        other.execute("CREATE TRIGGER full BEFORE INSERT ON usage BEGIN SELECT RAISE(ABORT, 'no room'); END")
        with pytest.raises(IntegrityError, match="no room"):
            stage.finish(job, 0, seconds=100)
        assert stage.states(job) == ["running"]
        assert with_running(stage) == Used(200.0, 100.0, attempts=1)
        assert stage.store.accounts() == {}
        other.execute("DROP TRIGGER full")
    stage.cycle(0.0)
    assert stage.states(job) == ["succeeded"]
    assert counted(stage) == {TODAY: Used(200.0, 100.0, attempts=1)}
