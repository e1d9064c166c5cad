"""How often are an array's tasks tried, what of it is taken up again after its end, and what is counted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from controller.stage import Stage
from swell.errors import Conflict
from swell.model.job import JobState
from swell.model.launch import CAUSE_START, CAUSE_STOPPED
from swell.model.reason import Code


def work_through(stage: Stage, job: int, codes: dict[int, int], cause: str = "") -> None:
    """Its present attempt begins, these indices end with these codes, and nothing of it is left."""
    stage.cycle(0.0)
    stage.began(job, *codes)
    stage.cycle(0.0)
    for index, code in codes.items():
        stage.ended(job, index, code, cause if code else "")
    stage.run(job, done=True, revision=stage.store.attempts(job)[-1].revision)
    stage.cycle(0.0)


def come_again(stage: Stage, job: int) -> str:
    """After the pause; which indices it is then asked to run."""
    stage.cycle(60.0)
    return stage.launch(job).indices


def nothing(_: Stage) -> None: ...


@pytest.mark.parametrize("crash", [nothing, Stage.restart])
def test_each_failed_task_of_an_array_has_retries_of_its_own(stage: Stage, crash: Callable[[Stage], None]) -> None:
    """`swell run --array 0-11%4 --retries 1` gave every task one try, and nothing said so."""
    job = stage.array("0-5", 4, retries=2)
    work_through(stage, job, {0: 4, 1: 0, 2: 0, 3: 4, 4: 0, 5: 0})
    crash(stage)
    record = stage.job(job)
    assert (record.state, record.tasks_succeeded, record.tasks_failed, record.failures) == (JobState.QUEUED, 4, 0, 2)
    stage.cycle(0.0)
    assert stage.why(job).code is Code.WAITING_TO_RETRY
    assert come_again(stage, job) == "0,3"
    crash(stage)
    work_through(stage, job, {0: 0, 3: 4})
    crash(stage)
    assert come_again(stage, job) == "3"
    crash(stage)
    work_through(stage, job, {3: 7})
    record = stage.job(job)
    assert (record.state, record.exit_code, record.attempts, record.failures) == (JobState.FAILED, 7, 3, 3)
    assert (record.tasks_succeeded, record.tasks_failed) == (5, 1)
    told = [(one["attempt"], one["left"], one["tasks"], one["exit_code"]) for one in stage.details(job, "Retrying")]
    assert told == [(1, 2, 2, 4), (2, 1, 1, 4)]


def test_a_crash_while_failed_tasks_are_tried_again_forgets_no_try(stage: Stage) -> None:
    job = stage.array("0-2", 3, retries=1)
    work_through(stage, job, {0: 1, 1: 1, 2: 0})
    stage.cycle(60.0)
    stage.began(job, 0, 1)
    stage.cycle(0.0)
    stage.ended(job, 0, 0)
    stage.cycle(0.0)
    stage.restart()
    stage.cycle(0.0)
    assert stage.launch(job).indices == "0,1"  # as the attempt began: its worker knows what of it has ended
    stage.ended(job, 1, 1)
    stage.run(job, done=True)
    stage.cycle(0.0)
    record = stage.job(job)
    assert (record.state, record.tasks_succeeded, record.tasks_failed) == (JobState.FAILED, 2, 1)


@pytest.mark.parametrize("crash", [nothing, Stage.restart])
def test_retries_of_all_together_end_with_the_first_failure_above_them(
    stage: Stage, crash: Callable[[Stage], None]
) -> None:
    """Kubernetes' `backoffLimit`: so many failures of all indices are forgiven."""
    job = stage.array("0-3", 4, retries=3, retries_together=3)
    work_through(stage, job, {0: 1, 1: 1, 2: 0, 3: 0})
    crash(stage)
    assert come_again(stage, job) == "0,1"
    crash(stage)
    work_through(stage, job, {0: 1, 1: 1})
    record = stage.job(job)
    assert (record.state, record.attempts, record.tasks_failed) == (JobState.FAILED, 2, 2)


def test_an_array_whose_last_failure_is_tried_again_well_has_succeeded(stage: Stage) -> None:
    job = stage.array("0-3", 4, retries=3, retries_together=3)
    work_through(stage, job, {0: 0, 1: 0, 2: 9, 3: 0})
    stage.cycle(60.0)
    work_through(stage, job, {2: 0})
    record = stage.job(job)
    assert (record.state, record.exit_code, record.tasks_succeeded) == (JobState.SUCCEEDED, 0, 4)


