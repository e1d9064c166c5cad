"""What a cluster does to a task, and what follows for its job: which ends are its own, after which it comes back."""

from __future__ import annotations

import pytest

from controller.stage import Stage
from swell.model.job import Array, JobState, Role
from swell.model.launch import (
    CAUSE_DELETED,
    CAUSE_EVICTED,
    CAUSE_IMAGE,
    CAUSE_LEFT_OUT,
    CAUSE_MEMORY,
    CAUSE_NODE_LOST,
    CAUSE_NOT_PLACED,
    CAUSE_POD_LOST,
    CAUSE_STOPPED,
)
from swell.model.quantity import IndexSet
from swell.model.reason import Code, Reason
from swell.model.resources import Resources
from swell.store import Changes

REFUSAL = "UnexpectedAdmissionError: Requested: 4, Available: 0"


def small(memory_mib: int) -> dict[str, object]:
    return {"roles": (Role("worker", ("train",), Resources(1000, memory_mib, 0), 1),)}


# -- ends of its own -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memory_mib", "limit", "message"),
    [
        pytest.param(2048, 2048, "more memory than its limit of 2048 MiB", id="of a limit it named"),
        pytest.param(0, None, "more memory than it may", id="of its node's, as it named none"),
    ],
)
def test_one_that_is_killed_for_its_memory_fails_with_that(
    stage: Stage, memory_mib: int, limit: int | None, message: str
) -> None:
    job = stage.submit(**small(memory_mib))
    stage.begin(job)
    stage.finish(job, 137, cause=CAUSE_MEMORY)
    assert (stage.states(job), stage.job(job).exit_code) == (["failed"], 137)
    assert stage.why(job) == Reason(
        Code.OUT_OF_MEMORY,
        f"task 0 was killed because it needed {message}",
        {"job": job, "rank": 0, "exit_code": 137, "node": "a", "memory_mib": limit},
        f"give it more memory (--memory), or see what it did: swell logs --rank 0 {job}",
    )


def test_it_is_tried_again_as_after_any_failure_of_its_own(stage: Stage) -> None:
    job = stage.submit(retries=1)
    stage.begin(job)
    stage.finish(job, 137, cause=CAUSE_MEMORY)
    assert (stage.states(job), stage.why(job).code, stage.job(job).failures) == (["queued"], Code.WAITING_TO_RETRY, 1)


def test_one_whose_image_cannot_be_used_fails_in_the_runtimes_words_and_is_not_tried_again(stage: Stage) -> None:
    job = stage.submit(retries=3)
    stage.cycle()
    problem = 'Back-off pulling image "tarin:1": not found'
    stage.never_ran(job, 0, CAUSE_IMAGE, problem)
    stage.run(job, done=True)
    stage.cycle()
    assert (stage.states(job), stage.job(job).started_at) == (["failed"], None)
    assert stage.why(job) == Reason(
        Code.IMAGE_UNAVAILABLE,
        f"the image of task 0 cannot be used: {problem}",
        {"job": job, "rank": 0, "exit_code": None, "node": "a", "problem": problem},
        "fix the image name or the pull credentials, and submit it again",
    )


def test_one_that_its_controller_has_given_up_fails_in_the_controllers_words(stage: Stage) -> None:
    job = stage.submit()
    stage.begin(job)
    problem = "Job has reached the specified backoff limit"
    stage.ended(job, 0, None, "", problem)
    stage.run(job, done=True)
    stage.cycle()
    assert (stage.states(job), stage.job(job).exit_code) == (["failed"], None)
    assert stage.why(job) == Reason(
        Code.TASK_FAILED,
        f"task 0 failed and left no exit code; {problem}",
        {"job": job, "rank": 0, "exit_code": None, "node": "a", "failed": 1, "problem": problem},
        f"swell logs --rank 0 {job}",
    )


# -- deleted by somebody else --------------------------------------------------------------------------------


def object_deleted(job: int) -> Reason:
    return Reason(
        Code.OBJECT_DELETED,
        "its PyTorchJob team/train was deleted with kubectl",
        {"job": job, "object": "PyTorchJob team/train"},
        "nothing to do; submit it again to run it",
    )


def test_one_whose_object_is_deleted_is_cancelled(stage: Stage) -> None:
    """Also with retries, and with a checkpoint it could go on from: whoever deleted it meant it."""
    job = stage.elastic(1, 4, retries=3)
    stage.begin(job)
    stage.saved(job, 3.0, seconds=100.0)
    stage.ended(job, 0, 143, CAUSE_DELETED, "PyTorchJob team/train")
    stage.run(job, done=True)
    stage.cycle()
    assert (stage.states(job), stage.why(job)) == (["cancelled"], object_deleted(job))


