"""What a job says of itself: what is remembered of it, and what is refused."""

from __future__ import annotations

from math import exp, log

import pytest

from controller.stage import Stage
from swell.errors import Conflict, Rejected, Unavailable
from swell.model.job import AttemptId, Role
from swell.model.resources import Resources
from swell.model.training import Checkpoint, Measure, Report, TrainingRecord


def training(stage: Stage, **spec: object) -> int:
    """A job that is running, at width 2 of 1..2, since 1000."""
    job = stage.elastic(1, 2, **spec)
    stage.begin(job)
    return job


def refused(stage: Stage, job: int, **told: object) -> str:
    """The words of a refusal that changed nothing."""
    before = stage.job(job)
    with pytest.raises((Conflict, Rejected)) as refusal:
        stage.say(job, **told)  # type: ignore[arg-type]
    assert stage.job(job) == before
    return str(refusal.value)


# -- what is remembered --------------------------------------------------------------------------------------


def test_all_that_a_report_says_is_remembered(stage: Stage) -> None:
    job = training(stage)
    stage.say(
        job,
        seconds=12.0,
        begun=3,
        epochs_done=2.0,
        epochs_total=10.0,
        epochs=((1, 4.0), (2, 4.0)),
        steps=(50, 5.0),
        memory_mib=900.0,
        checkpoint=Checkpoint(2.0, "two", 1011.0, 1),
        metrics=(("loss", 0.5),),
    )
    assert stage.training(job) == TrainingRecord(
        epochs_done=2.0,
        epochs_total=10.0,
        checkpoint=Checkpoint(2.0, "two", 1011.0, 1),
        restart_s=12.0,
        profile=(Measure(2, 1, epochs=2, epoch_s=4.0, is_warm=True, steps=50, step_s=0.1, memory_mib=900.0),),
        metrics={"loss": 0.5},
        ends_at=1012.0 + 8 * 4.0,
        measured_in=1,
        last_epoch=(2, 4.0),
        counted=2.0,
        counted_lengths=2.0,
    )


def test_what_was_reported_survives_a_crash(stage: Stage) -> None:
    job = training(stage)
    stage.saved(job, 3.0, seconds=30.0)
    before = stage.training(job)
    stage.restart()
    stage.say(job, metrics=(("loss", 0.1),))
    after = stage.training(job)
    assert (before.checkpoint, before.restart_s) == (after.checkpoint, after.restart_s)
    assert (after.epochs_done, after.metrics) == (3.0, {"loss": 0.1})


def test_the_length_that_its_file_says_counts_until_the_job_says_another(stage: Stage) -> None:
    job = training(stage, epochs=20)
    stage.say(job, epochs_done=1.0)
    by_file = stage.training(job).epochs_total
    stage.say(job, epochs_total=30.0)
    assert (by_file, stage.training(job).epochs_total) == (20, 30.0)


def test_newer_epochs_count_more_than_older_ones(stage: Stage) -> None:
    job = training(stage)
    stage.say(job, epochs=((1, 50.0), (2, 10.0)))
    stage.say(job, epochs=((3, 20.0),))
    assert stage.training(job).epoch_s() == ((2, 1, pytest.approx(18.0)),)


def resized(stage: Stage, job: int, width: int, epochs_done: float) -> None:
    """To this width, at a checkpoint."""
    stage.saved(job, epochs_done, seconds=100.0)
    stage.done(stage.controller.scale(job, width, by="ann", is_now=False))
    stage.cycle()
    stage.finish(job, 75)
    stage.begin(job)


def test_each_width_is_measured_for_itself(stage: Stage) -> None:
    job = training(stage)
    stage.say(job, begun=1, epochs=((1, 11.0), (2, 10.0)))
    resized(stage, job, 1, 2.0)
    stage.say(job, epochs=((3, 19.0), (4, 18.0)))
    assert stage.training(job).epoch_s() == ((1, 1, 18.0), (2, 1, 10.0))


