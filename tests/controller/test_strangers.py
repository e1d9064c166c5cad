"""Jobs that report in other systems' words: one never asks what to do, one saves after it has reported."""

from __future__ import annotations

from controller.stage import Stage
from swell.model.launch import CAUSE_STOPPED
from swell.model.training import Checkpoint, Control


def asked_to_shrink(stage: Stage, **told: object) -> int:
    """A job that runs at 4 of 1..4 since 1000, with a checkpoint of 3 epochs, asked to make room for another."""
    job = stage.elastic(1, 4)
    stage.begin(job)
    stage.say(job, begun=1, epochs_total=10.0, **told)  # type: ignore[arg-type]
    stage.saved(job, 3.0, seconds=100.0)
    stage.elastic(2, 2)
    stage.cycle(0.0)
    assert stage.control(job) == Control(4)
    return job


def test_one_that_never_asks_is_stopped_where_its_work_is_durable(stage: Stage) -> None:
    job = asked_to_shrink(stage)
    stage.say(job, epochs_done=3.5, is_deaf=True)
    assert stage.asked_to("stop") == []
    stage.say(job, checkpoint=Checkpoint(4.0, None, stage.clock.time, 1), is_deaf=True)
    assert stage.asked_to("stop") == [("stop", f"{job}.1", 30.0)]
    stage.finish(job, 143, cause=CAUSE_STOPPED)
    record = stage.job(job)
    assert (record.width, record.resizes, record.lost_gpu_seconds) == (2, 1, 0.0)
    assert stage.own(job)["EPOCHS_DONE"] == "4"


def test_one_that_never_asks_goes_on_while_nobody_needs_its_room(stage: Stage) -> None:
    job = stage.elastic(1, 4)
    stage.begin(job)
    stage.say(job, checkpoint=Checkpoint(1.0, None, stage.clock.time, 1), is_deaf=True)
    assert (stage.asked_to("stop"), stage.states(job)) == ([], ["running"])


def test_what_was_reported_before_it_was_saved_is_durable_after_a_clean_end(stage: Stage) -> None:
    job = asked_to_shrink(stage)
    stage.say(job, epochs_done=4.0, saves_later=True)
    stage.finish(job, 0, seconds=5.0)
    record = stage.job(job)
    assert (record.resizes, record.lost_gpu_seconds, stage.own(job)["EPOCHS_DONE"]) == (1, 0.0, "4")


def test_and_not_after_any_other_end(stage: Stage) -> None:
    job = asked_to_shrink(stage)
    stage.say(job, epochs_done=4.0, saves_later=True)
    stage.finish(job, 143, cause=CAUSE_STOPPED, seconds=5.0)
    assert (stage.job(job).lost_gpu_seconds, stage.own(job)["EPOCHS_DONE"]) == (20.0, "3")


def test_nor_in_another_attempt_than_the_one_that_said_so(stage: Stage) -> None:
    job = asked_to_shrink(stage, saves_later=True)
    stage.saved(job, 4.0)
    stage.finish(job, 0)
    stage.begin(job)
    stage.say(job, epochs_done=5.0)
    stage.done(stage.controller.requeue(job, by="ann", is_now=False))
    stage.finish(job, 0)
    assert stage.training(job).epochs_done == 4.0


def test_who_knows_less_does_not_take_a_checkpoints_path_away(stage: Stage) -> None:
    job = stage.elastic(1, 4)
    stage.begin(job)
    stage.saved(job, 3.0, path="three")
    stage.saved(job, 3.0)
    checkpoint = stage.training(job).checkpoint
    assert checkpoint is not None
    assert (checkpoint.epochs_done, checkpoint.path) == (3.0, "three")


def test_a_width_that_is_not_kept_binds_nobody_later(stage: Stage) -> None:
    job = stage.elastic(1, 4)
    stage.begin(job)
    stage.done(stage.controller.scale(job, 2, by="ann", is_now=True, is_kept=False))
    assert (stage.states(job), stage.job(job).wanted_width) == (["stopping"], None)
