"""What counts against a time limit."""

from __future__ import annotations

from controller.stage import Stage
from controller.yielders import wide
from swell.model.launch import CAUSE_TIME_LIMIT
from swell.model.reason import Code


def test_the_time_of_all_attempts_counts_against_the_limit(stage: Stage) -> None:
    """Every attempt counted from the first one's start: what had passed was taken off again and again."""
    job = wide(stage, time_limit_s=1000.0)
    limits = [stage.launch(job).time_limit_s]
    for epochs in (4.0, 5.0):
        stage.done(stage.controller.requeue(job, by="ann", is_now=False))
        stage.saved(job, epochs, seconds=100.0)
        stage.finish(job, 75)
        stage.begin(job)
        limits.append(stage.launch(job).time_limit_s)
    assert limits == [1000.0, 800.0, 700.0]
    assert (stage.job(job).used_s, [one.started_at for one in stage.store.attempts(job)]) == (
        300.0,
        [1000.0, 1200.0, 1300.0],
    )


def test_time_spent_waiting_does_not_count(stage: Stage) -> None:
    job = wide(stage, time_limit_s=1000.0)
    urgent = stage.elastic(4, 4, priority=9)
    stage.cycle(100.0)
    stage.finish(job, 75)
    stage.began(urgent, 0)
    stage.finish(urgent, 0, seconds=5000.0)
    assert stage.launch(job).time_limit_s == 800.0


def test_one_that_leaves_in_order_when_its_time_is_over_has_reached_its_limit(stage: Stage) -> None:
    """The library makes a checkpoint on SIGTERM and ends with 75: it was started again, for a second, for ever."""
    job = wide(stage, time_limit_s=100.0)
    stage.saved(job, 4.0)
    stage.finish(job, 75, cause=CAUSE_TIME_LIMIT)
    assert (stage.states(job), stage.job(job).reason_code) == (["failed"], Code.TIME_LIMIT)
