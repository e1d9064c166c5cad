"""How a preempted job comes back, and how long room is kept for the one it was made for."""

from __future__ import annotations

from dataclasses import replace

from controller.stage import NODE, Stage
from controller.yielders import asked_for_another, kinds_after, wide
from swell.model.job import AttemptId, JobState, Role
from swell.model.launch import CAUSE_STOPPED
from swell.model.resources import Resources


def test_a_preempted_job_lines_up_again_and_goes_on_from_its_checkpoint(stage: Stage) -> None:
    job = wide(stage)
    urgent = stage.elastic(4, 4, priority=9)
    stage.cycle(100.0)
    stage.saved(job, 4.0, path="four")
    stage.finish(job, 75)
    assert stage.states(job, urgent) == ["queued", "starting"]
    stage.began(urgent, 0)
    stage.finish(urgent, 0, seconds=50.0)
    record = stage.job(job)
    assert (record.state, record.width, record.preemptions, record.resizes) == (JobState.STARTING, 4, 1, 0)
    assert (record.failures, record.lost_gpu_seconds, stage.own(job)["EPOCHS_DONE"]) == (0, 0.0, "4")


def test_who_room_is_made_for_stands_first_until_it_starts(stage: Stage) -> None:
    """The reservation outlives the deadline by a minute."""
    job, other = asked_for_another(stage)
    assert stage.job(other).reserved_until == 1100.0 + 300.0 + 60.0
    stage.restart()
    assert stage.job(other).reserved_until == 1460.0
    stage.cycle()
    assert stage.controller.snapshot.jobs_by_id[other].reserved_at is not None
    stage.finish(job, 75)
    assert (stage.states(other), stage.job(other).reserved_until) == (["starting"], None)


def test_a_reservation_ends_with_its_time(stage: Stage) -> None:
    _, other = asked_for_another(stage)
    stage.cycle(359.0)
    kept = stage.job(other).reserved_until
    stage.cycle(1.0)
    assert (kept, stage.job(other).reserved_until) == (1460.0, None)


def test_a_reservation_ends_when_its_holder_is_held(stage: Stage) -> None:
    _, other = asked_for_another(stage)
    stage.done(stage.controller.hold(other, by="ann"))
    assert (stage.states(other), stage.job(other).reserved_until) == (["held"], None)


def test_a_reservation_ends_with_its_holder(stage: Stage) -> None:
    job, other = asked_for_another(stage)
    later = stage.elastic(2, 2)
    stage.controller.cancel([other], by="ann", grace_s=None).result()
    stage.cycle()
    stage.finish(job, 75)
    assert stage.states(other, later) == ["cancelled", "starting"]


def test_an_array_gets_room_but_is_not_put_first(stage: Stage) -> None:
    """Put first it started, was no longer first, and gave its lanes back at once."""
    role = Role("worker", ("train",), Resources(1000, 0, 0), 1)
    job = stage.submit(roles=(role,), width_min=1, width_max=4)
    stage.begin(job)
    stage.say(job, begun=1)
    stage.saved(job, 3.0, seconds=100.0)
    lanes = stage.array("0-1", 2)
    stage.cycle(0.0)
    assert kinds_after(stage, job, "Running") == ["Running", "AskedToYield"]
    assert stage.job(lanes).reserved_until is None


def test_an_array_that_is_evicted_lines_up_again_with_the_tasks_that_had_not_ended(stage: Stage) -> None:
    stage.engine.nodes = (replace(NODE, labels={}),)
    lanes = stage.array("0-3", 4)
    stage.begin(lanes)
    stage.ended(lanes, 0)
    role = Role("worker", ("true",), Resources(4000, 0, 0), 1)
    urgent = stage.submit(roles=(role,), priority=9, preempts=True)
    stage.cycle(0.0)
    assert stage.asked_to("evict") == [("evict", str(AttemptId(lanes, 1)), 30.0)]
    for index in (1, 2, 3):
        stage.ended(lanes, index, None, CAUSE_STOPPED)
    stage.run(lanes, done=True)
    stage.cycle(0.0)
    record = stage.job(lanes)
    assert stage.states(lanes, urgent) == ["queued", "starting"]
    assert (record.tasks_succeeded, record.tasks_failed, record.failures) == (1, 0, 0)
    stage.began(urgent, 0)
    stage.finish(urgent, 0)
    stage.cycle(0.0)
    assert (stage.states(lanes), stage.launch(lanes).indices) == (["starting"], "1,2,3")
