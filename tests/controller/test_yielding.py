"""How a job is asked for its room, how it gives it back, and what becomes of one that does not."""

from __future__ import annotations

import pytest

from controller.stage import Stage
from controller.yielders import asked_for_another, kinds_after, team, wide
from swell.controller.yielding import UNASKED_S_MIN
from swell.model.job import JobState, ResizeMode
from swell.model.launch import CAUSE_STOPPED
from swell.model.reason import Code
from swell.model.training import Control

# -- asked ----------------------------------------------------------------------------------------------------


def test_a_job_that_shrinks_goes_on_from_its_checkpoint_and_loses_nothing(stage: Stage) -> None:
    job, other = asked_for_another(stage)
    assert (stage.states(job, other), stage.control(job)) == (["running", "queued"], Control(4))
    stage.saved(job, 4.0, seconds=30.0, path="four")
    stage.finish(job, 75, seconds=1.0)
    assert stage.states(job, other) == ["starting", "starting"]
    record = stage.job(job)
    assert (record.attempts, record.resizes, record.preemptions, record.failures) == (2, 1, 0, 0)
    assert (record.width, record.lost_gpu_seconds) == (2, 0.0)
    told = {name: stage.own(job)[name] for name in ("EPOCHS_DONE", "SWELL_CHECKPOINT", "SWELL_WIDTH")}
    assert told == {"EPOCHS_DONE": "4", "SWELL_CHECKPOINT": f"/checkpoints/{job}/four", "SWELL_WIDTH": "2"}
    assert kinds_after(stage, job, "AskedToYield") == ["AskedToYield", "Yielded", "Started"]


def test_an_event_says_when_it_starts_at_another_width_than_was_decided(stage: Stage) -> None:
    """It was to come back with 2 GPUs; while it stopped, a job came that goes before it and wants one of them."""
    job, _ = asked_for_another(stage)
    assert "decided_width" not in stage.details(job, "Started")[0]
    stage.elastic(1, 1, priority=9)
    stage.saved(job, 4.0, seconds=30.0)
    stage.finish(job, 75, seconds=1.0)
    [_, again] = stage.details(job, "Started")
    assert (again["width"], again["decided_width"]) == (1, 2)


def test_the_order_to_stop_is_taken_back_with_the_attempt(stage: Stage) -> None:
    job, _ = asked_for_another(stage)
    stage.finish(job, 75)
    stage.begin(job)
    assert stage.control(job) == Control()


def test_a_job_is_asked_once(stage: Stage) -> None:
    job, _ = asked_for_another(stage)
    for _ in range(3):
        stage.cycle()
    assert stage.kinds(job).count("AskedToYield") == 1


def test_what_it_was_asked_survives_a_crash(stage: Stage) -> None:
    job, other = asked_for_another(stage)
    stage.restart()
    assert stage.control(job) == Control(4)
    stage.cycle()
    assert (stage.control(job), stage.kinds(job).count("AskedToYield")) == (Control(4), 1)
    stage.saved(job, 4.0)
    stage.finish(job, 75)
    assert stage.states(job, other) == ["starting", "starting"]


def test_after_a_crash_it_is_not_asked_to_stop_at_an_epoch_that_is_over(stage: Stage) -> None:
    """Where its ranks are was known only to the server that crashed: they were told to stop after epoch 1."""
    job = stage.gang(2)
    stage.begin(job)
    stage.saved(job, 7.0, seconds=100.0)
    stage.say(job, rank=1, begun=8)
    stage.restart()
    stage.done(stage.controller.requeue(job, by="ann", is_now=False))
    assert stage.control(job) == Control(9)


def test_ranks_stop_where_none_of_them_can_be_before_it_has_heard_of_it(stage: Stage) -> None:
    """Rank 1 is at its 6th; an epoch takes a fourth of a second, so within a second it may be at its 10th."""
    job = stage.gang(2)
    stage.begin(job)
    stage.say(job, rank=1, begun=6)
    stage.say(job, begun=5, epochs=((1, 0.25),))
    stage.saved(job, 5.0, seconds=100.0)
    stage.controller.has_begun(stage.present(job), 1, 6)
    stage.done(stage.controller.requeue(job, by="ann", is_now=False))
    assert stage.control(job) == Control(10)


def measured_team(stage: Stage, into_the_epoch_s: float) -> int:
    """A gang of two; an epoch takes it 100 s, and it is so far in its 4th."""
    job = stage.gang(2)
    stage.begin(job)
    stage.say(job, rank=1, begun=1)
    stage.say(job, begun=3, epochs=((1, 100.0), (2, 100.0)))
    stage.say(job, begun=4, rank=1)
    stage.saved(job, 3.0, seconds=into_the_epoch_s)
    stage.done(stage.controller.requeue(job, by="ann", is_now=False))
    return job


