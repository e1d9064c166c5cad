"""Hold, release, requeue and scale, in every state a job can be in."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from controller.stage import Stage
from swell.controller.loop import Loop
from swell.errors import Conflict, NotFound, Rejected, Unavailable
from swell.model.job import After, JobState, ResizeMode
from swell.model.launch import CAUSE_STOPPED
from swell.model.reason import Code
from swell.model.training import Control

AT_CHECKPOINT, IMMEDIATE, NEVER = ResizeMode.AT_CHECKPOINT, ResizeMode.IMMEDIATE, ResizeMode.NEVER


def trains(stage: Stage, **spec: object) -> int:
    """A job that runs at 4 of 1..4 since 1000, with a checkpoint of 3 epochs, made at 1100."""
    job = stage.elastic(1, 4, **spec)
    stage.begin(job)
    stage.say(job, begun=1, epochs_total=10.0)
    stage.saved(job, 3.0, seconds=100.0)
    return job


def blocked(stage: Stage, **spec: object) -> tuple[int, int]:
    """A job that waits, and the one that holds everything."""
    first = stage.elastic(4, 4)
    stage.begin(first)
    job = stage.elastic(1, 4, **spec)
    stage.cycle()
    return job, first


def refusal(stage: Stage, ask: Callable[[], object], *jobs: int) -> tuple[type[Exception], str]:
    """Kind and words of a refusal that changed nothing."""
    before = [stage.job(job) for job in jobs]
    with pytest.raises((Conflict, Rejected)) as refused:
        stage.done(ask())  # type: ignore[arg-type]
    assert [stage.job(job) for job in jobs] == before
    return refused.type, str(refused.value)


def hold(stage: Stage, job: int) -> None:
    stage.done(stage.controller.hold(job, by="ann"))


def release(stage: Stage, job: int) -> None:
    stage.done(stage.controller.release(job, by="ann"))


def requeue(stage: Stage, job: int, *, now: bool = False) -> None:
    stage.done(stage.controller.requeue(job, by="ann", is_now=now))


def scale(stage: Stage, job: int, width: int | None, *, now: bool = False) -> None:
    stage.done(stage.controller.scale(job, width, by="ann", is_now=now))


def test_what_has_never_begun_can_be_given_up_and_what_has_is_left_alone(stage: Stage) -> None:
    job, first = blocked(stage)
    stage.done(stage.controller.give_up([job, first, 999], by="another scheduler"))
    assert stage.states(job, first) == ["cancelled", "running"]
    given_up = stage.job(job)
    assert (given_up.reason_code, given_up.reason_evidence) == (Code.CANCELLED, {"by": "another scheduler"})
    assert (stage.kinds(job), stage.job(first).cancel_requested_by) == (["Submitted", "CancelRequested", "Ended"], None)
    assert given_up.cancel_requested_by == "another scheduler"


# -- hold and release ----------------------------------------------------------------------------------------


def test_a_held_job_does_not_start_until_it_is_released(stage: Stage) -> None:
    job, first = blocked(stage)
    hold(stage, job)
    stage.finish(first, 0)
    held = (stage.states(job), stage.job(job).reason_code, stage.job(job).held_by)
    assert held == (["held"], Code.HELD, "ann")
    release(stage, job)
    assert (stage.states(job), stage.job(job).held_by) == (["starting"], None)
    assert stage.kinds(job) == ["Submitted", "HoldRequested", "Held", "Released", "Started"]


@pytest.mark.parametrize("crashes", [False, True])
def test_a_job_may_be_held_from_the_start(stage: Stage, crashes: bool) -> None:
    job = stage.submit(is_held=True)
    if crashes:
        stage.restart()
    stage.cycle()
    held = (stage.states(job), stage.job(job).reason_code, stage.job(job).held_by)
    assert held == (["held"], Code.HELD, "me")
    stage.done(stage.controller.release(job, by="ann"))
    stage.cycle()
    assert (stage.states(job), stage.job(job).held_by) == (["starting"], None)


def test_a_hold_survives_a_crash(stage: Stage) -> None:
    job, first = blocked(stage)
    hold(stage, job)
    stage.restart()
    stage.finish(first, 0)
    assert stage.states(job) == ["held"]
    release(stage, job)
    assert stage.states(job) == ["starting"]


def test_holding_twice_is_holding_once(stage: Stage) -> None:
    job, _ = blocked(stage)
    hold(stage, job)
    hold(stage, job)
    assert (stage.states(job), stage.kinds(job).count("HoldRequested")) == (["held"], 1)


def test_a_running_job_is_held_at_its_next_checkpoint(stage: Stage) -> None:
    job = trains(stage)
    hold(stage, job)
    assert (stage.states(job), stage.control(job)) == (["running"], Control(4))
    stage.saved(job, 4.0)
    stage.finish(job, 75)
    assert (stage.states(job), stage.job(job).reason_code) == (["held"], Code.HELD)
    stage.cycle(1000.0)
    assert stage.states(job) == ["held"]
    release(stage, job)
    assert (stage.states(job), stage.own(job)["EPOCHS_DONE"]) == (["starting"], "4")


def test_one_that_is_starting_or_being_stopped_is_held_afterwards(stage: Stage) -> None:
    job = trains(stage)
    requeue(stage, job)
    stage.finish(job, 75)
    assert stage.states(job) == ["starting"]
    hold(stage, job)
    requeue(stage, job, now=True)
    assert stage.states(job) == ["stopping"]
    stage.finish(job, 143, cause=CAUSE_STOPPED)
    assert stage.states(job) == ["held"]


def test_an_immediate_one_is_held_at_once(stage: Stage) -> None:
    job = trains(stage, resize=IMMEDIATE)
    hold(stage, job)
    assert (stage.states(job), stage.asked_to("stop")) == (["stopping"], [("stop", "1.1", 30.0)])


@pytest.mark.parametrize(
    ("mode", "why"),
    [(AT_CHECKPOINT, "has no checkpoint"), (NEVER, "may not be resized (resize: never)")],
)
def test_nothing_is_held_whose_work_would_be_lost(stage: Stage, mode: ResizeMode, why: str) -> None:
    job = stage.elastic(1, 4, resize=mode)
    stage.begin(job)
    assert refusal(stage, lambda: stage.controller.hold(job, by="ann"), job) == (
        Conflict,
        (
            f"job 1 is running and {why}, so holding it would lose its work; "
            "wait for it, or end it with: swell cancel 1; swell requeue 1 starts it again later"
        ),
    )


@pytest.mark.parametrize("mode", [AT_CHECKPOINT, IMMEDIATE])
def test_no_task_of_a_running_array_is_stopped_to_hold_it(stage: Stage, mode: ResizeMode) -> None:
    """An immediate one was stopped and started again, over and over."""
    job = stage.array("0-3", 2, resize=mode)
    stage.cycle()
    stage.began(job, 0, 1)
    stage.run(job, in_use=(0, 1), left=2)
    stage.cycle()
    stage.done(stage.controller.hold(job, by="ann"))
    stage.cycle()
    assert (stage.states(job), stage.asked_to("stop"), stage.asked_to("start")[1:]) == (
        ["running"],
        [],
        [("start", "1.1", 0)],
    )


def test_what_is_not_held_cannot_be_released(stage: Stage) -> None:
    job, first = blocked(stage)
    for one, state in ((job, "queued"), (first, "running")):
        words = f"job {one} is not held; it is {state}"
        assert refusal(stage, lambda one=one: stage.controller.release(one, by="ann"), one) == (Conflict, words)


def test_released_before_it_has_given_its_room_back_it_lines_up_again(stage: Stage) -> None:
    job = trains(stage)
    hold(stage, job)
    release(stage, job)
    stage.saved(job, 4.0)
    stage.finish(job, 75)
    assert stage.states(job) == ["starting"]


def test_a_held_job_can_be_cancelled(stage: Stage) -> None:
    job, _ = blocked(stage)
    hold(stage, job)
    stage.controller.cancel([job], by="ann", grace_s=None).result()
    stage.cycle()
    assert (stage.states(job), stage.job(job).reason_code) == (["cancelled"], Code.CANCELLED)


@pytest.mark.parametrize("word", ["hold", "release"])
def test_a_job_that_has_ended_is_neither_held_nor_released(stage: Stage, word: str) -> None:
    job = stage.submit()
    stage.begin(job)
    stage.finish(job, 0)
    ask = getattr(stage.controller, word)
    assert refusal(stage, lambda: ask(job, by="ann"), job) == (Conflict, "job 1 has ended")


# -- requeue -------------------------------------------------------------------------------------------------


def test_a_running_job_is_requeued_at_its_next_checkpoint(stage: Stage) -> None:
    job = trains(stage)
    requeue(stage, job)
    assert (stage.states(job), stage.control(job)) == (["running"], Control(4))
    stage.saved(job, 4.0)
    stage.finish(job, 75)
    assert (stage.states(job), stage.own(job)["EPOCHS_DONE"]) == (["starting"], "4")


def test_or_at_once(stage: Stage) -> None:
    job = trains(stage)
    requeue(stage, job, now=True)
    assert (stage.states(job), stage.asked_to("stop")) == (["stopping"], [("stop", "1.1", 30.0)])
    stage.finish(job, 143, cause=CAUSE_STOPPED, seconds=10.0)
    record = stage.job(job)
    assert (record.state, record.lost_gpu_seconds, record.failures) == (JobState.STARTING, 40.0, 0)


def test_at_once_also_when_it_was_asked_to_wait_for_a_checkpoint_before(stage: Stage) -> None:
    """Nothing happened: it had been asked already."""
    job = trains(stage)
    requeue(stage, job)
    requeue(stage, job, now=True)
    assert (stage.states(job), stage.control(job)) == (["stopping"], Control(yield_now=True))


@pytest.mark.parametrize("mode", [AT_CHECKPOINT, NEVER])
def test_a_job_that_reports_nothing_is_requeued_at_once_or_not_at_all(stage: Stage, mode: ResizeMode) -> None:
    job = stage.elastic(1, 4, resize=mode)
    stage.begin(job)
    kind, words = refusal(stage, lambda: stage.controller.requeue(job, by="ann", is_now=False), job)
    assert (kind, words.rpartition("; ")[2]) == (Conflict, "stop it at once with: swell requeue --now 1")
    requeue(stage, job, now=True)
    stage.finish(job, 143, cause=CAUSE_STOPPED)
    assert (stage.states(job), stage.job(job).attempts) == (["starting"], 2)


def test_one_that_waits_or_is_held_cannot_be_started_again(stage: Stage) -> None:
    job, _ = blocked(stage)

    def ask() -> object:
        return stage.controller.requeue(job, by="ann", is_now=True)

    words = "job 2 is {}: it has not started, so there is nothing to start again"
    assert refusal(stage, ask, job) == (Conflict, words.format("queued"))
    hold(stage, job)
    assert refusal(stage, ask, job) == (Conflict, words.format("held"))


def test_an_array_cannot_be_started_again_before_it_has_ended(stage: Stage) -> None:
    job = stage.array("0-1", 2)
    stage.cycle()

    def ask() -> object:
        return stage.controller.requeue(job, by="ann", is_now=True)

    words = (
        "job 1 is an array that has not ended, and its tasks cannot be started again before it has; "
        "wait for it, or end it with: swell cancel 1; then swell requeue 1 runs what has not succeeded"
    )
    assert refusal(stage, ask, job) == (Conflict, words)


def test_a_failed_job_gets_another_life(stage: Stage) -> None:
    """Its epochs after the last checkpoint were not forgotten: all it reported in its next life was refused."""
    job = trains(stage, retries=1, time_limit_s=1000.0)
    stage.finish(job, 1)
    stage.begin(job, seconds=1.0)
    stage.say(job, begun=8, epochs_done=7.0)
    stage.finish(job, 1, seconds=100.0)
    assert (stage.states(job), stage.job(job).failures) == (["failed"], 1)
    requeue(stage, job)
    record = stage.job(job)
    assert (record.state, record.failures, record.ended_at, record.exit_code) == (JobState.STARTING, 0, None, None)
    assert (stage.own(job)["EPOCHS_DONE"], stage.launch(job).time_limit_s) == ("3", 1000.0)
    stage.began(job, 0)
    stage.say(job, begun=4, epochs_done=3.0)
    stage.saved(job, 4.0)
    stage.finish(job, 0)
    assert (stage.states(job), stage.job(job).exit_code) == (["succeeded"], 0)


def test_so_does_a_cancelled_one_and_it_is_not_cancelled_again(stage: Stage) -> None:
    job = stage.submit()
    stage.begin(job)
    stage.controller.cancel([job], by="ann", grace_s=None).result()
    stage.cycle()
    stage.finish(job, 143, cause=CAUSE_STOPPED)
    requeue(stage, job)
    stage.restart()
    stage.begin(job)
    stage.finish(job, 0)
    assert (stage.states(job), stage.job(job).attempts) == (["succeeded"], 2)


def test_one_that_has_succeeded_does_not(stage: Stage) -> None:
    job = stage.submit()
    stage.begin(job)
    stage.finish(job, 0)
    assert refusal(stage, lambda: stage.controller.requeue(job, by="ann", is_now=False), job) == (
        Conflict,
        "job 1 has succeeded; submit it again to run it once more",
    )


def test_nor_one_that_never_was(stage: Stage) -> None:
    with pytest.raises(NotFound, match="there is no job 7"):
        requeue(stage, 7)


def test_one_that_was_to_follow_a_job_that_failed_waits_for_that_to_be_started_again(stage: Stage) -> None:
    """It was started; but had the server been restarted before, it would have been cancelled a second time."""
    first = stage.submit()
    follower = stage.submit(after=(After(first),))
    stage.begin(first)
    stage.finish(first, 1)
    assert stage.states(first, follower) == ["failed", "cancelled"]
    assert refusal(stage, lambda: stage.controller.requeue(follower, by="ann", is_now=False), follower) == (
        Conflict,
        (
            "job 2 depends on job 1, which failed; "
            "requeue job 1 first (swell requeue 1), or submit the job without that dependency"
        ),
    )
    requeue(stage, first)
    requeue(stage, follower)
    stage.restart()
    stage.begin(first)
    assert stage.states(first, follower) == ["running", "queued"]
    stage.finish(first, 0)
    assert stage.states(first, follower) == ["succeeded", "starting"]


# -- scale ---------------------------------------------------------------------------------------------------


def test_a_running_job_is_scaled_at_its_next_checkpoint(stage: Stage) -> None:
    job = trains(stage)
    scale(stage, job, 2)
    assert (stage.control(job), stage.job(job).wanted_width) == (Control(4), 2)
    stage.saved(job, 4.0)
    stage.finish(job, 75)
    stage.begin(job)
    stage.cycle(1000.0)
    assert (stage.job(job).width, stage.job(job).resizes, stage.control(job)) == (2, 1, Control())


def test_the_width_that_was_asked_for_survives_a_crash(stage: Stage) -> None:
    job = trains(stage)
    scale(stage, job, 2)
    stage.restart()
    stage.finish(job, 75)
    assert (stage.states(job), stage.job(job).width) == (["starting"], 2)


def test_null_is_what_the_planner_thinks_best_again(stage: Stage) -> None:
    job = trains(stage)
    scale(stage, job, 1)
    stage.saved(job, 4.0)
    stage.finish(job, 75)
    stage.begin(job)
    stage.say(job, begun=5)
    stage.saved(job, 5.0, seconds=200.0)
    assert stage.control(job) == Control()
    scale(stage, job, None)
    assert (stage.control(job), stage.job(job).wanted_width) == (Control(6), None)
    stage.finish(job, 75)
    assert stage.job(job).width == 4


def test_scaled_at_once_it_is_stopped_also_without_a_checkpoint(stage: Stage) -> None:
    job = stage.elastic(1, 4, resize=NEVER)
    stage.begin(job)
    kind, words = refusal(stage, lambda: stage.controller.scale(job, 2, by="ann", is_now=False), job)
    assert (kind, words) == (
        Conflict,
        (
            "job 1 is running and may not be resized (resize: never), so resizing it would lose its work; "
            "stop and start it at once with: swell scale --now 1 N"
        ),
    )
    scale(stage, job, 2, now=True)
    assert stage.states(job) == ["stopping"]
    stage.finish(job, 143, cause=CAUSE_STOPPED)
    assert (stage.states(job), stage.job(job).width) == (["starting"], 2)


def test_an_immediate_one_is_scaled_as_soon_as_there_is_room(stage: Stage) -> None:
    """Without --now, too: somebody saw nothing happen."""
    job = stage.elastic(1, 4, resize=IMMEDIATE)
    stage.begin(job)
    for width in (1, 3):
        scale(stage, job, width)
        assert stage.states(job) == ["stopping"]
        stage.finish(job, 143, cause=CAUSE_STOPPED)
        stage.begin(job)
        assert (stage.states(job), stage.job(job).width) == (["running"], width)


def test_scaled_to_what_it_has_nothing_happens(stage: Stage) -> None:
    job = trains(stage)
    scale(stage, job, 4, now=True)
    assert (stage.states(job), stage.control(job)) == (["running"], Control())


def test_one_that_waits_or_is_held_starts_with_that_width(stage: Stage) -> None:
    job, first = blocked(stage)
    hold(stage, job)
    scale(stage, job, 3)
    release(stage, job)
    stage.finish(first, 0)
    assert (stage.states(job), stage.job(job).width) == (["starting"], 3)


@pytest.mark.parametrize("width", [1, 5])
def test_a_width_that_the_job_did_not_ask_for_is_refused(stage: Stage, width: int) -> None:
    job = stage.elastic(2, 4)
    stage.begin(job)
    assert refusal(stage, lambda: stage.controller.scale(job, width, by="ann", is_now=True), job) == (
        Rejected,
        f"width {width} is outside job 1's range, 2..4",
    )


def test_one_that_has_but_one_width_says_why_if_that_is_known(stage: Stage) -> None:
    """A range that came by kubectl has no effect; it was told that the job had not asked for it."""
    job = stage.elastic(1, 1, notes=("it came by kubectl as a Job",))
    stage.begin(job)
    assert refusal(stage, lambda: stage.controller.scale(job, 4, by="ann", is_now=True), job) == (
        Rejected,
        "width 4 is outside job 1's range, 1..1; it came by kubectl as a Job",
    )


def test_an_array_is_not_scaled(stage: Stage) -> None:
    job = stage.array("0-3", 2)
    stage.cycle()
    assert refusal(stage, lambda: stage.controller.scale(job, 2, by="ann", is_now=False), job) == (
        Rejected,
        "job 1 is an array; how many of its tasks run at once is in its own spec",
    )


def test_what_is_asked_of_one_that_has_ended_is_refused(stage: Stage) -> None:
    """Nobody ever answered, and whoever waited for that kept the server from ending."""
    job = stage.submit()
    loop = Loop(stage.controller, stage.clock)
    loop.start()
    loop.close()
    with pytest.raises(Unavailable, match="the server is ending"):
        stage.controller.hold(job, by="me")