def test_a_task_that_would_fail_the_same_way_is_not_tried_again(stage: Stage) -> None:
    job = stage.array("0-1", 2, retries=5)
    work_through(stage, job, {0: 125, 1: 0}, cause=CAUSE_START)
    assert (stage.states(job), stage.job(job).reason_code) == (["failed"], Code.START_FAILED)


def test_what_failed_for_good_is_told_when_the_others_have_had_their_tries(stage: Stage) -> None:
    job = stage.array("0-1", 2, retries=1)
    stage.cycle(0.0)
    stage.began(job, 0)
    stage.cycle(0.0)
    stage.ended(job, 0, 3)
    stage.never_ran(job, 1, CAUSE_START, "no such command")
    stage.run(job, done=True)
    stage.cycle(0.0)
    assert come_again(stage, job) == "0"
    stage.restart()
    work_through(stage, job, {0: 0})
    assert (stage.states(job), stage.job(job).reason_code) == (["failed"], Code.START_FAILED)
    assert stage.why(job).evidence["rank"] == 1


def test_room_given_to_others_costs_an_array_no_try(stage: Stage) -> None:
    array = stage.array("0-9", 4, retries=1)
    stage.cycle(0.0)
    stage.began(array, 0, 1, 2, 3)
    stage.run(array, in_use=(0, 1, 2, 3), left=6)
    stage.cycle()
    stage.submit(priority=5, roles=stage.job(stage.gang(4)).spec.roles, width_min=4, width_max=4)
    stage.cycle()
    for index in range(4):
        stage.ended(array, index, 1 if index == 2 else 0)
    stage.run(array, left=6, revision=2)
    stage.cycle()
    stage.run(array, revision=2, done=True)
    stage.cycle()
    record = stage.job(array)
    assert (record.state, record.tasks_succeeded, record.tasks_failed, record.failures) == (JobState.QUEUED, 3, 0, 1)


# -- what has ended is taken up again ------------------------------------------------------------------------


@pytest.mark.parametrize("crash", [nothing, Stage.restart])
def test_a_failed_array_that_is_requeued_runs_what_has_not_succeeded(
    stage: Stage, crash: Callable[[Stage], None]
) -> None:
    """`swell requeue` of an array said: submit what is missing as a new job."""
    job = stage.array("0-3", 4, retries=1)
    work_through(stage, job, {0: 1, 1: 0, 2: 0, 3: 0})
    stage.cycle(60.0)
    work_through(stage, job, {0: 1})
    assert stage.states(job) == ["failed"]
    crash(stage)
    stage.done(stage.controller.requeue(job, by="ann", is_now=False))
    crash(stage)
    stage.cycle(0.0)
    assert stage.launch(job).indices == "0"
    crash(stage)
    work_through(stage, job, {0: 1})
    assert come_again(stage, job) == "0"  # it has its retries again
    crash(stage)
    work_through(stage, job, {0: 0})
    record = stage.job(job)
    assert (record.state, record.exit_code, record.tasks_succeeded, record.attempts) == (JobState.SUCCEEDED, 0, 4, 4)


@pytest.mark.parametrize("crash", [nothing, Stage.restart])
def test_a_cancelled_array_that_is_requeued_runs_what_was_stopped_and_what_never_began(
    stage: Stage, crash: Callable[[Stage], None]
) -> None:
    job = stage.array("0-5", 2)
    stage.cycle(0.0)
    stage.began(job, 0, 1, 2)
    stage.cycle(0.0)
    stage.ended(job, 0)
    stage.controller.cancel([job], by="ann", grace_s=None).result()
    stage.cycle(0.0)
    for index in (1, 2):
        stage.ended(job, index, 143, CAUSE_STOPPED)
    stage.run(job, done=True)
    stage.cycle(0.0)
    record = stage.job(job)
    assert (record.state, record.tasks_succeeded, record.tasks_failed, record.tasks_stopped) == ("cancelled", 1, 0, 2)
    crash(stage)
    stage.done(stage.controller.requeue(job, by="ann", is_now=False))
    crash(stage)
    stage.cycle(0.0)
    assert stage.launch(job).indices == "1,2,3,4,5"
    work_through(stage, job, {1: 0, 2: 0, 3: 0, 4: 0, 5: 0})
    assert (stage.states(job), stage.job(job).tasks_succeeded) == (["succeeded"], 6)


def test_an_array_that_was_cancelled_before_it_began_is_requeued_whole(stage: Stage) -> None:
    job = stage.array("0-5", 2)
    stage.controller.cancel([job], by="ann", grace_s=None).result()
    stage.cycle(0.0)
    assert stage.states(job) == ["cancelled"]
    stage.done(stage.controller.requeue(job, by="ann", is_now=False))
    stage.cycle(0.0)
    assert stage.launch(job).indices == "0-5"