def test_the_first_epoch_of_an_attempt_counts_only_until_another_does(stage: Stage) -> None:
    """At width 1 nothing but a first epoch is known, so it is not held against what was measured at width 2."""
    job = training(stage)
    seen = []
    for epochs in (((1, 40.0),), ((2, 10.0),)):
        stage.say(job, begun=1, epochs=epochs)
        seen.append(stage.training(job).epoch_s())
    resized(stage, job, 1, 2.0)
    for epochs in (((3, 90.0),), ((4, 18.0),)):
        stage.say(job, epochs=epochs)
        seen.append(stage.training(job).epoch_s())
    resized(stage, job, 2, 4.0)
    stage.say(job, epochs=((5, 70.0),))
    seen.append(stage.training(job).epoch_s())
    both = ((1, 1, 18.0), (2, 1, 10.0))
    assert seen == [((2, 1, 40.0),), ((2, 1, 10.0),), ((2, 1, 10.0),), both, both]


def test_of_first_epochs_alone_the_fastest_counts(stage: Stage) -> None:
    job = training(stage)
    stage.say(job, begun=1, epochs=((1, 30.0),))
    resized(stage, job, 1, 1.0)
    resized(stage, job, 2, 1.0)
    stage.say(job, epochs=((2, 20.0),))
    assert stage.training(job).epoch_s() == ((2, 1, 20.0),)


def test_epochs_that_become_shorter_do_so_at_every_width(stage: Stage) -> None:
    """A job whose epochs became shorter stayed for ever at the width that had been measured last."""
    job = training(stage)
    stage.say(job, begun=1, epochs=((1, 11.0), (2, 10.0)))
    resized(stage, job, 1, 2.0)
    stage.say(job, epochs=((3, 19.0), (4, 18.0)))
    stage.say(job, epochs=((5, 8.0),))
    assert stage.training(job).epoch_s() == ((1, 1, 10.0), (2, 1, pytest.approx(10.0 * 10.0 / 18.0)))


def test_widths_of_a_job_that_counts_steps_are_compared_in_epochs_of_one_length(stage: Stage) -> None:
    """Epochs became shorter between two measurements, and the later one looked like the faster width."""
    job = training(stage)
    stage.say(job, begun=1, steps=(100, 10.0), steps_per_epoch=1000)
    stage.say(job, steps=(100, 10.0), steps_per_epoch=200)
    resized(stage, job, 1, 2.0)
    stage.say(job, begun=3, steps=(50, 8.0), steps_per_epoch=200)
    at_first = stage.training(job).epoch_s()
    stage.say(job, epochs=((3, 33.0),), steps=(50, 8.0), steps_per_epoch=50)
    both = stage.training(job).epoch_s()
    assert at_first == ((1, 1, pytest.approx(32.0)), (2, 1, pytest.approx(20.0)))
    assert both == ((1, 1, pytest.approx(8.0)), (2, 1, pytest.approx(5.0)))


def test_a_width_that_is_new_is_compared_in_epochs_of_the_same_length_too(stage: Stage) -> None:
    """It was first measured in a shorter epoch than all others, and looked nearly twice as fast as they until the end.

    Epochs that are shorter by as much as the job has become wider cannot be told from batches of each task's own.
    """
    job = training(stage)
    stage.say(job, begun=1, steps=(100, 10.0), steps_per_epoch=1000)
    resized(stage, job, 1, 1.0)
    stage.say(job, begun=2, steps=(100, 20.0), steps_per_epoch=600)
    assert stage.training(job).epoch_s() == ((1, 1, pytest.approx(120.0)), (2, 1, pytest.approx(60.0)))


def test_fewer_steps_of_larger_batches_are_no_shorter_epoch(stage: Stage) -> None:
    job = training(stage)
    stage.say(job, begun=1, steps=(100, 10.0), steps_per_epoch=500)
    resized(stage, job, 1, 1.0)
    stage.say(job, begun=2, steps=(100, 10.0), steps_per_epoch=1000)
    assert stage.training(job).epoch_s() == ((1, 1, pytest.approx(100.0)), (2, 1, pytest.approx(50.0)))
    assert stage.training(job).trend == 0.0


def test_steps_tell_at_once_that_epochs_become_shorter(stage: Stage) -> None:
    """Only the third epoch of an attempt told it: a job that was resized in each looked ten times as long as it was."""
    job = training(stage)
    stage.say(job, begun=1, epochs_total=5.0, steps=(100, 10.0), steps_per_epoch=1000)
    stage.saved(job, 1.0)
    stage.say(job, epochs_done=1.0, steps=(900, 90.0), steps_per_epoch=1000)
    stage.say(job, steps=(100, 10.0), steps_per_epoch=500)
    assert stage.training(job).trend == pytest.approx(0.5 * log(0.5))
    stage.say(job, steps=(100, 10.0), steps_per_epoch=500)
    assert stage.training(job).trend == pytest.approx(0.5 * log(0.5)), "once for each epoch"