def test_also_while_it_is_making_room_and_before_it_has_run(stage: Stage) -> None:
    job = stage.elastic(1, 4)
    stage.cycle()
    stage.done(stage.controller.requeue(job, by="ann", is_now=True))
    stage.never_ran(job, 0, CAUSE_DELETED, "PyTorchJob team/train")
    stage.run(job, done=True)
    stage.cycle()
    assert (stage.states(job), stage.why(job)) == (["cancelled"], object_deleted(job))


def test_the_rest_of_it_is_stopped_also_of_an_array_whose_first_task_had_failed(stage: Stage) -> None:
    job = stage.submit(array=Array(IndexSet.parse("0-9"), 2), width_max=2)
    stage.cycle()
    stage.began(job, 1)
    stage.ended(job, 0, 3)
    stage.ended(job, 2, None, CAUSE_DELETED, "PyTorchJob team/train")
    stage.run(job, (1,), left=7)
    stage.cycle()
    assert (stage.states(job), stage.asked_to("stop")) == (["stopping"], [("stop", f"{job}.1", 30.0)])
    assert stage.job(job).reason_evidence["cause"] == "its PyTorchJob team/train was deleted by somebody else"
    stage.ended(job, 1, 143, CAUSE_STOPPED)
    stage.run(job, done=True)
    stage.cycle()
    assert (stage.states(job), stage.why(job)) == (["cancelled"], object_deleted(job))


def test_a_gang_that_goes_on_without_a_task_succeeds_with_the_others_and_gives_its_room_back(stage: Stage) -> None:
    job = stage.gang(2, gpus=1)
    stage.begin(job)
    stage.ended(job, 0, None, CAUSE_LEFT_OUT, "somebody has deleted its pod")
    stage.cycle()
    assert (stage.states(job), stage.asked_to("stop")) == (["running"], [])
    assert [slot.is_empty for slot in stage.store.attempts(job)[0].slots] == [True, False]
    stage.ended(job, 1, 0)
    stage.run(job, done=True)
    stage.cycle()
    assert stage.states(job) == ["succeeded"]


@pytest.mark.parametrize(
    ("what", "resources", "width_max"),
    [
        ("a rank of an elastic gang", Resources(1000, 0, 1), 4),
        ("one that shares a GPU", Resources(1000, 0, 0, 512), 2),
    ],
)
def test_the_room_of_a_rank_that_has_succeeded_is_free_while_the_others_go_on(
    stage: Stage, what: str, resources: Resources, width_max: int
) -> None:
    """Eight GPUs stood idle behind one rank that still wrote its last checkpoint."""
    job = stage.submit(roles=(Role("worker", ("true",), resources, 2),), width_min=2, width_max=width_max)
    stage.begin(job)
    stage.ended(job, 0)
    stage.cycle()
    others = stage.job(job).width - 1
    assert [slot.is_empty for slot in stage.store.attempts(job)[0].slots] == [True, *[False] * others], what
    stage.restart()
    stage.cycle()
    for rank in range(1, others + 1):
        stage.ended(job, rank)
    stage.run(job, done=True)
    stage.cycle()
    assert stage.states(job) == ["succeeded"]


def test_one_that_was_cancelled_before_says_by_whom(stage: Stage) -> None:
    job = stage.submit()
    stage.begin(job)
    stage.controller.cancel([job], by="ann", grace_s=None).result()
    stage.finish(job, 143, cause=CAUSE_DELETED)
    assert (stage.states(job), stage.why(job).code) == (["cancelled"], Code.CANCELLED)


# -- no fault of its own -------------------------------------------------------------------------------------


@pytest.mark.parametrize("cause", [CAUSE_EVICTED, CAUSE_NODE_LOST, CAUSE_POD_LOST])
def test_one_that_loses_its_node_or_its_pod_comes_back_at_once_also_without_a_checkpoint(
    stage: Stage, cause: str
) -> None:
    job = stage.gang(1, gpus=2)
    stage.begin(job)
    stage.clock.time += 50.0
    stage.ended(job, 0, None, cause, "The node was low on resource: memory.")
    stage.run(job, done=True)
    stage.cycle(0.0)
    record = stage.job(job)
    assert (record.state, record.attempts, record.failures) == (JobState.STARTING, 2, 0)
    assert record.lost_gpu_seconds == 2 * 50.0
    assert [one.outcome for one in stage.store.attempts(job)] == [cause, None]
    assert stage.details(job, "Retrying") == [
        {
            "attempt": 1,
            "width": 1,
            "outcome": cause,
            "lost_gpu_seconds": 100.0,
            "problem": "The node was low on resource: memory.",
        }
    ]


