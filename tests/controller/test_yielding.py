"""How a job gives its room back, how it comes back, and what is lost by it."""

from __future__ import annotations

import pytest

from controller.stage import Stage
from swell.model.job import JobState, ResizeMode, Role
from swell.model.launch import CAUSE_KEEPER, CAUSE_REBOOT, CAUSE_START, CAUSE_STOPPED, CAUSE_TIME_LIMIT
from swell.model.reason import Code
from swell.model.resources import Resources
from swell.model.training import Control


def wide(stage: Stage, **spec: object) -> int:
    """A job that runs at 4 of 1..4 since 1000, with a checkpoint of 3 epochs, made at 1100."""
    job = stage.elastic(1, 4, **spec)
    stage.begin(job)
    stage.say(job, begun=1, epochs_total=10.0)
    stage.saved(job, 3.0, seconds=100.0, path="three")
    return job


def asked_for_another(stage: Stage, **spec: object) -> tuple[int, int]:
    """The same, asked to shrink for one that came at 1100 and wants 2."""
    job = wide(stage, **spec)
    other = stage.elastic(2, 2)
    stage.cycle(0.0)
    return job, other


def team(stage: Stage, tasks: int = 2) -> int:
    """A gang that runs since 1000 with a checkpoint of 3 epochs, made at 1100; asked to yield at its next one."""
    job = stage.gang(tasks)
    stage.begin(job)
    for rank in range(1, tasks):
        stage.say(job, rank=rank, begun=1)
    stage.say(job, begun=1, epochs_total=10.0)
    stage.saved(job, 3.0, seconds=100.0)
    stage.done(stage.controller.requeue(job, by="ann", is_now=False))
    return job


def kinds_after(stage: Stage, job: int, kind: str) -> list[str]:
    kinds = stage.kinds(job)
    return kinds[kinds.index(kind) :]


# -- asked ---------------------------------------------------------------------------------------------------


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


def test_an_immediate_one_is_stopped_at_once(stage: Stage) -> None:
    job = wide(stage, resize=ResizeMode.IMMEDIATE)
    other = stage.elastic(2, 2)
    stage.cycle(10.0)
    assert (stage.states(job), stage.control(job)) == (["stopping"], Control(yield_now=True))
    assert stage.asked_to("stop") == [("stop", "1.1", 30.0)]
    stage.finish(job, 143, cause=CAUSE_STOPPED, seconds=1.0)
    assert stage.states(job, other) == ["starting", "starting"]
    assert stage.job(job).lost_gpu_seconds == 4 * 11.0


# -- ready to stop -------------------------------------------------------------------------------------------


def is_back_from_four(stage: Stage, job: int) -> None:
    record = stage.job(job)
    assert (record.state, record.attempts, record.width) == (JobState.STARTING, 2, 2)
    assert (record.resizes, record.failures, record.lost_gpu_seconds) == (1, 0, 0.0)
    assert stage.own(job)["EPOCHS_DONE"] == "4"
    assert kinds_after(stage, job, "AskedToYield") == ["AskedToYield", "Stopping", "Yielded", "Started"]


@pytest.mark.parametrize("code", [75, 143, 137, 0, None])
def test_one_that_is_ready_to_stop_is_stopped_at_once_and_loses_nothing(stage: Stage, code: int | None) -> None:
    """Whatever its code: on Kubernetes nobody looks at it, and a pod that is gone has none."""
    job, other = asked_for_another(stage)
    stage.saved(job, 4.0, seconds=30.0, path="four")
    stage.say(job, is_yielding=True, is_ready=True)
    assert (stage.states(job), stage.asked_to("stop")) == (["stopping"], [("stop", "1.1", 30.0)])
    assert stage.job(job).reason_evidence["cause"] == f"shrinks from 4 to 2 for job {other}"
    stage.finish(job, code, cause=CAUSE_STOPPED, seconds=3.0)
    is_back_from_four(stage, job)


def test_said_twice_it_is_stopped_once_also_over_a_crash(stage: Stage) -> None:
    job, _ = asked_for_another(stage)
    stage.saved(job, 4.0, seconds=30.0, path="four")
    stage.say(job, is_ready=True)
    stage.restart()
    stage.say(job, is_ready=True)
    assert stage.asked_to("stop") == [("stop", "1.1", 30.0)], "the new server says it once, to an engine that forgot"
    stage.finish(job, 143, cause=CAUSE_STOPPED)
    is_back_from_four(stage, job)


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


def test_and_fails_if_it_has_not_saved_anything_since_its_start(stage: Stage) -> None:
    """It would come back and do the same for ever."""
    job = stage.elastic(1, 4)
    stage.begin(job)
    stage.say(job, is_ready=True)
    stage.finish(job, 143, cause=CAUSE_STOPPED)
    assert stage.states(job) == ["failed"]


# -- the deadline --------------------------------------------------------------------------------------------


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
    assert stage.controller._patience() == 15.0
    stage.cycle(290.0)
    assert stage.controller._patience() == 10.0


# -- how it ended --------------------------------------------------------------------------------------------


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


# -- preemption ----------------------------------------------------------------------------------------------


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


# -- failures ------------------------------------------------------------------------------------------------


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


# -- the time limit ------------------------------------------------------------------------------------------


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
