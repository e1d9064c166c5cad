"""A guess of the run time that was too short costs a job its place, never its work."""

from __future__ import annotations

from controller.stage import Stage
from swell.model.job import JobState, ResizeMode

HOUR_S = 3600.0


def test_a_job_that_exceeds_its_estimate_gives_way_to_its_equals_and_says_why_it_waits(stage: Stage) -> None:
    """As with run-scheduler's --est_nhours 2: three hours later another job of the same priority comes."""
    late = stage.elastic(4, 4, estimate_s=2 * HOUR_S, resize=ResizeMode.IMMEDIATE)
    stage.begin(late)
    other = stage.elastic(4, 4)
    stage.cycle()
    assert stage.states(late, other) == ["running", "queued"]  # until then they are served as they came
    stage.cycle(3 * HOUR_S)
    assert stage.states(late, other) == ["stopping", "queued"]
    stage.finish(late, 143, cause="stopped")
    assert stage.states(late, other) == ["queued", "starting"]

    reason = stage.controller.reason(stage.job(late))
    assert reason is not None
    assert (str(reason.code), reason.next) == (
        "OverEstimate",
        "nothing to do; it starts when its turn comes; next time, give a better --hours",
    )
    assert reason.message == (
        "it has run for 3.0 h, longer than its estimate of 2.0 h, so other jobs of the same priority go first; "
        f"it wants 0.1 CPUs, 4 GPUs; free here is 3.9 CPUs, 0 GPUs; the rest is used by job {other}"
    )
    assert (reason.evidence["estimate_s"], reason.evidence["ran_s"]) == (2 * HOUR_S, 3 * HOUR_S + 1)

    stage.begin(other)
    stage.finish(other, 0)
    assert stage.job(late).state is JobState.STARTING