def test_an_epoch_of_a_job_that_counts_steps_moves_its_own_width_alone(stage: Stage) -> None:
    job = training(stage)
    stage.say(job, begun=1, steps=(100, 10.0), steps_per_epoch=100)
    resized(stage, job, 1, 1.0)
    stage.say(job, begun=2, epochs=((2, 21.0), (3, 20.0)), steps=(100, 18.0), steps_per_epoch=100)
    stage.say(job, epochs=((4, 10.0),), steps=(100, 18.0), steps_per_epoch=100)
    assert stage.training(job).epoch_s() == ((1, 1, pytest.approx(17.0)), (2, 1, pytest.approx(10.0)))


def test_the_first_epoch_that_an_attempt_measures_says_how_fast_its_width_is_beside_the_others(stage: Stage) -> None:
    """What one measurement had made of a width beside another stayed so for ever: later ones moved both alike."""
    job = training(stage)
    stage.say(job, begun=1, epochs=((1, 11.0), (2, 10.0)))
    resized(stage, job, 1, 2.0)
    stage.say(job, epochs=((3, 19.0), (4, 18.0)))
    resized(stage, job, 2, 4.0)
    stage.say(job, epochs=((5, 21.0), (6, 20.0)))
    assert stage.training(job).epoch_s() == ((1, 1, 18.0), (2, 1, pytest.approx(0.7 * 10.0 + 0.3 * 20.0)))


def test_a_narrower_width_that_looks_faster_tells_that_epochs_have_become_shorter(stage: Stage) -> None:
    """A job stood on one GPU of an empty cluster for ten hours: an early epoch, on four, had taken 1751 s, and the
    next took 874 s on one, so four looked half as fast as one and were never tried again."""
    job = training(stage)
    stage.say(job, begun=1, epochs=((1, 1800.0), (2, 1751.0)))
    resized(stage, job, 1, 2.0)
    stage.say(job, epochs=((3, 700.0),))
    [(_, _, one_s), (_, _, two_s)] = stage.training(job).epoch_s()
    assert (one_s, two_s) == (700.0, pytest.approx(700.0 / 2 / exp(-0.35)))


def test_a_width_that_is_a_little_slower_or_faster_than_expected_is_just_that(stage: Stage) -> None:
    job = training(stage)
    stage.say(job, begun=1, epochs=((1, 1000.0), (2, 1000.0)))
    resized(stage, job, 1, 2.0)
    stage.say(job, epochs=((3, 1500.0),))
    assert stage.training(job).epoch_s() == ((1, 1, 1500.0), (2, 1, 1000.0))


def test_the_very_first_epoch_counts_only_until_another_does_however_long_it_is(stage: Stage) -> None:
    """The first epoch of the published models takes up to six times as long as the second."""
    job = training(stage)
    stage.say(job, begun=1, epochs=((1, 1751.0),))
    alone = stage.training(job).epoch_s()
    resized(stage, job, 1, 1.0)
    stage.say(job, epochs=((2, 874.0),))
    assert (alone, stage.training(job).epoch_s()) == (((2, 1, 1751.0),), ((1, 1, 874.0),))


def test_epochs_that_become_shorter_are_expected_to_go_on_so_for_a_while(stage: Stage) -> None:
    """At 100 epochs still to do, each as long as the first, a job of 22 minutes was believed to take three hours."""
    job = training(stage)
    stage.say(job, begun=1, epochs_total=5.0, epochs=((1, 99.0), (2, 80.0), (3, 40.0)))
    stage.saved(job, 3.0)
    known = stage.training(job)
    assert known.trend == pytest.approx(0.5 * log(0.5))
    following = exp(0.6 * known.trend), exp((0.6 + 0.36) * known.trend)
    assert known.lengths == pytest.approx(sum(following) / 2)


