"""What follows from what jobs do with their GPUs: overruns, what is learnt, idle GPUs."""

from __future__ import annotations

import json

import pytest

from controller.stage import Stage
from swell.model.job import IdlePolicy, Overrun, ResizeMode, Role
from swell.model.launch import CAUSE_STOPPED, GpuSeen, Launch, RunSeen, parse_run, run_document
from swell.model.reason import Code
from swell.model.resources import Resources
from swell.model.training import Control
from swell.store import Changes

OVERRUN = {"reserved_mib": 512, "used_mib": 600}


def sharing(stage: Stage, policy: Overrun = Overrun.WARN, **spec: object) -> int:
    """A job that runs since 1000 and has reserved 512 of a GPU's 1024 MiB."""
    role = Role("worker", ("train",), Resources(100, 0, 0, 512), 1)
    job = stage.submit(roles=(role,), on_overrun=policy, **spec)
    stage.begin(job)
    return job


def events(stage: Stage, job: int, kind: str) -> list[dict[str, object]]:
    return [event.detail for event in stage.store.events(job=job) if event.kind == kind]


def memory(stage: Stage, job: int) -> tuple[int | None, int | None]:
    """Reserved by what was seen, and the peak."""
    record = stage.job(job)
    return record.gpu_memory_mib, record.gpu_peak_mib


# -- overruns ------------------------------------------------------------------------------------------------


def test_a_job_within_its_reservation_is_left_alone(stage: Stage) -> None:
    job = sharing(stage, Overrun.STOP)
    stage.uses(job, 512, peak_mib=512)
    assert (stage.states(job), memory(stage, job)) == (["running"], (None, 512))
    assert stage.controller.seen_on_gpus(job) == {"a": GpuSeen(512, 512)}


def test_the_peak_survives_a_crash(stage: Stage) -> None:
    job = sharing(stage)
    stage.uses(job, 300, peak_mib=400)
    stage.restart()
    stage.uses(job, 300, peak_mib=300)
    assert memory(stage, job) == (None, 400)


def test_an_overrun_is_told_once_and_the_reservation_follows(stage: Stage) -> None:
    job = sharing(stage)
    for used in (600, 600, 700, 896):
        stage.uses(job, used, peak_mib=used)
    assert events(stage, job, "GpuMemoryOverrun") == [{**OVERRUN, "policy": "warn"}]
    assert (stage.states(job), memory(stage, job)) == (["running"], (896, 896))
    stage.uses(job, 897, peak_mib=897)
    assert events(stage, job, "GpuMemoryOverrun")[1:] == [{"reserved_mib": 896, "used_mib": 897, "policy": "warn"}]
    assert memory(stage, job) == (1024, 897)  # all that the GPU has


def test_a_job_that_has_all_of_the_gpu_cannot_overrun_it(stage: Stage) -> None:
    job = sharing(stage)
    stage.uses(job, 900, peak_mib=900)
    stage.uses(job, 1030, peak_mib=1030)  # rounded up, process by process
    assert (len(events(stage, job, "GpuMemoryOverrun")), memory(stage, job)) == (1, (1024, 1030))


def test_an_overrun_may_end_the_job(stage: Stage) -> None:
    job = sharing(stage, Overrun.STOP, retries=3)
    stage.uses(job, 600, peak_mib=600)
    assert (stage.states(job), stage.asked_to("stop")) == (["stopping"], [("stop", "1.1", 30.0)])
    stage.store.record(Changes(jobs={job: {"reason_evidence": {}}})).result()  # for people: nothing is decided by it
    stage.restart()
    assert stage.asked_to("stop") == [("stop", "1.1", 30.0)]
    stage.finish(job, 75, cause=CAUSE_STOPPED)
    record = stage.job(job)
    expected = {"job": job, "reserved_mib": 512, "used_mib": 600, "needs_mib": 896}
    assert (record.state, record.reason_code, record.reason_evidence) == ("failed", Code.GPU_MEMORY_OVERRUN, expected)
    reason = stage.controller.reason(record)
    assert reason is not None
    assert (reason.message, reason.next) == (
        "it used 600 MiB of the GPU it shared but had reserved 512 MiB, so it was stopped",
        "reserve more (--gpu-memory 896MiB), or let it continue with a warning",
    )