@pytest.mark.parametrize(("into_the_epoch_s", "last"), [(10.0, 4), (74.0, 4), (76.0, 5)])
def test_ranks_stop_at_the_end_of_a_long_epoch_that_has_most_of_it_still_to_come(
    stage: Stage, into_the_epoch_s: float, last: int
) -> None:
    """A gang that was asked in the first minute of an epoch of two hours did that epoch and another one."""
    assert stage.control(measured_team(stage, into_the_epoch_s)) == Control(last)


def test_one_that_allows_either_is_stopped_inside_a_long_epoch_and_is_told_why(stage: Stage) -> None:
    """Its 4th began at 1100 and takes 90 s; job 2 came at 1120."""
    job = wide(stage, resize=ResizeMode.EITHER)
    stage.say(job, begun=4, epochs=((2, 90.0), (3, 90.0)))
    stage.cycle(20.0)
    stage.elastic(2, 2)
    stage.cycle(0.0)
    told = "it stops now and repeats 20 s of work, because its epoch ends in about 70 s"
    assert stage.details(job, "Stopping") == [{"cause": f"shrinks from 4 to 2 for job 2; {told}", "grace_s": 30.0}]
    stage.finish(job, 143, cause=CAUSE_STOPPED)
    assert (stage.job(job).lost_gpu_seconds, stage.own(job)["EPOCHS_DONE"]) == (4 * 20.0, "3")


def test_one_that_allows_either_goes_on_to_the_end_of_an_epoch_that_is_near(stage: Stage) -> None:
    job = wide(stage, resize=ResizeMode.EITHER)
    stage.say(job, begun=4, epochs=((2, 90.0), (3, 90.0)))
    stage.cycle(80.0)
    stage.elastic(2, 2)
    stage.cycle(0.0)
    [told] = stage.details(job, "AskedToYield")
    why = "it continues until the end of its epoch, because its epoch ends in about 10 s, and stopping now would repeat"
    assert (told["cause"], told["when"]) == (f"shrinks from 4 to 2 for job 2; {why} 80 s of work", "at-checkpoint")


def test_an_immediate_one_is_stopped_at_once(stage: Stage) -> None:
    job = wide(stage, resize=ResizeMode.IMMEDIATE)
    other = stage.elastic(2, 2)
    stage.cycle(10.0)
    assert (stage.states(job), stage.control(job)) == (["stopping"], Control(yield_now=True))
    assert stage.asked_to("stop") == [("stop", "1.1", 30.0)]
    stage.finish(job, 143, cause=CAUSE_STOPPED, seconds=1.0)
    assert stage.states(job, other) == ["starting", "starting"]
    assert stage.job(job).lost_gpu_seconds == 4 * 11.0


# -- ready to stop --------------------------------------------------------------------------------------------


def comeback(stage: Stage, job: int) -> dict[str, object]:
    """How it was started again, what that cost, and what happened since it was asked."""
    record = stage.job(job)
    return {
        "is": (record.state, record.attempts, record.width),
        "from": stage.own(job)["EPOCHS_DONE"],
        "resizes": record.resizes,
        "cost": (record.failures, record.lost_gpu_seconds),
        "story": kinds_after(stage, job, "AskedToYield"),
    }


BACK_FROM_FOUR = {
    "is": (JobState.STARTING, 2, 2),
    "from": "4",
    "resizes": 1,
    "cost": (0, 0.0),
    "story": ["AskedToYield", "Stopping", "Yielded", "Started"],
}


@pytest.mark.parametrize("code", [75, 143, 137, 0, None])
def test_one_that_is_ready_to_stop_is_stopped_at_once_and_loses_nothing(stage: Stage, code: int | None) -> None:
    """Whatever its code: on Kubernetes nobody looks at it, and a pod that is gone has none."""
    job, other = asked_for_another(stage)
    stage.saved(job, 4.0, seconds=30.0, path="four")
    stage.say(job, is_yielding=True, is_ready=True)
    assert (stage.states(job), stage.asked_to("stop")) == (["stopping"], [("stop", "1.1", 30.0)])
    assert stage.job(job).reason_evidence["cause"] == f"shrinks from 4 to 2 for job {other}"
    stage.finish(job, code, cause=CAUSE_STOPPED, seconds=3.0)
    assert comeback(stage, job) == BACK_FROM_FOUR


def test_said_twice_it_is_stopped_once_also_over_a_crash(stage: Stage) -> None:
    job, _ = asked_for_another(stage)
    stage.saved(job, 4.0, seconds=30.0, path="four")
    stage.say(job, is_ready=True)
    stage.restart()
    stage.say(job, is_ready=True)
    assert stage.asked_to("stop") == [("stop", "1.1", 30.0)], "the new server says it once, to an engine that forgot"
    stage.finish(job, 143, cause=CAUSE_STOPPED)
    assert comeback(stage, job) == BACK_FROM_FOUR