def test_epochs_that_are_alike_are_expected_to_stay_so(stage: Stage) -> None:
    job = training(stage)
    stage.say(job, begun=1, epochs_total=9.0, epochs=((1, 99.0), (2, 80.0), (3, 80.0)))
    assert (stage.training(job).trend, stage.training(job).lengths) == (0.0, 1.0)


def test_a_first_epoch_that_is_long_counts_like_any_other_unless_it_is_the_very_first(stage: Stage) -> None:
    """Warming up is a small part of it, and the next may be hours away."""
    job = training(stage)
    stage.say(job, begun=1, epochs=((1, 3000.0), (2, 3000.0)))
    resized(stage, job, 1, 2.0)
    resized(stage, job, 2, 2.0)
    stage.say(job, epochs=((3, 2000.0),))
    assert stage.training(job).epoch_s() == ((2, 1, pytest.approx(0.7 * 3000.0 + 0.3 * 2000.0)),)


def test_only_the_first_rank_counts_but_all_say_where_they_are(stage: Stage) -> None:
    job = stage.gang(2)
    stage.begin(job)
    stage.say(job, begun=3, epochs_done=2.0)
    stage.say(job, rank=1, begun=5, epochs_done=4.0, metrics=(("loss", 9.0),))
    assert (stage.training(job).epochs_done, stage.training(job).metrics) == (2.0, {})


def test_of_too_many_metrics_the_newest_are_kept(stage: Stage) -> None:
    """One that had just been reported was dropped, because its name was the oldest."""
    job = training(stage)
    stage.say(job, metrics=(("loss", 1.0), *((f"m{n}", 0.0) for n in range(49))))
    stage.say(job, metrics=(("loss", 0.5), ("new", 2.0)))
    kept = stage.training(job).metrics
    assert (len(kept), kept["loss"], kept["new"], "m0" in kept) == (50, 0.5, 2.0, False)


# -- what a restart costs ------------------------------------------------------------------------------------


def test_the_first_sign_of_training_tells_what_the_start_cost(stage: Stage) -> None:
    job = training(stage)
    stage.say(job, seconds=8.0, begun=1)
    stage.say(job, seconds=50.0, begun=2)
    assert stage.training(job).restart_s == 8.0


def test_the_next_start_counts_from_the_moment_its_work_was_safe(stage: Stage) -> None:
    """5 s from the checkpoint to its end, 20 s of waiting that do not count, 5 s to train again: 10 s."""
    job = training(stage)
    stage.say(job, seconds=20.0, begun=1)
    stage.saved(job, 1.0, seconds=100.0)
    stage.done(stage.controller.requeue(job, by="ann", is_now=False))
    other = stage.elastic(4, 4, priority=9)
    stage.finish(job, 75, seconds=5.0)
    stage.finish(other, 0, seconds=20.0)
    assert stage.states(job) == ["starting"]
    stage.began(job, 0)
    stage.say(job, seconds=5.0, begun=2)
    assert stage.training(job).restart_s == pytest.approx(0.7 * 20.0 + 0.3 * 10.0)


def test_a_checkpoint_tells_how_often_they_are_made(stage: Stage) -> None:
    job = training(stage)
    stage.say(job, begun=1)
    stage.saved(job, 1.0, seconds=10.0)
    first = stage.training(job).every_s
    stage.saved(job, 2.0, seconds=20.0)
    assert (first, stage.training(job).every_s) == (10.0, 13.0)


def test_the_same_checkpoint_said_again_is_the_same(stage: Stage) -> None:
    job = training(stage)
    stage.saved(job, 1.0, seconds=10.0)
    before = stage.training(job)
    stage.saved(job, 1.0, seconds=10.0)
    assert (stage.training(job).checkpoint, stage.training(job).every_s) == (before.checkpoint, before.every_s)


@pytest.mark.parametrize(("at", "kept"), [(5.0, 1000.0), (9e9, 1007.0), (1003.0, 1003.0)])
def test_a_jobs_clock_may_be_wrong(stage: Stage, at: float, kept: float) -> None:
    job = training(stage)
    stage.say(job, seconds=7.0, checkpoint=Checkpoint(1.0, None, at, 1))
    checkpoint = stage.training(job).checkpoint
    assert checkpoint is not None
    assert checkpoint.at == kept


# -- when will it be done ------------------------------------------------------------------------------------


