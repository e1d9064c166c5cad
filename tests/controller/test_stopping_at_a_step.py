"""A job that can save at any step is asked to stop at one, and goes on inside its epoch."""

from __future__ import annotations

import pytest

from controller.stage import Stage
from controller.yielders import kinds_after, wide
from swell.errors import Rejected
from swell.model.training import Checkpoint, Control, Measure, RankPosition


def at_step(stage: Stage, job: int, rank: int, step: int, *, of: int = 1, epoch: int = 3, asked: bool = False) -> None:
    """That rank says where it is; its steps take half a second."""
    position = RankPosition(epoch, step, 0.5, of, stage.clock.time, asked)
    stage.controller.has_begun(stage.present(job), rank, epoch + 1, position)


def inside(stage: Stage, job: int, epochs: float, steps: int, path: str = "inside") -> None:
    """It has saved inside an epoch of 100 steps."""
    number = stage.present(job).number
    checkpoint = Checkpoint(epochs + steps / 100, path, stage.clock.time, number, steps, 100, steps * 32)
    stage.say(job, begun=int(epochs) + 1, epochs_done=epochs, checkpoint=checkpoint)


def test_a_job_of_one_rank_stops_at_its_next_step_and_goes_on_inside_the_epoch(stage: Stage) -> None:
    job = wide(stage)
    at_step(stage, job, 0, 40)
    stage.elastic(2, 2)
    stage.cycle(0.0)
    assert stage.control(job) == Control(4, stop_at_step=(0, 0))
    inside(stage, job, 3.0, 41)
    stage.finish(job, 75, seconds=1.0)
    record, own = stage.job(job), stage.own(job)
    assert (record.attempts, record.resizes, record.lost_gpu_seconds) == (2, 1, 0.0)
    told = {name: own[name] for name in ("EPOCHS_DONE", "SWELL_STEPS_DONE", "SWELL_STEPS_TOTAL", "SWELL_SAMPLES_DONE")}
    assert told == {
        "EPOCHS_DONE": "3",
        "SWELL_STEPS_DONE": "41",
        "SWELL_STEPS_TOTAL": "100",
        "SWELL_SAMPLES_DONE": "1312",
    }
    assert kinds_after(stage, job, "AskedToYield") == ["AskedToYield", "Yielded", "Started"]


def gang_that_can_stop(stage: Stage, ranks: int = 2) -> int:
    job = stage.gang(ranks)
    stage.begin(job)
    stage.saved(job, 3.0, seconds=100.0)
    for rank in range(ranks):
        at_step(stage, job, rank, 40, of=ranks)
    stage.done(stage.controller.requeue(job, by="ann", is_now=False))
    return job


def test_ranks_are_asked_where_they_are_before_a_step_is_chosen_for_all(stage: Stage) -> None:
    """Rank 1 was at 47 a second ago, so it is at 49; two more pass before everybody has heard, and one is left."""
    job = gang_that_can_stop(stage)
    assert stage.control(job) == Control(5, tell_step=True)
    at_step(stage, job, 1, 47, of=2, asked=True)
    stage.cycle(0.0)
    assert stage.control(job) == Control(5, tell_step=True), "rank 0 has not said where it is since"
    stage.clock.time += 1.0
    at_step(stage, job, 0, 48, of=2, asked=True)
    stage.cycle(0.0)
    assert stage.control(job) == Control(5, stop_at_step=(3, 52))
    stage.restart()
    assert stage.control(job) == Control(5, stop_at_step=(3, 52)), "what was chosen survives a crash"


def test_after_a_crash_ranks_are_asked_again_where_they_are(stage: Stage) -> None:
    job = gang_that_can_stop(stage)
    at_step(stage, job, 0, 48, of=2, asked=True)
    stage.restart()
    assert stage.control(job) == Control(5, tell_step=True)
    for rank in range(2):
        at_step(stage, job, rank, 60, of=2, asked=True)
    stage.cycle(0.0)
    assert stage.control(job) == Control(5, stop_at_step=(3, 63))


def test_a_gang_of_which_one_rank_cannot_stop_at_a_step_stops_after_an_epoch(stage: Stage) -> None:
    job = stage.gang(2)
    stage.begin(job)
    stage.saved(job, 3.0, seconds=100.0)
    stage.say(job, rank=1, begun=4)
    at_step(stage, job, 0, 40, of=2)
    stage.done(stage.controller.requeue(job, by="ann", is_now=False))
    assert stage.control(job) == Control(5)


