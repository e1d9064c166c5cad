"""Which failures are tried again, when, and what is lost by them."""

from __future__ import annotations

import pytest

from controller.stage import Stage
from controller.yielders import wide
from swell.model.job import ExitAction, ExitRule, JobState
from swell.model.launch import CAUSE_KEEPER, CAUSE_REBOOT, CAUSE_START, CAUSE_TIME_LIMIT
from swell.model.reason import Code


def test_a_failed_job_is_tried_again_after_a_while_and_each_time_a_longer_one(stage: Stage) -> None:
    job = stage.submit(retries=3)
    waits = []
    for _ in range(3):
        stage.begin(job)
        stage.finish(job, 1)
        retry_at = stage.job(job).retry_at
        assert (stage.states(job), stage.job(job).reason_code) == (["queued"], Code.WAITING_TO_RETRY)
        assert retry_at is not None
        waits.append(retry_at - stage.clock.time)
        stage.cycle(waits[-1] - 0.5)
        assert stage.states(job) == ["queued"]
        stage.cycle(0.5)
        assert stage.states(job) == ["starting"]
    stage.begin(job)
    stage.finish(job, 7)
    record = stage.job(job)
    assert (waits, record.state, record.exit_code, record.failures) == ([1.0, 2.0, 4.0], JobState.FAILED, 7, 3)


FOR_GOOD = ExitRule(ExitAction.FAIL, (42,))
UNCOUNTED = ExitRule(ExitAction.IGNORE, (3,))


def test_a_failure_that_its_job_calls_final_is_not_tried_again(stage: Stage) -> None:
    job = stage.submit(retries=3, exit_rules=(FOR_GOOD,))
    stage.begin(job)
    stage.finish(job, 1)
    stage.cycle(1.0)
    stage.begin(job)
    stage.finish(job, 42)
    record = stage.job(job)
    assert (record.state, record.exit_code, record.failures) == (JobState.FAILED, 42, 1)


def test_a_failure_that_its_job_ignores_is_tried_again_without_using_up_a_retry(stage: Stage) -> None:
    """Each time after a longer pause, so that it is not started all the time."""
    job = stage.submit(retries=0, exit_rules=(UNCOUNTED,))
    waits = []
    for _ in range(3):
        stage.begin(job)
        stage.finish(job, 3)
        retry_at = stage.job(job).retry_at
        assert retry_at is not None
        waits.append(retry_at - stage.clock.time)
        stage.cycle(waits[-1])
    stage.begin(job)
    stage.finish(job, 1)
    record = stage.job(job)
    assert (waits, record.state, record.failures) == ([1.0, 2.0, 4.0], JobState.FAILED, 0)


def test_a_retry_that_is_due_survives_a_crash(stage: Stage) -> None:
    job = stage.submit(retries=1)
    stage.begin(job)
    stage.finish(job, 1)
    stage.restart()
    stage.cycle(0.5)
    waiting = stage.states(job)
    stage.cycle(0.5)
    assert (waiting, stage.states(job)) == (["queued"], ["starting"])


def test_preemptions_do_not_count_as_failures(stage: Stage) -> None:
    job = wide(stage, retries=1)
    for epochs in (4.0, 5.0, 6.0):
        stage.done(stage.controller.requeue(job, by="ann", is_now=False))
        stage.saved(job, epochs, seconds=1.0)
        stage.finish(job, 75)
        stage.begin(job)
    assert (stage.job(job).failures, stage.job(job).preemptions) == (0, 3)
    stage.finish(job, 1)
    assert (stage.states(job), stage.job(job).failures) == (["queued"], 1)


def test_a_failed_job_goes_on_from_its_checkpoint_and_the_loss_is_counted(stage: Stage) -> None:
    job = wide(stage, retries=1)
    stage.say(job, seconds=20.0, epochs_done=4.0)
    stage.finish(job, 1, seconds=5.0)
    stage.cycle(1.0)
    assert (stage.own(job)["EPOCHS_DONE"], stage.job(job).lost_gpu_seconds) == ("3", 4 * 25.0)


@pytest.mark.parametrize(
    ("cause", "reason"),
    [(CAUSE_START, Code.START_FAILED), (CAUSE_TIME_LIMIT, Code.TIME_LIMIT)],
)
def test_what_would_fail_the_same_way_is_not_tried_again(stage: Stage, cause: str, reason: Code) -> None:
    job = stage.submit(retries=5)
    stage.begin(job)
    stage.finish(job, 1, cause=cause)
    assert (stage.states(job), stage.job(job).reason_code) == (["failed"], reason)


def test_an_exit_code_that_nobody_recorded_is_tried_again(stage: Stage) -> None:
    job = stage.submit(retries=1)
    stage.begin(job)
    stage.finish(job, None, cause=CAUSE_KEEPER)
    assert stage.states(job) == ["queued"]


def test_a_job_with_a_checkpoint_goes_on_after_its_machine_was_restarted(stage: Stage) -> None:
    job = wide(stage)
    stage.finish(job, None, cause=CAUSE_REBOOT, seconds=10.0)
    record = stage.job(job)
    assert (record.state, record.attempts, record.failures) == (JobState.STARTING, 2, 0)
    assert (stage.own(job)["EPOCHS_DONE"], record.lost_gpu_seconds) == ("3", 40.0)


def test_one_without_ends_with_that_reason(stage: Stage) -> None:
    job = stage.submit()
    stage.begin(job)
    stage.finish(job, None, cause=CAUSE_REBOOT)
    assert (stage.states(job), stage.job(job).reason_code) == (["failed"], Code.MACHINE_RESTARTED)
