"""One cycle after another, with a real store, a hand-moved clock and an engine that says what we tell it to."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

import pytest

from controller.stage import NODE, Stage
from specs import spec
from swell.model.job import AttemptId, JobState, Role
from swell.model.launch import CAUSE_STOPPED, CAUSE_TIME_LIMIT
from swell.model.reason import Code
from swell.model.resources import Resources
from swell.store import NewJob


def test_a_job_goes_from_queued_to_succeeded_only_by_what_is_seen(stage: Stage) -> None:
    job = stage.submit()
    seen = [stage.states(job)[0]]
    stage.cycle()
    seen.append(stage.states(job)[0])
    stage.cycle()
    seen.append(stage.states(job)[0])
    stage.began(job, 0)
    stage.run(job, in_use=(0,))
    stage.cycle()
    seen.append(stage.states(job)[0])
    stage.ended(job, 0)
    stage.cycle()
    seen.append(stage.states(job)[0])
    stage.run(job, done=True)
    stage.cycle()
    seen.append(stage.states(job)[0])
    assert seen == ["queued", "starting", "starting", "running", "running", "succeeded"]
    assert stage.kinds(job) == ["Submitted", "Started", "Running", "Ended"]
    assert stage.engine.asked == [("start", "1.1", 1), ("forget", "1.1")]
    assert (stage.job(job).exit_code, stage.job(job).width, stage.job(job).nodes) == (0, 0, ("a",))


def test_a_gang_runs_only_when_every_rank_has_begun(stage: Stage) -> None:
    job = stage.gang(2, gpus=1)
    stage.cycle()
    stage.began(job, 0)
    stage.cycle()
    assert stage.states(job) == ["starting"]
    stage.began(job, 1)
    stage.cycle()
    assert stage.states(job) == ["running"]
    lanes = stage.engine.launches[AttemptId(job, 1)][0].lanes
    assert [lane.devices for lane in lanes] == [("g0",), ("g1",)]


def test_a_gang_with_a_failed_rank_is_stopped_and_fails_with_that_ranks_code(stage: Stage) -> None:
    job = stage.gang(2)
    stage.cycle()
    stage.began(job, 0, 1)
    stage.cycle()
    stage.ended(job, 1, 5)
    stage.cycle()
    assert stage.states(job) == ["stopping"]
    assert stage.engine.asked[-1] == ("stop", "1.1", 30.0)
    stage.ended(job, 0, 143, CAUSE_STOPPED)
    stage.run(job, done=True)
    stage.cycle()
    record = stage.job(job)
    assert (record.state, record.exit_code, record.reason_code) == (JobState.FAILED, 5, Code.TASK_FAILED)
    assert record.reason_evidence["rank"] == 1


def test_an_array_goes_on_after_a_failed_task_and_fails_at_the_end(stage: Stage) -> None:
    job = stage.array("0-3", 2)
    stage.cycle()
    assert stage.engine.asked == [("start", "1.1", 2)]
    stage.ended(job, 0, 0)
    stage.ended(job, 1, 7)
    stage.run(job, in_use=(0, 1), left=0)
    stage.cycle()
    assert stage.states(job) == ["running"]
    stage.ended(job, 2, 9)
    stage.ended(job, 3, 0)
    stage.run(job, done=True)
    stage.cycle()
    record = stage.job(job)
    counts = (record.tasks_succeeded, record.tasks_failed, record.tasks_running)
    assert (record.state, record.exit_code, counts) == (JobState.FAILED, 7, (2, 2, 0))


def test_room_of_an_arrays_last_lanes_is_given_on_as_they_fall_empty(stage: Stage) -> None:
    array = stage.array("0-3", 4)
    stage.cycle()
    waits = stage.gang(2)
    for index in range(4):
        stage.began(array, index)
    stage.run(array, in_use=(0, 1, 2, 3), left=0)
    stage.cycle()
    assert stage.states(waits) == ["queued"]
    stage.ended(array, 0)
    stage.ended(array, 1)
    stage.run(array, in_use=(2, 3), left=0)
    stage.cycle()
    assert stage.states(array, waits) == ["running", "starting"]


def test_room_of_a_rank_that_has_succeeded_is_given_on_while_the_others_go_on(stage: Stage) -> None:
    """Eight GPUs were idle behind a driver until it had ended as well."""
    gang = stage.gang(4, gpus=1)
    waits = stage.gang(1, gpus=1)
    stage.cycle()
    stage.began(gang, 0, 1, 2, 3)
    stage.cycle()
    assert stage.states(gang, waits) == ["running", "queued"]
    stage.ended(gang, 1)
    stage.cycle()
    assert stage.states(gang, waits) == ["running", "starting"]
    assert [lane.devices for lane in stage.launch(waits).lanes] == [("g1",)]
    stage.restart()
    stage.cycle()
    assert stage.states(gang, waits) == ["running", "starting"]
    stage.began(waits, 0)
    for rank in (0, 2, 3):
        stage.ended(gang, rank)
    stage.run(gang, done=True)
    stage.cycle()
    assert stage.states(gang, waits) == ["succeeded", "running"]


def test_room_of_a_rank_that_ended_is_kept_while_its_job_is_being_stopped(stage: Stage) -> None:
    gang = stage.gang(4, gpus=1)
    waits = stage.gang(1, gpus=1)
    stage.cycle()
    stage.began(gang, 0, 1, 2, 3)
    stage.cycle()
    stage.controller.cancel([gang], by="me", grace_s=None).result()
    stage.cycle()
    stage.ended(gang, 1)
    stage.cycle()
    assert stage.states(gang, waits) == ["stopping", "queued"]


def test_an_array_that_gave_all_its_room_back_waits_and_goes_on_with_what_it_has_not_begun(stage: Stage) -> None:
    array = stage.array("0-9", 4)
    stage.cycle()
    stage.began(array, 0, 1, 2, 3)
    stage.run(array, in_use=(0, 1, 2, 3), left=6)
    stage.cycle()
    urgent = stage.submit(roles=(Role("worker", ("true",), Resources(4000, 0, 0), 1),), priority=9)
    stage.cycle()
    assert stage.engine.asked[-1] == ("start", "1.1", 0)  # every lane is taken back; the tasks go on
    assert stage.states(array, urgent) == ["running", "queued"]
    for index in range(4):
        stage.ended(array, index)
    stage.run(array, left=6, revision=2)
    stage.cycle()
    assert stage.states(array, urgent) == ["stopping", "starting"]
    stage.restart()
    assert ("stop", "1.1", 30.0) in stage.engine.asked
    stage.run(array, revision=2, done=True)
    stage.cycle()
    assert stage.states(array, urgent) == ["queued", "starting"]
    stage.restart()
    stage.ended(urgent, 0)
    stage.run(urgent, done=True)
    stage.cycle()
    assert stage.states(array, urgent) == ["starting", "succeeded"]
    [launch] = stage.engine.launches[AttemptId(array, 2)]
    assert (launch.indices, launch.world_size, len(launch.lanes)) == ("4,5,6,7,8,9", 10, 4)
    assert stage.kinds(array) == ["Submitted", "Started", "Running", "Stopping", "Yielded", "Started"]


def test_an_array_whose_last_task_was_lost_while_its_room_was_taken_back_lines_up_again(stage: Stage) -> None:
    """A round of faults: its pod was deleted in its last lane; believed to run, it kept its array waiting for ever."""
    array = stage.array("0-1", 4)
    stage.cycle()
    stage.began(array, 0, 1)
    stage.run(array, in_use=(0, 1), left=0)
    stage.cycle()
    stage.ended(array, 0)
    stage.run(array, in_use=(), left=0)
    stage.cycle()
    assert stage.states(array) == ["stopping"]
    stage.run(array, revision=2, done=True)
    stage.cycle()
    assert stage.states(array) == ["starting"]
    [launch] = stage.engine.launches[AttemptId(array, 2)]
    assert launch.indices == "1"


def test_a_queued_job_is_cancelled_at_once_and_a_running_one_is_stopped_first(stage: Stage) -> None:
    running, queued = stage.gang(4), stage.gang(4)
    stage.cycle()
    stage.began(running, 0, 1, 2, 3)
    stage.cycle()
    for job in (running, queued):
        stage.controller.cancel([job], by="me", grace_s=2.0).result()
    stage.cycle()
    assert stage.states(running, queued) == ["stopping", "cancelled"]
    assert stage.engine.asked[-1] == ("stop", "1.1", 2.0)
    for rank in range(4):
        stage.ended(running, rank, 143, CAUSE_STOPPED)
    stage.run(running, done=True)
    stage.cycle()
    record = stage.job(running)
    assert (record.state, record.reason_code, record.exit_code) == (JobState.CANCELLED, Code.CANCELLED, 143)


def test_cancelling_several_at_once_starts_none_of_them(stage: Stage) -> None:
    """Cancelled one after the other, the room of the first went to the second, which ran for a moment."""
    jobs = [stage.gang(4) for _ in range(3)]
    stage.cycle()
    stage.began(jobs[0], 0, 1, 2, 3)
    stage.cycle()
    stage.controller.cancel(jobs, by="me", grace_s=None).result()
    stage.cycle()
    assert stage.states(*jobs) == ["stopping", "cancelled", "cancelled"]
    assert [asked for asked in stage.engine.asked if asked[0] == "start"] == [("start", "1.1", 4)]


def test_a_gang_that_is_elastic_in_tasks_has_as_many_as_it_was_given(stage: Stage) -> None:
    """It was counted against its least width: four tasks of two could never all succeed."""
    role = Role("worker", ("true",), Resources(1000, 0, 0), 2)
    job = stage.submit(roles=(role,), width_min=2, width_max=4)
    stage.cycle()
    for rank in range(4):
        stage.ended(job, rank)
    stage.run(job, done=True)
    stage.cycle()
    record = stage.job(job)
    assert (record.state, record.tasks_total, record.tasks_succeeded) == (JobState.SUCCEEDED, 4, 4)


def test_a_second_cancellation_with_less_grace_is_obeyed(stage: Stage) -> None:
    job = stage.submit()
    stage.cycle()
    stage.began(job, 0)
    stage.cycle()
    for grace_s in (60.0, 90.0, 0.0):
        stage.controller.cancel([job], by="me", grace_s=grace_s).result()
        stage.cycle()
    stops = [asked for asked in stage.engine.asked if asked[0] == "stop"]
    assert stops == [("stop", "1.1", 60.0), ("stop", "1.1", 0.0)]


def test_a_job_that_ended_well_before_it_heard_of_its_cancellation_has_succeeded(stage: Stage) -> None:
    job = stage.submit()
    stage.cycle()
    stage.ended(job, 0, 0)
    stage.run(job, done=True)
    stage.controller.cancel([job], by="me", grace_s=None).result()
    stage.cycle()
    assert stage.states(job) == ["succeeded"]


def test_a_task_ended_by_its_time_limit_gives_that_as_the_reason(stage: Stage) -> None:
    job = stage.submit(time_limit_s=5.0)
    stage.cycle()
    stage.ended(job, 0, 143, CAUSE_TIME_LIMIT)
    stage.run(job, done=True)
    stage.cycle()
    assert (stage.job(job).state, stage.job(job).reason_code) == (JobState.FAILED, Code.TIME_LIMIT)


def test_a_repeated_or_late_sighting_changes_nothing(stage: Stage) -> None:
    job = stage.array("0-1", 1)
    stage.cycle()
    for _ in range(2):
        stage.ended(job, 0, 3)
        stage.began(job, 0)
        stage.cycle()
    record = stage.job(job)
    assert (record.tasks_failed, record.tasks_running) == (1, 0)


def test_a_cycle_that_changes_nothing_writes_nothing(stage: Stage) -> None:
    job = stage.gang(9)
    stage.cycle()
    before = (stage.job(job).version, stage.store.last_event_id(), stage.store.generation())
    for _ in range(3):
        stage.cycle()
    assert (stage.job(job).version, stage.store.last_event_id(), stage.store.generation()) == before


def test_after_a_crash_the_engine_is_told_again_and_nothing_is_started_twice(stage: Stage) -> None:
    running, stopping, queued = stage.submit(), stage.submit(), stage.gang(4)
    stage.cycle()
    stage.began(running, 0)
    stage.began(stopping, 0)
    stage.cycle()
    stage.controller.cancel([stopping], by="me", grace_s=3.0).result()
    stage.cycle()
    stage.restart()
    assert stage.engine.asked == [("start", "1.1", 1), ("start", "2.1", 1), ("stop", "2.1", 3.0)]
    stage.cycle()
    assert stage.states(running, stopping, queued) == ["running", "stopping", "queued"]
    assert len(stage.engine.asked) == 3


def test_a_cancellation_accepted_just_before_a_crash_is_carried_out_after_it(stage: Stage) -> None:
    job = stage.submit()
    stage.store.request_cancel([job], by="me", grace_s=None).result()
    stage.restart()
    stage.cycle()
    assert stage.states(job) == ["cancelled"]


def test_what_could_not_be_recorded_is_tried_again_and_not_lost(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk was full while a task ended: its end must survive in memory until it can be written."""
    job = stage.submit()
    stage.cycle()
    stage.ended(job, 0, 6)
    stage.run(job, done=True)
    real = stage.store.record
    monkeypatch.setattr(stage.store, "record", lambda changes: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        stage.cycle()
    assert stage.states(job) == ["starting"]
    monkeypatch.setattr(stage.store, "record", real)
    stage.cycle()
    assert (stage.states(job), stage.job(job).exit_code) == (["failed"], 6)


def test_a_machine_that_is_not_heard_of_becomes_the_reason_and_ceases_to_be_it(stage: Stage) -> None:
    job = stage.submit()
    stage.cycle()
    stage.began(job, 0)
    stage.cycle()
    stage.engine.silent = {"a": 61.0}
    stage.engine.nodes = (replace(NODE, is_reachable=False),)
    stage.cycle()
    assert (stage.job(job).state, stage.job(job).reason_code) == (JobState.RUNNING, Code.WORKER_UNREACHABLE)
    stage.engine.silent, stage.engine.nodes = {}, (NODE,)
    stage.cycle()
    assert stage.job(job).reason_code is None


def test_history_older_than_the_retention_goes_with_its_logs(stage: Stage) -> None:
    stage.controller = stage._controller(keep_s=100.0)
    old = stage.submit()
    stage.cycle()
    stage.ended(old, 0)
    stage.run(old, done=True)
    stage.cycle()
    stage.cycle(seconds=50)
    assert stage.states(old) == ["succeeded"]
    stage.cycle(seconds=60)
    listed, _ = stage.store.listing(ended_since=None)
    assert listed == []
    assert stage.engine.asked[-1] == ("erase", "1.1")


def test_every_job_that_is_not_running_has_one_reason_in_words(stage: Stage) -> None:
    first, second, never = stage.gang(4), stage.gang(4), stage.gang(9)
    stage.cycle()
    reasons = [stage.controller.reason(stage.job(job)) for job in (first, second, never)]
    assert [reason and reason.code for reason in reasons] == [
        Code.STARTING,
        Code.WAITING_FOR_ROOM,
        Code.CANNOT_RUN_HERE,
    ]
    assert all(reason and reason.message and reason.next for reason in reasons)
    assert reasons[1] is not None  # told with what this very plan has started counted as taken
    assert (reasons[1].evidence["largest_free_cpus"], reasons[1].evidence["held_by"]) == (0, [first])


def test_who_takes_jobs_in_hears_which_they_became_and_they_are_planned(stage: Stage) -> None:
    heard: list[list[int | None]] = []
    new = {"k": NewJob(spec(name="a"), "me", {}), "l": NewJob(spec(name="b"), "me", {})}

    stage.controller.take_in(
        new, lambda records: heard.append([one and one.id for one in records]), origin="x"
    ).result()
    stage.cycle()

    assert heard == [[1, 2]]
    assert stage.states(1, 2) == ["starting", "starting"]


def test_jobs_that_were_taken_in_are_planned_also_when_who_took_them_in_stumbles(stage: Stage) -> None:
    def stumble(_: object) -> None:
        raise ValueError("a name twice")

    with pytest.raises(ValueError, match="a name twice"):
        stage.controller.take_in({"k": NewJob(spec(), "me", {})}, stumble, origin="x").result()
    stage.cycle()

    assert stage.states(1) == ["starting"]


def test_what_was_made_for_a_job_may_go_when_it_was_cancelled_and_only_then(stage: Stage) -> None:
    running, failed, waiting = stage.gang(4), stage.gang(4), stage.gang(4)
    stage.begin(running)
    stage.controller.cancel([running, waiting], by="me", grace_s=None).result()
    stage.finish(running, *[143] * 4, cause=CAUSE_STOPPED)
    stage.begin(failed)
    stage.finish(failed, 1, 0, 0, 0)
    assert stage.states(running, failed, waiting) == ["cancelled", "failed", "cancelled"]
    assert stage.asked_to("discard") == [("discard", running)], "of one that has not started nothing was made"


def test_so_it_may_when_it_waits_for_its_next_attempt(stage: Stage) -> None:
    job = stage.elastic(1, 4)
    stage.begin(job)
    stage.saved(job, 3.0)
    stage.done(stage.controller.hold(job, by="me"))
    stage.finish(job, 75)
    stage.controller.cancel([job], by="me", grace_s=None).result()
    stage.cycle()
    assert (stage.states(job), stage.asked_to("discard")) == (["cancelled"], [("discard", job)])


@pytest.mark.parametrize("what", ["accept", "request_cancel"])
def test_who_has_an_answer_finds_it_in_the_next_plan(stage: Stage, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Who waits for a future may go on before its callbacks have run: one asked to hold what nobody knew yet."""
    stored: Future[list[object]] = Future()
    monkeypatch.setattr(stage.store, what, lambda *_, **__: stored)
    asked = {
        "accept": lambda: stage.controller.submit([]),
        "request_cancel": lambda: stage.controller.cancel([1], by="ann", grace_s=None),
    }
    answer = asked[what]()
    was_answered: list[bool] = []
    monkeypatch.setattr(stage.controller._inbox, "tell", lambda _: was_answered.append(answer.done()))
    stored.set_result([])
    assert (was_answered, answer.done()) == ([False], True)
