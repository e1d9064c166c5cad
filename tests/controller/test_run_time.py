"""How long did a job run? As long as its attempts: no wait between them counts, and no time after an end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from controller.stage import Stage
from swell.model.job import JobState


def nothing(stage: Stage) -> None:
    """The same server goes on."""


def _spans(stage: Stage, job: int) -> float:
    return sum(
        one.ended_at - one.started_at
        for one in stage.store.attempts(job)
        if one.started_at is not None and one.ended_at is not None
    )


def _fail_and_requeue(stage: Stage, job: int, crash: Callable[[Stage], None]) -> None:
    """34 s of run time, 210 s of having failed."""
    stage.cycle(0.0)
    stage.begin(job)
    crash(stage)
    stage.cycle(34.0)
    stage.finish(job, 1)
    assert stage.states(job) == ["failed"]
    stage.cycle(210.0)
    crash(stage)
    stage.done(stage.controller.requeue(job, by="ann", is_now=False))
    stage.cycle(0.0)


@pytest.mark.parametrize("crash", [nothing, Stage.restart])
@pytest.mark.parametrize("what", ["gang", "array"])
def test_the_time_in_which_a_job_lay_failed_is_no_run_time(
    stage: Stage, what: str, crash: Callable[[Stage], None]
) -> None:
    """RAN was 4m04s of a job that had run for 34.5 s; `swell usage` was right."""
    job = stage.gang(1) if what == "gang" else stage.array("0", 1)
    _fail_and_requeue(stage, job, crash)
    first = stage.job(job)
    assert (first.ran_s, first.running_since) == (_spans(stage, job), None)
    stage.begin(job)
    assert stage.job(job).running_since == stage.store.attempts(job)[-1].started_at
    crash(stage)
    stage.cycle(0.5)
    stage.finish(job, 0)
    record = stage.job(job)
    assert (record.state, record.attempts, record.running_since) == (JobState.SUCCEEDED, 2, None)
    assert record.ran_s == pytest.approx(_spans(stage, job))
    assert 34.5 <= record.ran_s < 40
    assert record.used_s < 5  # of its present life, which its time limit counts
    ended = [detail["ran_s"] for detail in stage.details(job, "Ended")]
    assert ended == [pytest.approx(first.ran_s), pytest.approx(record.ran_s)]


def test_the_waits_between_retries_are_no_run_time(stage: Stage) -> None:
    job = stage.submit(retries=2)
    stage.cycle(0.0)
    for code in (1, 1, 0):
        stage.begin(job)
        stage.cycle(10.0)
        stage.finish(job, code)
        stage.cycle(300.0)
    record = stage.job(job)
    assert (record.state, record.attempts) == (JobState.SUCCEEDED, 3)
    assert record.ran_s == pytest.approx(_spans(stage, job))
    assert record.used_s == pytest.approx(record.ran_s)
    assert 30 <= record.ran_s < 40


def test_an_attempt_whose_tasks_never_ran_has_no_run_time(stage: Stage) -> None:
    job = stage.submit()
    stage.cycle(60.0)
    stage.controller.cancel([job], by="ann", grace_s=None).result()
    stage.cycle(60.0)
    assert (stage.job(job).ran_s, stage.job(job).running_since) == (0.0, None)