@pytest.mark.parametrize(
    ("what", "wants", "lost"),
    [
        pytest.param("two GPUs", Resources(1000, 0, 2), 2 * 50.0, id="whole ones"),
        pytest.param("a quarter of one", Resources(1000, 0, 0, 256), 0.25 * 50.0, id="a share counts as its part"),
        pytest.param("none", Resources(1000, 0, 0), 0.0, id="a job without any loses none"),
    ],
)
def test_what_is_lost_is_counted_in_gpus(stage: Stage, what: str, wants: Resources, lost: float) -> None:
    job = stage.submit(roles=(Role("worker", ("train",), wants, 1),))
    stage.begin(job)
    stage.clock.time += 50.0
    stage.ended(job, 0, None, CAUSE_NODE_LOST, "node a is gone, or not ready")
    stage.run(job, done=True)
    stage.engine.nodes = ()
    stage.cycle(0.0)
    [told] = stage.details(job, "Retrying")
    assert (stage.job(job).lost_gpu_seconds, told["lost_gpu_seconds"]) == (lost, lost), what


def test_it_goes_on_from_its_last_checkpoint(stage: Stage) -> None:
    job = stage.elastic(1, 4)
    stage.begin(job)
    stage.saved(job, 3.0, seconds=100.0, path="three")
    stage.finish(job, 137, cause=CAUSE_NODE_LOST, seconds=20.0)
    assert (stage.own(job)["EPOCHS_DONE"], stage.job(job).lost_gpu_seconds) == ("3", 4 * 20.0)


def test_the_others_of_its_gang_are_stopped_and_it_comes_back_whole(stage: Stage) -> None:
    job = stage.gang(2)
    stage.begin(job)
    stage.ended(job, 1, None, CAUSE_EVICTED, "disk pressure")
    stage.cycle()
    assert (stage.states(job), stage.asked_to("stop")) == (["stopping"], [("stop", f"{job}.1", 30.0)])
    assert stage.job(job).reason_evidence["cause"] == "task 1 was evicted from a: disk pressure"
    stage.ended(job, 0, 1, CAUSE_STOPPED)
    stage.run(job, done=True)
    stage.cycle()
    assert (stage.states(job), stage.asked_to("start")) == (
        ["starting"],
        [("start", f"{job}.1", 2), ("start", f"{job}.2", 2)],
    )


# -- not placed ----------------------------------------------------------------------------------------------


def refuse(stage: Stage, job: int, problem: str = REFUSAL) -> None:
    """Rank 1 finds no place; rank 0, which runs already, is stopped for it."""
    stage.began(job, 0)
    stage.never_ran(job, 1, CAUSE_NOT_PLACED, problem)
    stage.run(job, in_use=(0,))
    stage.cycle(0.0)
    stage.clock.time += 5.0
    stage.ended(job, 0, 143, CAUSE_STOPPED)
    stage.run(job, done=True)
    stage.cycle(0.0)


def test_a_gang_of_which_one_member_finds_no_place_is_stopped_whole_and_comes_back_whole(stage: Stage) -> None:
    job = stage.gang(2, gpus=1)
    stage.cycle(0.0)
    stage.began(job, 0)
    stage.never_ran(job, 1, CAUSE_NOT_PLACED, REFUSAL)
    stage.cycle(0.0)
    assert (stage.states(job), stage.asked_to("stop")) == (["stopping"], [("stop", f"{job}.1", 30.0)])
    assert stage.job(job).reason_evidence["cause"] == f"task 1 could not be placed on a: {REFUSAL}"
    stage.clock.time += 5.0
    stage.ended(job, 0, 143, CAUSE_STOPPED)
    stage.run(job, done=True)
    stage.cycle(0.0)
    record = stage.job(job)
    assert (record.state, record.failures, record.lost_gpu_seconds) == (JobState.QUEUED, 0, 0.0)
    assert stage.details(job, "Retrying") == [
        {"attempt": 1, "width": 2, "outcome": "not-placed", "lost_gpu_seconds": 0.0, "problem": REFUSAL}
    ]
    assert "Running" not in stage.kinds(job)
    stage.cycle(1.0)
    assert (stage.states(job), stage.asked_to("start")[-1]) == (["starting"], ("start", f"{job}.2", 2))


