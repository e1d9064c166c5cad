"""What happens to jobs ends up in the right counter, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.stage import Stage
from swell.metrics import Metrics
from swell.model.job import EXIT_YIELDED, ResizeMode


class Measured(Stage):
    """A stage whose cycles are measured."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.metrics = Metrics()

    def number(self, name: str, **labels: str) -> float | None:
        """As it stands after the cycles since the last look."""
        for cycle in self.cycles:
            self.metrics.cycled(cycle)
        self.cycles.clear()
        return self.metrics.registry.get_sample_value(name, labels)

    def histogram(self, name: str) -> tuple[float | None, float | None]:
        """How many, and their sum."""
        return self.number(f"{name}_count"), self.number(f"{name}_sum")


@pytest.fixture
def stage(tmp_path):
    stage = Measured(tmp_path)
    yield stage
    stage.store.close()


def test_the_wait_is_from_submission_to_the_first_start_and_the_run_from_the_first_task_to_the_end(stage):
    first, second = stage.gang(4), stage.gang(4)
    stage.begin(first, seconds=2)
    stage.finish(first, 0, 0, 0, 0, seconds=30)
    stage.begin(second)
    stage.finish(second, 0, 0, 0, 1, seconds=5)
    assert stage.histogram("swell_wait_seconds") == (2.0, 2.0 + 32.0)
    assert stage.histogram("swell_run_seconds") == (2.0, 35.0)
    assert stage.number("swell_jobs_ended_total", state="succeeded") == 1.0
    assert stage.number("swell_jobs_ended_total", state="failed") == 1.0


def test_a_job_that_never_ran_has_ended_but_has_no_run_time(stage):
    job = stage.gang(9)
    stage.controller.cancel([job], by="me", grace_s=None).result()
    stage.cycle()
    assert stage.number("swell_jobs_ended_total", state="cancelled") == 1.0
    assert stage.histogram("swell_run_seconds") == (0.0, 0.0)
    assert stage.histogram("swell_wait_seconds") == (0.0, 0.0)


def test_an_estimate_is_compared_with_the_run_time_of_jobs_that_succeed(stage):
    """Not with the wait between attempts; who fails or has guessed nothing tells nothing of guesses. No guess is 0."""
    guessed = stage.elastic(4, 4, estimate_s=20.0, resize=ResizeMode.IMMEDIATE)
    stage.begin(guessed)
    stage.done(stage.controller.hold(guessed, by="me"), seconds=4)
    stage.finish(guessed, 143, cause="stopped", seconds=6)
    stage.done(stage.controller.release(guessed, by="me"), seconds=100)
    stage.began(guessed, 0)
    stage.cycle(0)
    stage.finish(guessed, 0, seconds=20)
    for estimate_s, code in ((20.0, 1), (None, 0), (0.0, 0)):
        other = stage.elastic(4, 4, estimate_s=estimate_s)
        stage.begin(other)
        stage.finish(other, code, seconds=20)
    assert stage.histogram("swell_estimate_ratio") == (2.0, 1.5 + 20.0)


def test_resizes_are_counted_by_direction_and_preemptions_apart_from_them(stage):
    job = stage.elastic(1, 4, resize=ResizeMode.IMMEDIATE)
    stage.begin(job)
    for width in (2, 3):
        stage.done(stage.controller.scale(job, width, by="me", is_now=True))
        stage.finish(job, 143, cause="stopped")
        stage.began(job, 0)
        stage.cycle()
    stage.done(stage.controller.requeue(job, by="me", is_now=True))
    stage.finish(job, 143, cause="stopped")
    assert (stage.job(job).resizes, stage.job(job).preemptions) == (2, 1)
    assert stage.number("swell_resizes_total", direction="shrink") == 1.0  # from 4 to 2
    assert stage.number("swell_resizes_total", direction="grow") == 1.0  # from 2 to 3
    assert stage.number("swell_preemptions_total") == 1.0


def test_a_restart_is_measured_once_for_every_attempt_that_trains(stage):
    job = stage.elastic(1, 1)
    stage.begin(job)
    stage.say(job, seconds=7, begun=1)
    stage.saved(job, 1, seconds=10)
    assert stage.histogram("swell_restart_seconds") == (1.0, 7.0)
    stage.done(stage.controller.requeue(job, by="me", is_now=False))
    stage.finish(job, EXIT_YIELDED)
    stage.begin(job)
    stage.say(job, seconds=3, begun=2)
    assert stage.histogram("swell_restart_seconds") == (2.0, 10.0)


def test_an_array_that_gives_room_back_is_neither_resized_nor_preempted(stage):
    array = stage.array("0-9", 4)
    stage.cycle()
    stage.began(array, 0, 1, 2, 3)
    stage.run(array, in_use=(0, 1, 2, 3), left=6)
    stage.cycle()
    stage.gang(4)
    stage.cycle()
    for index in range(4):
        stage.ended(array, index)
    stage.run(array, left=6, revision=2)
    stage.cycle()
    stage.run(array, revision=2, done=True)
    stage.cycle()
    assert stage.number("swell_preemptions_total") == 0.0
    assert stage.number("swell_resizes_total", direction="shrink") == 0.0


def test_every_cycle_is_counted(stage):
    for _ in range(3):
        stage.cycle()
    assert stage.number("swell_cycle_seconds_count") == 3.0
    assert stage.number("swell_plan_seconds_count") == 3.0


def test_ended_jobs_of_an_earlier_server_are_counted_on():
    metrics = Metrics()
    metrics.go_on_from({"succeeded": 5, "queued": 7})
    value = metrics.registry.get_sample_value
    assert value("swell_jobs_ended_total", {"state": "succeeded"}) == 5.0
    assert value("swell_jobs_ended_total", {"state": "failed"}) == 0.0
    assert value("swell_jobs_ended_total", {"state": "queued"}) is None


def test_answers_are_counted_by_route_and_reports_by_what_became_of_them():
    metrics = Metrics()
    metrics.answered("GET", "/jobs/{ref}", 200, 0.25)
    metrics.answered("GET", "/jobs/{ref}", 404, 0.25)
    for status in (200, 200, 409, 429):
        metrics.reported(status)
    value = metrics.registry.get_sample_value
    route = {"method": "GET", "route": "/jobs/{ref}"}
    assert value("swell_http_requests_total", {**route, "status": "404"}) == 1.0
    assert value("swell_http_request_seconds_sum", route) == 0.5
    counted = [value("swell_reports_total", {"result": one}) for one in ("accepted", "refused", "limited")]
    assert counted == [2.0, 1.0, 1.0]