def test_the_expected_end_follows_its_speed(stage: Stage) -> None:
    job = training(stage)
    stage.say(job, seconds=10.0, epochs_done=1.0, epochs_total=11.0, epochs=((1, 10.0),))
    assert stage.training(job).ends_at == 1010.0 + 100.0


def test_the_jobs_own_estimate_comes_first(stage: Stage) -> None:
    job = training(stage)
    stage.say(job, epochs_done=1.0, epochs_total=11.0, epochs=((1, 10.0),), left_s=77.0)
    assert stage.training(job).ends_at == 1077.0


def test_an_end_that_nobody_will_see_is_not_told(stage: Stage) -> None:
    """A thousand million epochs of thirty years: no calendar has that date, and no listing could be made."""
    job = training(stage)
    stage.say(job, epochs_done=1.0, epochs_total=1e9, epochs=((1, 1e9),))
    assert stage.training(job).ends_at is None


# -- what is refused -----------------------------------------------------------------------------------------


def test_epochs_do_not_go_backwards(stage: Stage) -> None:
    job = training(stage)
    stage.say(job, begun=6, epochs_done=5.0)
    assert refused(stage, job, begun=9, epochs_done=4.0) == (
        "epochs go backwards: 4 done, but 5 were reported before; a restarted job goes on from EPOCHS_DONE"
    )


def test_what_is_refused_does_not_count_where_to_stop_either(stage: Stage) -> None:
    job = training(stage)
    stage.saved(job, 5.0, seconds=60.0)
    refused(stage, job, begun=900, epochs_done=4.0)
    stage.done(stage.controller.requeue(job, by="ann", is_now=False))
    assert stage.control(job).stop_after_epoch == 6


def test_a_restarted_job_that_began_anew_is_told_so(stage: Stage) -> None:
    job = training(stage)
    stage.saved(job, 5.0, seconds=60.0)
    stage.done(stage.controller.requeue(job, by="ann", is_now=True))
    stage.finish(job, 143, cause="stopped")
    stage.begin(job)
    assert "5 were reported before" in refused(stage, job, begun=1, epochs_done=0.0)


def test_a_checkpoint_with_less_than_the_last_one_is_refused(stage: Stage) -> None:
    job = training(stage)
    stage.saved(job, 5.0)
    assert refused(stage, job, checkpoint=Checkpoint(3.0, None, 1000.0, 1)) == (
        "the checkpoint holds 3 epochs, but one of 5 was reported before"
    )


def test_more_epochs_than_there_are_is_refused(stage: Stage) -> None:
    job = training(stage)
    message = "5 epochs done of 4 cannot be; report the true total"
    assert refused(stage, job, epochs_done=5.0, epochs_total=4.0) == message


def test_an_attempt_that_is_over_cannot_report(stage: Stage) -> None:
    job = training(stage)
    stage.saved(job, 1.0, seconds=60.0)
    stage.done(stage.controller.requeue(job, by="ann", is_now=False))
    stage.finish(job, 75)
    assert refused(stage, job, attempt=1, epochs_done=9.0) == "attempt 1.1 is over: job 1 is at attempt 2"


def test_nor_can_one_that_has_not_begun(stage: Stage) -> None:
    job = training(stage)
    assert refused(stage, job, attempt=2, epochs_done=9.0) == "attempt 1.2 is over: job 1 is at attempt 1"


def test_nor_can_a_job_that_has_ended(stage: Stage) -> None:
    """The library asked again and again after `not found`; `conflict` tells it that nothing more is to be said."""
    job = training(stage)
    stage.finish(job, 0)
    assert refused(stage, job, epochs_done=9.0) == "attempt 1.1 is over: job 1 has ended"


def test_a_refusal_is_told_to_its_own_sender_only(stage: Stage) -> None:
    good, bad = stage.submit(), stage.submit()
    stage.cycle()
    futures = [
        stage.controller.report(Report(AttemptId(good, 1), 0, epochs_done=1.0)),
        stage.controller.report(Report(AttemptId(bad, 7), 0, epochs_done=1.0)),
    ]
    stage.cycle()
    assert (futures[0].result(timeout=0), stage.training(good).epochs_done) == (None, 1.0)
    assert isinstance(futures[1].exception(timeout=0), Conflict)


