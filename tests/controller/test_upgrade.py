"""A database of an older version is read, brought up to date, and its jobs go on from where they were."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.stage import Stage
from swell.model.attempt import Asked, Stopping
from swell.model.job import ResizeMode
from upgrade.state import Before, lost, unpack

RUNNING = ("running", "gang", "array", "shares", "training", "asked", "stopping", "retrying", "starting")


@pytest.fixture
def before(tmp_path: Path) -> Before:
    return unpack("schema-0006", tmp_path)


@pytest.fixture
def stage(before: Before) -> Iterator[Stage]:
    made = Stage(before.state)
    yield made
    made.store.close()


def test_every_job_of_an_older_version_is_what_it_was(before: Before, stage: Stage) -> None:
    for told in before.told:
        job = stage.job(told["id"])
        assert (job.name, job.owner, job.state) == (told["name"], told["user"], told["state"])
        assert (job.attempts, job.width, job.failures) == (len(told["attempts"]), told["width"], told["failures"])
        assert lost(told["spec"], job.spec.to_document()) == []
        reason = None if job.reason_code is None else str(job.reason_code)
        assert reason == (None if told["reason"] is None else told["reason"]["code"])


def test_every_attempt_and_task_of_an_older_version_is_what_it_was(before: Before, stage: Stage) -> None:
    for told in before.told:
        attempts = stage.store.attempts(told["id"])
        shown = [(one["number"], one["width"], one["placements"], one["outcome"]) for one in told["attempts"]]
        assert [(one.number, one.width, one.placements, one.outcome) for one in attempts] == shown
        tasks = [(one["number"], task["index"], task["exit_code"]) for one in told["attempts"] for task in one["tasks"]]
        found = stage.store.tasks(told["id"])
        assert [(task.attempt, task.index, task.exit_code) for task in found] == tasks


def test_what_an_attempt_was_told_and_asked_is_read_in_the_new_form(before: Before, stage: Stage) -> None:
    ids = before.ids()
    present = {one.job_id: one for one in stage.store.open_attempts()}
    assert sorted(present) == sorted(ids[name] for name in RUNNING)
    asked = present[ids["asked"]].asked
    assert asked is not None
    assert asked == Asked(0, ResizeMode.AT_CHECKPOINT, "held by ann", asked.at, stop_after_epoch=4)
    assert present[ids["stopping"]].stopping == Stopping("cancelled by ann", 3600.0, "ann")
    training = stage.training(ids["training"])
    assert (training.epochs_done, training.metrics, len(training.profile)) == (3.0, {"loss": 0.5}, 1)


def test_the_engine_is_told_of_every_attempt_that_an_older_version_had_under_way(before: Before, stage: Stage) -> None:
    ids = before.ids()
    lanes = {"gang": 2, "array": 2}
    attempts = {name: 3 if name == "retrying" else 1 for name in RUNNING}
    started = {("start", f"{ids[name]}.{attempts[name]}", lanes.get(name, 1)) for name in RUNNING}
    assert set(stage.asked_to("start")) == started
    assert stage.asked_to("stop") == [("stop", f"{ids['stopping']}.1", 3600.0)]