def test_rank_0_speaks_for_all_ranks(stage: Stage) -> None:
    job = team(stage)
    stage.saved(job, 4.0, seconds=30.0)
    stage.say(job, rank=1, is_ready=True)
    assert (stage.states(job), stage.asked_to("stop")) == (["running"], [])
    stage.say(job, is_ready=True)
    assert (stage.states(job), stage.asked_to("stop")) == (["stopping"], [("stop", "1.1", 30.0)])
    stage.finish(job, 143, 137, cause=CAUSE_STOPPED, seconds=2.0)
    assert (stage.states(job), stage.job(job).lost_gpu_seconds) == (["starting"], 0.0)


def test_what_it_did_and_did_not_save_is_lost_all_the_same(stage: Stage) -> None:
    job, _ = asked_for_another(stage)
    stage.say(job, begun=5, epochs_done=4.0)
    stage.say(job, is_ready=True, seconds=30.0)
    stage.finish(job, 143, cause=CAUSE_STOPPED)
    assert (stage.own(job)["EPOCHS_DONE"], stage.job(job).lost_gpu_seconds) == ("3", 4 * 30.0)


def test_one_that_nobody_asked_is_stopped_too_instead_of_waiting_for_ever(stage: Stage) -> None:
    job = wide(stage)
    stage.say(job, is_ready=True)
    assert stage.job(job).reason_evidence["cause"] == "it is ready to stop"
    stage.finish(job, 143, cause=CAUSE_STOPPED)
    assert (stage.states(job), stage.job(job).lost_gpu_seconds) == (["starting"], 0.0)


def test_one_that_always_yields_unasked_does_not_start_more_often_than_every_half_minute(stage: Stage) -> None:
    """A user's job that saved and left at once came back at once, for ever: an attempt in each cycle, all of them
    stored, and none of it counted by a limit."""
    job = stage.elastic(1, 4)
    for epoch in (1.0, 2.0, 3.0):
        stage.begin(job)
        stage.saved(job, epoch, seconds=2.0)
        stage.finish(job, 75)
        assert (stage.states(job), stage.why(job).code) == (["queued"], Code.WAITING_TO_RETRY)
        stage.cycle(UNASKED_S_MIN - 3.0)
        assert stage.states(job) == ["queued"]
        stage.cycle(1.0)
        assert stage.states(job) == ["starting"]
    assert stage.job(job).failures == 0


def test_and_fails_if_it_has_not_saved_anything_since_its_start(stage: Stage) -> None:
    """It would come back and do the same for ever."""
    job = stage.elastic(1, 4)
    stage.begin(job)
    stage.say(job, is_ready=True)
    stage.finish(job, 143, cause=CAUSE_STOPPED)
    assert stage.states(job) == ["failed"]


# -- the deadline ---------------------------------------------------------------------------------------------


def test_one_that_makes_no_checkpoint_until_the_deadline_is_stopped_and_the_loss_is_counted(stage: Stage) -> None:
    """Its checkpoints are 100 s apart, so it has 300 s; then it is stopped, 4 GPUs since 1100."""
    job, other = asked_for_another(stage)
    stage.cycle(299.0)
    assert (stage.states(job), stage.asked_to("stop")) == (["running"], [])
    stage.cycle(1.0)
    assert (stage.states(job), stage.asked_to("stop")) == (["stopping"], [("stop", "1.1", 30.0)])
    assert stage.job(job).reason_evidence["cause"] == (
        f"shrinks from 4 to 2 for job {other}; it made no checkpoint within 300 s"
    )
    stage.finish(job, 137, cause=CAUSE_STOPPED, seconds=10.0)
    assert stage.states(job, other) == ["starting", "starting"]
    assert stage.job(job).lost_gpu_seconds == 4 * 310.0
    assert stage.store.lost_gpu_seconds() == 4 * 310.0
    assert stage.own(job)["EPOCHS_DONE"] == "3"


def test_a_deadline_that_passed_while_the_server_was_away_is_kept_afterwards(stage: Stage) -> None:
    job, _ = asked_for_another(stage)
    stage.clock.time += 1000.0
    stage.restart()
    stage.cycle(0.0)
    assert (stage.states(job), stage.asked_to("stop")) == (["stopping"], [("stop", "1.1", 30.0)])


def test_epochs_after_the_last_checkpoint_are_done_again_and_may_be_reported_again(stage: Stage) -> None:
    job, _ = asked_for_another(stage)
    stage.say(job, begun=6, epochs_done=5.0)
    stage.cycle(300.0)
    stage.finish(job, 137, cause=CAUSE_STOPPED)
    stage.begin(job)
    stage.say(job, begun=4, epochs_done=3.0)
    assert stage.training(job).epochs_done == 3.0


def test_the_loop_wakes_up_for_a_deadline(stage: Stage) -> None:
    asked_for_another(stage)
    assert stage.controller.next_due() == stage.clock.time + 300.0
    stage.cycle(290.0)
    assert stage.controller.next_due() == stage.clock.time + 10.0