def test_one_who_no_longer_waits_for_the_answer_keeps_nobody_else_waiting(stage: Stage) -> None:
    """The answer to a request that had been cancelled could not be given; those behind it never got theirs."""
    job = training(stage)
    gone = stage.controller.report(Report(AttemptId(job, 1), 0, epochs_done=1.0))
    waits = stage.controller.report(Report(AttemptId(job, 1), 0, epochs_done=2.0))
    gone.cancel()
    stage.cycle()
    assert (waits.result(timeout=0), stage.training(job).epochs_done) == (None, 2.0)


def test_a_report_that_could_not_be_written_is_not_acknowledged(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    job = training(stage)
    told = stage.controller.report(Report(AttemptId(job, 1), 0, epochs_done=5.0))
    with monkeypatch.context() as patch:
        patch.setattr(stage.store, "record", lambda changes: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            stage.cycle()
    assert str(told.exception(timeout=0)) == "a cycle failed; try again"
    stage.say(job, epochs_done=4.0)
    assert stage.training(job).epochs_done == 4.0


def test_a_job_whose_epochs_take_no_time_stops_nobody_elses_plan(stage: Stage) -> None:
    """Its times were divided by: every cycle from then on failed, for everybody."""
    odd = stage.elastic(1, 2)
    stage.begin(odd)
    stage.say(odd, epochs_done=1.0, epochs_total=1.0, epochs=((1, 0.0), (1, 0.0)))
    stage.saved(odd, 1.0)
    other = stage.elastic(3, 3)
    stage.cycle(100.0)
    assert stage.states(odd, other) == ["running", "queued"]


def test_how_busy_it_is_is_not_counted_twice_after_a_failed_cycle(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last arrivals were added again each time the store was read, so a quiet time looked busy."""
    stage.submit(roles=(Role("worker", ("true",), Resources(99000, 0, 0), 1),))
    stage.cycle()
    with monkeypatch.context() as patch:
        patch.setattr(stage.engine, "observe", lambda: (_ for _ in ()).throw(OSError("gone")))
        with pytest.raises(OSError, match="gone"):
            stage.cycle()
    stage.cycle()
    assert stage.controller.snapshot.arrivals == (1000.0,)


# -- what it left ------------------------------------------------------------------------------------------------


def leave(stage: Stage, job: int, epochs: float, attempt: int = 1) -> None:
    """It ends, and a report is found that nobody heard."""
    saved = Checkpoint(epochs, None, 1000.0, attempt)
    stage.engine.reports.append(Report(AttemptId(job, attempt), 0, epochs_done=epochs, checkpoint=saved))


def test_a_job_that_has_ended_is_as_far_as_the_report_it_left_says(stage: Stage) -> None:
    job = training(stage)
    stage.saved(job, 58.0)
    leave(stage, job, 60.0)
    stage.finish(job, 0)
    assert (stage.states(job), stage.training(job).epochs_done) == (["succeeded"], 60.0)


def test_one_that_comes_back_goes_on_from_the_report_it_left(stage: Stage) -> None:
    job = training(stage, retries=1)
    stage.saved(job, 1.0)
    leave(stage, job, 3.0)
    stage.finish(job, 1)
    stage.cycle(100.0)
    assert (stage.job(job).attempts, stage.own(job)["EPOCHS_DONE"]) == (2, "3")


def test_a_report_left_survives_a_disk_that_is_full(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    job = training(stage)

    def full(_: object) -> None:
        raise Unavailable("the disk is full")

    leave(stage, job, 3.0)
    with monkeypatch.context() as context:
        context.setattr(stage.store, "record", full)
        with pytest.raises(Unavailable):
            stage.finish(job, 0)
    stage.cycle()
    assert (stage.states(job), stage.training(job).epochs_done) == (["succeeded"], 3.0)


@pytest.mark.parametrize(("what", "epochs", "attempt"), [("it goes backwards", 1.0, 1), ("of a later life", 9.0, 2)])
def test_a_report_left_that_cannot_be_true_changes_nothing(
    stage: Stage, what: str, epochs: float, attempt: int
) -> None:
    job = training(stage)
    stage.saved(job, 2.0)
    leave(stage, job, epochs, attempt)
    stage.finish(job, 0)
    assert (stage.states(job), stage.training(job).epochs_done) == (["succeeded"], 2.0), what
