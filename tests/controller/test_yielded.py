"""Which end of a job that was asked to stop is a yield, which a success and which a failure."""

from __future__ import annotations

import pytest

from controller.stage import Stage
from controller.yielders import asked_for_another, team, wide
from swell.model.job import JobState
from swell.model.launch import CAUSE_STOPPED
from swell.model.reason import Code
from swell.model.training import Checkpoint


@pytest.mark.parametrize(
    ("code", "epochs", "state"),
    [
        pytest.param(75, 4.0, "starting", id="with the code for it"),
        pytest.param(0, 4.0, "starting", id="with 0 and epochs left, as old scripts do"),
        pytest.param(0, 10.0, "succeeded", id="with 0 and nothing left: it was done anyway"),
        pytest.param(1, 4.0, "failed", id="with an error of its own"),
    ],
)
def test_one_that_was_asked_and_ends(stage: Stage, code: int, epochs: float, state: str) -> None:
    job, _ = asked_for_another(stage)
    stage.saved(job, epochs, seconds=5.0)
    stage.finish(job, code)
    assert (stage.states(job), stage.job(job).lost_gpu_seconds) == ([state], 0.0)


def test_exit_0_of_one_that_says_it_yields_is_no_success_also_when_nobody_knows_its_length(stage: Stage) -> None:
    job = stage.elastic(1, 4)
    stage.begin(job)
    stage.saved(job, 3.0, seconds=100.0)
    stage.elastic(2, 2)
    stage.cycle(0.0)
    stage.say(job, is_yielding=True)
    stage.finish(job, 0)
    assert (stage.states(job), stage.job(job).attempts) == (["starting"], 2)


def test_exit_0_of_one_that_was_not_asked_is_a_success(stage: Stage) -> None:
    job = wide(stage)
    stage.finish(job, 0)
    assert stage.states(job) == ["succeeded"]


def test_code_75_of_one_that_was_not_asked_lets_it_go_on_if_it_got_somewhere(stage: Stage) -> None:
    """Somebody else sent it SIGTERM."""
    job = wide(stage)
    stage.finish(job, 75)
    record = stage.job(job)
    assert (record.state, record.attempts, record.preemptions) == (JobState.STARTING, 2, 0)
    assert stage.own(job)["EPOCHS_DONE"] == "3"


@pytest.mark.parametrize("code", [1, 143])
def test_the_code_of_a_launcher_whose_ranks_have_yielded_does_not_matter(stage: Stage, code: int) -> None:
    """torchrun makes 1 of its ranks' 75."""
    job, _ = asked_for_another(stage)
    stage.saved(job, 4.0, seconds=5.0)
    stage.say(job, is_yielding=True)
    stage.finish(job, code)
    assert (stage.states(job), stage.job(job).failures, stage.job(job).lost_gpu_seconds) == (["starting"], 0, 0.0)


def test_nor_where_somebody_else_sent_it_sigterm(stage: Stage) -> None:
    job = wide(stage)
    stage.say(job, is_yielding=True)
    stage.finish(job, 1)
    record = stage.job(job)
    assert (record.state, record.attempts, record.failures) == (JobState.STARTING, 2, 0)


def test_code_75_again_and_again_is_a_failure(stage: Stage) -> None:
    """It was started for ever: each time it said that it had a checkpoint, and had made none."""
    job = wide(stage)
    stage.finish(job, 75)
    stage.begin(job)
    stage.say(job, begun=4)
    stage.finish(job, 75)
    record = stage.job(job)
    assert (record.state, record.exit_code, record.reason_code) == (JobState.FAILED, 75, Code.TASK_FAILED)


def test_code_75_of_a_job_without_reports_is_an_ordinary_failure(stage: Stage) -> None:
    job = stage.submit()
    stage.begin(job)
    stage.finish(job, 75)
    assert (stage.states(job), stage.job(job).exit_code) == (["failed"], 75)


def test_a_rank_that_was_killed_after_another_had_yielded_does_no_harm(stage: Stage) -> None:
    """Rank 1 hangs in a barrier that rank 0 has left; it has the grace time, then it is stopped."""
    job = team(stage)
    stage.saved(job, 5.0, seconds=10.0)
    stage.ended(job, 0, 75)
    stage.cycle(0.0)
    stage.cycle(29.0)
    assert stage.states(job) == ["running"]
    stage.cycle(1.0)
    assert (stage.states(job), stage.asked_to("stop")) == (["stopping"], [("stop", "1.1", 30.0)])
    stage.ended(job, 1, 137, CAUSE_STOPPED)
    stage.run(job, done=True)
    stage.cycle(30.0)
    record = stage.job(job)
    assert (record.state, record.lost_gpu_seconds, record.preemptions) == (JobState.STARTING, 0.0, 1)


def test_a_rank_that_fails_because_another_has_left_does_no_harm_either(stage: Stage) -> None:
    job = team(stage)
    stage.saved(job, 5.0, seconds=10.0)
    stage.finish(job, 75, 1)
    assert (stage.states(job), stage.job(job).failures) == (["starting"], 0)


def test_a_rank_that_fails_before_any_has_left_is_a_failure(stage: Stage) -> None:
    job = team(stage)
    stage.ended(job, 1, 1)
    stage.cycle()
    assert (stage.states(job), stage.asked_to("stop")) == (["stopping"], [("stop", "1.1", 30.0)])
    stage.ended(job, 0, 143, CAUSE_STOPPED)
    stage.run(job, done=True)
    stage.cycle()
    assert (stage.states(job), stage.job(job).exit_code) == (["failed"], 1)