def test_ranks_of_different_epochs_stop_in_the_later_one(stage: Stage) -> None:
    job = gang_that_can_stop(stage)
    at_step(stage, job, 0, 99, of=2, asked=True)
    at_step(stage, job, 1, 0, of=2, epoch=4, asked=True)
    stage.cycle(0.0)
    assert stage.control(job) == Control(5, stop_at_step=(4, 3))


def test_after_it_resumed_inside_an_epoch_its_whole_epochs_are_not_a_step_backwards(stage: Stage) -> None:
    job = wide(stage)
    at_step(stage, job, 0, 40)
    stage.elastic(2, 2)
    stage.cycle(0.0)
    inside(stage, job, 3.0, 41)
    stage.finish(job, 75)
    stage.begin(job)
    stage.say(job, begun=4, epochs_done=3.0)
    assert stage.training(job).epochs_done == pytest.approx(3.41)
    stage.say(job, epochs_done=4.0)
    assert stage.training(job).epochs_done == 4.0
    with pytest.raises(Rejected, match="epochs go backwards: 3 done, but 4 were"):
        stage.say(job, epochs_done=3.0)


def test_how_long_an_epoch_takes_is_known_from_its_steps_until_one_without_warming_up_was_finished() -> None:
    """A width that was measured by its steps was unknown again as soon as its first epoch had ended."""
    measure = Measure(2, 1)
    assert measure.with_steps(10, 5.0, 100).whole_epoch_s is None, "too few to tell"
    assert measure.with_steps(20, 10.0, 100).whole_epoch_s == 50.0
    assert measure.with_steps(20, 10.0).whole_epoch_s is None
    begun = measure.with_steps(20, 10.0, 100).with_epoch(60.0, is_first=True)
    assert (begun.whole_epoch_s, begun.has_settled) == (50.0, True)
    assert begun.with_epoch(42.0, is_first=False).whole_epoch_s == 42.0
    assert measure.with_epoch(60.0, is_first=True).whole_epoch_s == 60.0


def test_one_that_can_save_at_any_step_is_resized_before_its_first_checkpoint_and_in_its_last_epoch(
    stage: Stage,
) -> None:
    job = stage.elastic(1, 4)
    stage.begin(job)
    stage.say(job, begun=1, epochs_total=1.0)
    at_step(stage, job, 0, 5, epoch=0)
    stage.done(stage.controller.scale(job, 1, by="ann", is_now=False))
    stage.cycle(1.0)
    assert stage.control(job) == Control(1, stop_at_step=(0, 0))


@pytest.mark.parametrize(
    ("steps_per_epoch", "chosen"), [(None, (3, 51)), (52, (3, 51)), (51, (4, 0)), (48, (4, 3)), (20, (5, 11))]
)
def test_where_its_epoch_ends_before_that_step_one_of_a_later_epoch_is_chosen(
    stage: Stage, steps_per_epoch: int | None, chosen: tuple[int, int]
) -> None:
    """Ranks that were asked to stop far behind the end of their epoch stopped at its end, before all had heard of it:
    one of them went on into the next epoch and waited for the others, which had left.
    """
    job = gang_that_can_stop(stage)
    stage.say(job, steps=(10, 5.0), steps_per_epoch=steps_per_epoch)
    for rank in range(2):
        at_step(stage, job, rank, 48, of=2, asked=True)
    stage.cycle(0.0)
    assert stage.control(job).stop_at_step == chosen


def test_of_an_epoch_in_which_it_resumed_it_has_fewer_steps_to_do(stage: Stage) -> None:
    job = gang_that_can_stop(stage)
    stage.say(job, steps=(10, 5.0), steps_per_epoch=100)
    for rank in range(2):
        at_step(stage, job, rank, 48, of=2, asked=True)
    inside(stage, job, 3.0, 60)
    stage.finish(job, 75, seconds=1.0)
    stage.begin(job)
    for rank in range(2):
        at_step(stage, job, rank, 38, of=2)
    stage.done(stage.controller.requeue(job, by="ann", is_now=False))
    for rank in range(2):
        at_step(stage, job, rank, 38, of=2, asked=True)
    stage.cycle(0.0)
    assert stage.control(job).stop_at_step == (4, 1), "it does 40 of the 100"