def test_an_array_that_finds_no_place_gives_its_room_back_and_loses_no_task(stage: Stage) -> None:
    """The pods of a Job were refused by a quota: its first task counted as failed, and its room was held for ever."""
    job = stage.array("0-3", 2)
    stage.cycle(0.0)
    stage.never_ran(job, 0, CAUSE_NOT_PLACED, REFUSAL)
    stage.run(job, left=4)
    stage.cycle(0.0)
    assert (stage.states(job), stage.asked_to("stop")) == (["stopping"], [("stop", f"{job}.1", 30.0)])
    assert stage.job(job).reason_evidence["cause"] == f"task 0 could not be placed on a: {REFUSAL}"
    stage.run(job, done=True)
    stage.cycle(0.0)
    record = stage.job(job)
    assert (record.state, record.unplaced, record.tasks_failed, record.failures) == (JobState.QUEUED, 1, 0, 0)
    assert (stage.store.tasks(job), stage.store.attempts(job)[0].outcome) == ([], "not-placed")
    assert stage.why(job) == Reason(
        Code.WAITING_TO_RETRY,
        f"it is retried in 1 s; it could not be placed the last time: {REFUSAL}",
        {"in_s": 1.0, "problem": REFUSAL},
        "nothing to do; if this lasts, check the cluster",
    )
    assert stage.details(job, "Retrying") == [{"attempt": 1, "left": 4, "outcome": "not-placed", "problem": REFUSAL}]
    stage.cycle(1.0)
    stage.began(job, 0, 1)
    stage.cycle(0.0)
    record = stage.job(job)
    assert (record.state, record.unplaced, record.problem) == (JobState.RUNNING, 0, "")


def test_while_it_waits_it_says_who_refused_it_and_the_pause_grows(stage: Stage) -> None:
    job = stage.gang(2)
    stage.cycle(0.0)
    pauses = []
    for number in range(1, 9):
        refuse(stage, job, f"no {number}")
        reason = stage.why(job)
        pauses.append(reason.evidence["in_s"])
        assert reason == Reason(
            Code.WAITING_TO_RETRY,
            f"it is retried in {pauses[-1]:.0f} s; it could not be placed the last time: no {number}",
            {"in_s": pauses[-1], "problem": f"no {number}"},
            "nothing to do; if this lasts, check the cluster",
        )
        stage.cycle(60.0)
        assert stage.states(job) == ["starting"]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


def test_after_thousands_of_refusals_it_is_still_tried_once_a_minute(stage: Stage) -> None:
    job = stage.gang(2)
    stage.store.record(Changes(jobs={job: {"unplaced": 5000}})).result()
    stage.restart()
    stage.cycle(0.0)
    refuse(stage, job)
    assert stage.why(job).evidence["in_s"] == 60.0


def test_what_was_refused_is_still_told_while_it_waits_for_room_and_after_a_crash(stage: Stage) -> None:
    job = stage.gang(2, gpus=2)
    stage.cycle(0.0)
    refuse(stage, job)
    other = stage.elastic(4, 4, priority=9)
    stage.cycle(0.0)
    stage.begin(other)
    stage.restart()
    stage.cycle(5.0)
    reason = stage.why(job)
    assert (reason.code, reason.evidence["problem"]) == (Code.WAITING_FOR_ROOM, REFUSAL)
    assert reason.message.endswith(f"; it could not be placed the last time: {REFUSAL}")
    stage.finish(other, 0)
    stage.cycle()
    refuse(stage, job)
    assert stage.why(job).evidence["in_s"] == 2.0


def test_once_it_has_run_nothing_of_that_is_left(stage: Stage) -> None:
    job = stage.gang(2)
    stage.cycle(0.0)
    refuse(stage, job)
    stage.cycle(1.0)
    stage.begin(job)
    record = stage.job(job)
    assert (record.state, record.unplaced, record.problem, record.retry_at) == (JobState.RUNNING, 0, "", None)


def test_members_that_are_stopped_before_they_have_run_do_not_make_a_gang_whole(stage: Stage) -> None:
    """Rank 0 ran for a while; rank 1 could not be bound, of which an engine may tell by any of the two."""
    job = stage.gang(2, gpus=1)
    stage.cycle(0.0)
    stage.began(job, 0)
    stage.cycle(0.0)
    stage.clock.time += 30.0
    stage.never_ran(job, 0, CAUSE_NOT_PLACED, REFUSAL)
    stage.never_ran(job, 1, CAUSE_STOPPED, "")
    stage.run(job, done=True)
    stage.cycle(0.0)
    assert (stage.states(job), stage.job(job).lost_gpu_seconds) == (["queued"], 0.0)
    assert [one["outcome"] for one in stage.details(job, "Retrying")] == ["not-placed"]