def test_a_job_that_is_cancelled_while_it_is_stopped_for_an_overrun_is_cancelled(stage: Stage) -> None:
    job = sharing(stage, Overrun.STOP)
    stage.uses(job, 600, peak_mib=600)
    stage.controller.cancel([job], by="ann", grace_s=None).result()
    stage.cycle()
    stage.finish(job, 143, cause=CAUSE_STOPPED)
    assert (stage.job(job).state, stage.job(job).reason_code) == ("cancelled", Code.CANCELLED)


def test_an_overrun_may_make_it_yield_and_come_back_with_what_it_needs(stage: Stage) -> None:
    job = sharing(stage, Overrun.YIELD)
    stage.saved(job, 3.0, seconds=10.0)
    stage.uses(job, 600, peak_mib=600)
    assert (stage.states(job), stage.control(job), memory(stage, job)) == (["running"], Control(4), (896, 600))
    stage.saved(job, 4.0)
    stage.finish(job, 75)
    stage.begin(job)
    assert (stage.job(job).attempts, stage.states(job), memory(stage, job)) == (2, ["running"], (896, 600))
    stage.uses(job, 700, peak_mib=700)
    assert events(stage, job, "GpuMemoryOverrun") == [{**OVERRUN, "policy": "yield"}]


def test_one_that_resumes_at_any_moment_is_restarted_at_once(stage: Stage) -> None:
    job = sharing(stage, Overrun.YIELD, resize=ResizeMode.IMMEDIATE)
    stage.uses(job, 600, peak_mib=600)
    assert stage.states(job) == ["stopping"]


def test_one_that_would_lose_its_work_is_only_warned(stage: Stage) -> None:
    job = sharing(stage, Overrun.YIELD)
    stage.uses(job, 600, peak_mib=600)
    assert (stage.states(job), stage.control(job), memory(stage, job)) == (["running"], Control(), (896, 600))


def test_one_with_gpus_of_its_own_may_use_all_of_them(stage: Stage) -> None:
    role = Role("worker", ("train",), Resources(100, 0, 1, 512), 1)
    job = stage.elastic(1, 1, roles=(role,), on_overrun=Overrun.STOP)
    stage.begin(job)
    stage.uses(job, 1000, peak_mib=1000)
    assert (stage.states(job), memory(stage, job)) == (["running"], (None, 1000))


# -- what is learnt ------------------------------------------------------------------------------------------


def test_after_an_epoch_the_measured_peak_takes_the_place_of_the_guess(stage: Stage) -> None:
    job = sharing(stage)
    stage.say(job, begun=1)
    stage.uses(job, 90, peak_mib=100)
    stage.say(job, seconds=60.0, begun=1)
    assert memory(stage, job) == (None, 100)
    stage.say(job, epochs_done=1.0)
    assert events(stage, job, "GpuMemoryMeasured") == [{"reserved_mib": 384, "before_mib": 512, "peak_mib": 100}]
    assert memory(stage, job) == (384, 100)


def test_what_was_learnt_is_not_learnt_again_but_only_more(stage: Stage) -> None:
    job = sharing(stage)
    stage.say(job, begun=1)
    for epoch, peak in ((1.0, 100), (2.0, 100), (3.0, 300)):
        stage.uses(job, peak, peak_mib=peak)
        stage.say(job, seconds=60.0, epochs_done=epoch)
    assert [one["reserved_mib"] for one in events(stage, job, "GpuMemoryMeasured")] == [384, 576]


def test_samples_alone_do_not_lower_a_reservation_before_they_have_seen_enough(stage: Stage) -> None:
    job = sharing(stage)
    stage.say(job, begun=1)
    stage.uses(job, 90, peak_mib=100)
    stage.say(job, seconds=5.0, epochs_done=1.0)
    assert memory(stage, job) == (None, 100)
    stage.say(job, seconds=25.0, epochs_done=2.0)
    assert memory(stage, job) == (384, 100)


