"""What keeps a job from starting, or from going on, is told until it is over."""

from __future__ import annotations

from controller.stage import Stage
from swell.model.launch import RunSeen
from swell.model.reason import Code, Reason

# -- trouble while starting ----------------------------------------------------------------------------------


def test_what_keeps_a_job_from_starting_is_told_and_written_once(stage: Stage) -> None:
    job = stage.submit()
    stage.cycle()
    trouble = "pod train-worker-1 waits for volume data"
    stage.is_in_trouble(job, trouble)
    version = stage.job(job).version
    stage.is_in_trouble(job, trouble)
    stage.restart()
    stage.cycle()
    assert (stage.states(job), stage.job(job).version) == (["starting"], version)
    assert stage.why(job) == Reason(
        Code.STARTING,
        f"it has resources on a; its processes are being started; {trouble}",
        {"nodes": "a", "trouble": trouble},
        "wait a moment; if this lasts, fix that, or cancel the job",
    )


def test_it_is_forgotten_when_it_is_over(stage: Stage) -> None:
    job = stage.submit()
    stage.cycle()
    stage.is_in_trouble(job, "image pull: back-off")
    stage.is_in_trouble(job, "")
    assert stage.job(job).reason_evidence == {"nodes": "a"}
    stage.is_in_trouble(job, "image pull: back-off")
    stage.began(job, 0)
    stage.run(job, (0,))
    stage.cycle()
    record = stage.job(job)
    assert (stage.states(job), record.reason_code, record.reason_evidence) == (["running"], None, {})


# -- trouble while running -----------------------------------------------------------------------------------

CRASHES = "pod train-0 keeps ending: begun again {} times, the last time after exit code 1"


def test_a_running_job_of_which_a_task_keeps_ending_says_so_until_it_is_over(stage: Stage) -> None:
    """A pod in a crash loop showed as a healthy job for a day: nobody looked at it."""
    job = stage.submit()
    stage.begin(job)
    stage.is_in_trouble(job, CRASHES.format(2))
    stage.is_in_trouble(job, CRASHES.format(3))
    assert stage.states(job) == ["running"]
    assert stage.why(job) == Reason(
        Code.TASK_TROUBLE,
        f"it is running, but not completely: {CRASHES.format(3)}",
        {"job": job, "trouble": CRASHES.format(3)},
        f"see its output (swell logs {job}), fix that and submit it again, or wait",
    )
    assert stage.details(job, "TaskTrouble") == [{"trouble": CRASHES.format(2)}], "numbers that change are no Event"
    stage.is_in_trouble(job, "")
    assert (stage.job(job).reason_code, stage.job(job).reason_evidence) == (None, {})


def test_a_machine_that_is_not_heard_of_is_told_before_a_task_in_trouble(stage: Stage) -> None:
    job = stage.submit()
    stage.begin(job)
    stage.is_in_trouble(job, CRASHES.format(2))
    stage.engine.silent = {"a": 61.0}
    stage.cycle()
    stage.is_in_trouble(job, CRASHES.format(3))
    assert stage.job(job).reason_code is Code.WORKER_UNREACHABLE
    stage.engine.silent = {}
    stage.engine.runs.clear()  # an engine tells only what has changed
    stage.cycle()
    record = stage.job(job)
    assert (record.reason_code, record.reason_evidence["trouble"]) == (Code.TASK_TROUBLE, CRASHES.format(3))


def test_why_outputs_were_not_sent_is_told_although_the_job_ends_with_that_news(stage: Stage) -> None:
    """They were not there, and nothing said why: the trouble came with the end, and was dropped."""
    job = stage.submit()
    stage.begin(job)
    trouble = "its outputs on a were not sent: 'results/x' cannot be read: Permission denied"
    stage.ended(job, 0, 0, "")
    stage.engine.runs[stage.present(job)] = RunSeen(stage.present(job), "a", 1, (), 0, True, trouble=trouble)
    stage.cycle()
    told = [event.detail for event in stage.store.events(job=job) if event.kind == "TaskTrouble"]
    assert (stage.states(job), told) == (["succeeded"], [{"trouble": trouble}])