def test_one_that_is_cancelled_while_it_yields_is_cancelled(stage: Stage) -> None:
    job, other = asked_for_another(stage)
    stage.controller.cancel([job], by="ann", grace_s=None).result()
    stage.cycle()
    stage.finish(job, 75)
    assert stage.states(job, other) == ["cancelled", "starting"]


# -- exit 0 before the last epoch ------------------------------------------------------------------------------------


def resumed(stage: Stage) -> int:
    """Its second attempt runs, from a checkpoint of 4 of 10 epochs."""
    job, _ = asked_for_another(stage)
    stage.saved(job, 4.0, seconds=5.0)
    stage.finish(job, 0)
    stage.begin(job)
    return job


def test_one_that_went_on_and_trained_nothing_says_what_its_script_may_reckon_wrongly(stage: Stage) -> None:
    """A Lightning script was given EPOCHS - EPOCHS_DONE epochs and a checkpoint that counts the ones before: its second
    attempt had nothing to do, ended with 0, and 'all its tasks ended well', with half of its epochs."""
    job = resumed(stage)
    stage.finish(job, 0, seconds=5.0)
    record = stage.job(job)
    assert (record.state, record.reason_code, record.exit_code) == (JobState.SUCCEEDED, Code.ENDED_EARLY, 0)
    assert stage.why(job).to_document() == {
        "code": "EndedEarly",
        "message": "it resumed from a checkpoint of 4 of 10 epochs, trained none of the remaining epochs, and "
        "ended with exit "
        "code 0",
        "evidence": {"job": job, "done": 4.0, "total": 10.0, "trained": 0.0},
        "next": f"see its output (swell logs {job}); a trainer that counts the epochs of its checkpoint, such "
        f"as Lightning, needs the total of 10 (max_epochs=EPOCHS), not the remaining epochs (EPOCHS - "
        f"EPOCHS_DONE); fix that, then run: swell requeue {job}",
    }
    assert stage.details(job, "Ended")[0]["reason"] == "EndedEarly"


def test_one_that_stops_early_has_succeeded_and_says_how_far_it_came(stage: Stage) -> None:
    job = resumed(stage)
    stage.saved(job, 6.0, seconds=100.0)
    stage.finish(job, 0)
    assert (stage.states(job), stage.job(job).exit_code) == (["succeeded"], 0)
    assert stage.why(job).to_document() == {
        "code": "EndedEarly",
        "message": "it ended with exit code 0 after 6 of 10 epochs",
        "evidence": {"job": job, "done": 6.0, "total": 10.0, "trained": 2.0},
        "next": f"nothing to do if it was meant to stop early; otherwise see its output: swell logs {job}",
    }


@pytest.mark.parametrize(
    ("done", "code"),
    [
        pytest.param(4.0, Code.ENDED_EARLY, id="its last checkpoint was long before its end"),
        pytest.param(9.97, None, id="a last epoch that counts for a little less"),
        pytest.param(10.0, None, id="all"),
    ],
)
def test_one_that_tells_its_checkpoints_only_may_have_trained_after_the_last_of_them(
    stage: Stage, done: float, code: Code | None
) -> None:
    job = resumed(stage)
    checkpoint = Checkpoint(done, None, stage.clock.time, 2)
    stage.say(job, epochs_done=done, checkpoint=checkpoint, is_deaf=True)
    stage.finish(job, 0)
    assert (stage.states(job), stage.job(job).reason_code) == (["succeeded"], code)


def test_one_that_never_said_how_many_epochs_there_are_has_just_succeeded(stage: Stage) -> None:
    job = stage.elastic(1, 4)
    stage.begin(job)
    stage.saved(job, 3.0, seconds=100.0)
    stage.finish(job, 0)
    assert (stage.states(job), stage.job(job).reason_code) == (["succeeded"], None)


# -- the last epoch --------------------------------------------------------------------------------------------------


def test_one_that_notifies_is_not_stopped_at_its_last_checkpoint(stage: Stage) -> None:
    """It was to shrink, was stopped at its last checkpoint, and started again with nothing to do."""
    job, _ = asked_for_another(stage)
    checkpoint = Checkpoint(10.0, None, stage.clock.time, 1)
    stage.say(job, epochs_done=10.0, checkpoint=checkpoint, is_deaf=True)
    stage.cycle(10_000.0)  # its deadline is long over
    assert (stage.states(job), stage.asked_to("stop")) == (["running"], [])
    stage.finish(job, 0)
    assert (stage.states(job), stage.job(job).attempts) == (["succeeded"], 1)


@pytest.mark.parametrize(("done", "is_asked"), [(8.0, True), (9.0, False), (9.5, True), (10.0, False)])
def test_one_in_its_last_epoch_is_not_asked_to_yield_unless_it_saves_within_it(
    stage: Stage, done: float, is_asked: bool
) -> None:
    job = stage.elastic(1, 4)
    stage.begin(job)
    stage.say(job, begun=1, epochs_total=10.0)
    stage.saved(job, done, seconds=1000.0)
    stage.elastic(2, 2)
    stage.cycle(0.0)
    assert ("AskedToYield" in stage.kinds(job)) == is_asked