def test_where_the_driver_does_not_tell_the_librarys_word_counts(stage: Stage) -> None:
    """With CUDA's own part, which it does not see; and never more than the GPU has."""
    small, large = sharing(stage), sharing(stage)
    stage.say(small, epochs_done=1.0, memory_mib=100.5)
    stage.say(large, epochs_done=1.0, memory_mib=500.0)
    assert (memory(stage, small), memory(stage, large)) == ((896, None), (1024, None))


def test_a_job_with_a_gpu_of_its_own_learns_nothing(stage: Stage) -> None:
    job = stage.elastic(1, 1)
    stage.begin(job)
    stage.say(job, epochs_done=1.0, memory_mib=100.0)
    assert (memory(stage, job), events(stage, job, "GpuMemoryMeasured")) == ((None, None), [])


# -- idle GPUs -----------------------------------------------------------------------------------------------


def idling(stage: Stage, **spec: object) -> int:
    job = stage.elastic(1, 1, idle=IdlePolicy(10, 60.0), **spec)
    stage.begin(job)
    return job


def test_a_worker_is_told_what_counts_as_idle_and_tells_what_it_sees(stage: Stage) -> None:
    launch = stage.launch(idling(stage))
    assert launch.idle == IdlePolicy(10, 60.0)
    assert Launch.from_document(json.loads(json.dumps(launch.to_document()))) == launch
    seen = RunSeen(launch.attempt, "a", 1, (0,), 0, False, gpu=GpuSeen(5, 6, 15.0), trouble="TensorBoard has ended")
    assert parse_run(json.loads(json.dumps(run_document(seen))), "a") == seen


def test_a_job_whose_gpus_idle_for_the_whole_window_fails(stage: Stage) -> None:
    job = idling(stage, retries=3)
    stage.uses(job, quiet_s=45.0)
    assert stage.states(job) == ["running"]
    stage.uses(job, quiet_s=60.0)
    assert stage.states(job) == ["stopping"]
    stage.finish(job, 0, cause=CAUSE_STOPPED)
    record = stage.job(job)
    expected = {"job": job, "min_gpu_utilization": 10, "window_s": 60.0}
    assert (record.state, record.reason_code, record.reason_evidence) == ("failed", Code.GPU_IDLE, expected)
    assert events(stage, job, "GpuIdle") == [expected]
    reason = stage.controller.reason(record)
    assert reason is not None
    assert (reason.message, reason.next) == (
        "none of its GPUs reached 10 % utilization within 60 s, so it was stopped",
        f"see what it waited for (swell logs {job}), or give it a longer window",
    )


@pytest.mark.parametrize("quiet_s", [None, 0.0, 45.0])
def test_a_job_that_is_not_seen_to_idle_is_left_alone(stage: Stage, quiet_s: float | None) -> None:
    """None: where nothing is measured, as with simulated GPUs."""
    job = idling(stage)
    if quiet_s is not None:
        stage.uses(job, quiet_s=quiet_s)
    stage.cycle(1000.0)
    assert stage.states(job) == ["running"]


def test_an_array_whose_gpus_idle_fails_as_a_whole(stage: Stage) -> None:
    role = Role("worker", ("train",), Resources(100, 0, 1), 1)
    job = stage.array("0-9", 2, roles=(role,), idle=IdlePolicy(10, 60.0))
    stage.cycle()
    stage.began(job, 0, 1)
    stage.cycle()
    stage.uses(job, quiet_s=60.0)
    stage.ended(job, 0, 143, cause=CAUSE_STOPPED)
    stage.ended(job, 1, 143, cause=CAUSE_STOPPED)
    stage.run(job, done=True)
    stage.cycle()
    assert (stage.job(job).state, stage.job(job).reason_code) == ("failed", Code.GPU_IDLE)


def test_a_new_attempt_has_a_new_window(stage: Stage) -> None:
    job = idling(stage)
    stage.uses(job, quiet_s=45.0)
    stage.done(stage.controller.requeue(job, by="ann", is_now=True))
    stage.finish(job, 143, cause=CAUSE_STOPPED)
    stage.begin(job)
    assert (stage.states(job), stage.controller.seen_on_gpus(job)) == (["running"], {})