def test_a_member_that_is_made_anew_and_finds_no_place_costs_what_the_gang_had_done(stage: Stage) -> None:
    """A controller of the cluster replaced a pod of a gang that was training."""
    job = stage.gang(2, gpus=1)
    stage.begin(job)
    stage.clock.time += 30.0
    now = stage.clock.time
    stage.ended(job, 1, None, CAUSE_NOT_PLACED, REFUSAL)
    stage.ended(job, 0, 143, CAUSE_STOPPED)
    stage.run(job, done=True)
    stage.cycle(0.0)
    assert (stage.job(job).lost_gpu_seconds, stage.job(job).retry_at) == (2 * 30.0, now + 1.0)


def test_one_that_is_stopped_before_any_of_it_has_begun_lines_up_again(stage: Stage) -> None:
    """Nothing of it was ever seen, so there is no task whose end could tell how it ended."""
    job = stage.gang(2)
    stage.cycle(0.0)
    stage.done(stage.controller.requeue(job, by="ann", is_now=True))
    stage.run(job, done=True)
    stage.cycle()
    assert (stage.states(job), stage.job(job).attempts, stage.job(job).lost_gpu_seconds) == (["starting"], 2, 0.0)


# -- suspended by somebody else ------------------------------------------------------------------------------

OBJECT = "PyTorchJob team/train"


def is_held_for_its_object(stage: Stage, job: int) -> None:
    assert stage.states(job) == ["held"]
    assert stage.why(job) == Reason(
        Code.HELD,
        f"its {OBJECT} was suspended with kubectl",
        {"by": "kubectl", "job": job, "object": OBJECT},
        f"swell release {job}",
    )


def test_one_whose_object_somebody_suspends_is_held_at_once_and_goes_on_from_its_checkpoint_when_released(
    stage: Stage,
) -> None:
    job = stage.elastic(1, 4)
    stage.begin(job)
    stage.saved(job, 3.0, seconds=100.0)
    stage.is_suspended(job, OBJECT)
    assert (stage.states(job), stage.asked_to("stop")) == (["stopping"], [("stop", f"{job}.1", 30.0)])
    assert stage.job(job).reason_evidence["cause"] == f"its {OBJECT} was suspended by somebody else"
    stage.finish(job, None, cause=CAUSE_STOPPED)
    is_held_for_its_object(stage, job)
    assert stage.details(job, "HoldRequested") == [{"object": OBJECT}]
    stage.done(stage.controller.release(job, by="ann"))
    assert (stage.states(job), stage.own(job)["EPOCHS_DONE"]) == (["starting"], "3")


def test_also_before_it_was_seen_to_run(stage: Stage) -> None:
    job = stage.elastic(1, 4)
    stage.cycle()
    stage.is_suspended(job, OBJECT)
    assert (stage.states(job), stage.asked_to("stop")) == (["stopping"], [("stop", f"{job}.1", 30.0)])
    stage.finish(job, None, cause=CAUSE_STOPPED)
    is_held_for_its_object(stage, job)


def test_also_without_a_checkpoint_and_its_retries_are_left_alone(stage: Stage) -> None:
    """Its tasks are killed already: there is nothing to refuse as there is for `swell hold`."""
    job = stage.gang(2)
    stage.begin(job)
    stage.is_suspended(job, OBJECT)
    stage.finish(job, None, None, cause=CAUSE_STOPPED)
    is_held_for_its_object(stage, job)
    assert stage.job(job).failures == 0


def test_also_an_array_of_which_what_had_not_ended_is_done_after_its_release(stage: Stage) -> None:
    job = stage.array("0-3", 2)
    stage.cycle()
    stage.ended(job, 0)
    stage.began(job, 1)
    stage.is_suspended(job, OBJECT)
    stage.run(job, done=True)
    stage.cycle()
    is_held_for_its_object(stage, job)
    stage.done(stage.controller.release(job, by="ann"))
    record = stage.job(job)
    assert (record.state, record.tasks_succeeded, record.tasks_failed) == (JobState.STARTING, 1, 0)
    assert stage.engine.launches[stage.present(job)][0].indices == "1,2,3"


def test_one_that_was_asked_to_wait_before_says_by_whom(stage: Stage) -> None:
    job = stage.elastic(1, 4)
    stage.begin(job)
    stage.saved(job, 3.0, seconds=100.0)
    stage.done(stage.controller.hold(job, by="ann"))
    stage.is_suspended(job, OBJECT)
    assert stage.states(job) == ["stopping"]
    assert stage.job(job).held_by == "ann"