def test_an_array_that_has_succeeded_is_not_requeued(stage: Stage) -> None:
    job = stage.array("0-1", 2)
    work_through(stage, job, {0: 0, 1: 0})
    with pytest.raises(Conflict, match="has succeeded; submit it again"):
        stage.done(stage.controller.requeue(job, by="ann", is_now=False))


def test_a_running_array_is_requeued_after_it_was_cancelled_as_the_refusal_says(stage: Stage) -> None:
    job = stage.array("0-1", 2)
    stage.cycle(0.0)
    with pytest.raises(Conflict, match=f"swell cancel {job}; then swell requeue {job}"):
        stage.done(stage.controller.requeue(job, by="ann", is_now=True))


# -- what we stopped has not failed --------------------------------------------------------------------------


def test_tasks_that_swell_stopped_are_not_counted_as_failed(stage: Stage) -> None:
    """A gang of which one rank failed showed `3/3 (3 failed)`: two of them we had stopped ourselves."""
    job = stage.gang(3)
    stage.begin(job)
    stage.ended(job, 1, 7)
    stage.cycle(0.0)
    for rank in (0, 2):
        stage.ended(job, rank, 143, CAUSE_STOPPED)
    stage.run(job, done=True)
    stage.cycle(0.0)
    record = stage.job(job)
    assert (record.state, record.exit_code, record.tasks_failed, record.tasks_stopped) == (JobState.FAILED, 7, 1, 2)


def test_a_cancelled_job_has_a_stopped_task_and_no_failed_one(stage: Stage) -> None:
    job = stage.submit()
    stage.begin(job)
    stage.controller.cancel([job], by="ann", grace_s=None).result()
    stage.cycle(0.0)
    stage.finish(job, 143, cause=CAUSE_STOPPED)
    record = stage.job(job)
    assert (record.state, record.tasks_failed, record.tasks_stopped) == (JobState.CANCELLED, 0, 1)


# -- holding one that runs -----------------------------------------------------------------------------------


def running_array(stage: Stage, **changes: object) -> int:
    """Of six tasks the first two run."""
    job = stage.array("0-5", 2, **changes)
    stage.cycle(0.0)
    stage.began(job, 0, 1)
    stage.run(job, in_use=(0, 1), left=4)
    stage.cycle(0.0)
    return job


@pytest.mark.parametrize("crash", [nothing, Stage.restart])
def test_a_running_array_that_is_held_begins_no_further_task_until_it_is_released(
    stage: Stage, crash: Callable[[Stage], None]
) -> None:
    """It could not be held; the command that was printed instead was refused, too."""
    job = running_array(stage)
    stage.done(stage.controller.hold(job, by="ann"))
    crash(stage)
    stage.cycle(0.0)
    assert (stage.states(job), stage.launch(job).lanes, stage.asked_to("stop")) == (["running"], (), [])
    stage.ended(job, 0)
    stage.run(job, in_use=(1,), left=4, revision=2)
    stage.cycle(0.0)
    assert [slot.number for slot in stage.store.attempts(job)[0].slots] == [1]
    stage.ended(job, 1)
    stage.run(job, left=4, revision=2)
    stage.cycle(0.0)
    stage.run(job, revision=2, done=True)
    stage.cycle(0.0)
    crash(stage)
    stage.cycle(0.0)
    record = stage.job(job)
    assert (record.state, record.reason_code, record.tasks_succeeded) == (JobState.HELD, Code.HELD, 2)
    stage.done(stage.controller.release(job, by="ann"))
    stage.cycle(0.0)
    assert (stage.states(job), stage.launch(job).indices) == (["starting"], "2,3,4,5")


def test_an_array_that_is_released_while_its_tasks_still_end_goes_on(stage: Stage) -> None:
    job = running_array(stage)
    stage.done(stage.controller.hold(job, by="ann"))
    stage.ended(job, 0)
    stage.run(job, in_use=(1,), left=4, revision=2)
    stage.cycle(0.0)
    stage.done(stage.controller.release(job, by="ann"))
    stage.cycle(0.0)
    assert (stage.states(job), len(stage.launch(job).lanes)) == (["running"], 1)


def test_a_held_array_whose_last_tasks_run_ends_with_them(stage: Stage) -> None:
    job = stage.array("0-1", 2)
    stage.cycle(0.0)
    stage.began(job, 0, 1)
    stage.run(job, in_use=(0, 1))
    stage.cycle(0.0)
    stage.done(stage.controller.hold(job, by="ann"))
    for index in (0, 1):
        stage.ended(job, index)
    stage.run(job, revision=2, done=True)
    stage.cycle(0.0)
    assert stage.states(job) == ["succeeded"]
