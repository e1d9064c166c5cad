"""What is old goes; how old a job is counts from its end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.stage import REPORTING, Stage
from swell.controller import Controller
from swell.controller.retention import CheckpointFolders
from swell.model.usage import Used

DAY_S = 86400.0
KEEP_S = 30 * DAY_S
PATIENCE_S = 10.0


class Keeping(Stage):
    """A stage that forgets after 30 days, and remembers whose checkpoints it erased."""

    def __init__(self, folder: Path) -> None:
        self.erased: list[int] = []
        super().__init__(folder)

    def _controller(self, keep_s: float | None = KEEP_S) -> Controller:
        controller = Controller(
            self.store,
            self.engine,
            self.clock,
            keep_s=keep_s,
            reporting=REPORTING,
            erase_checkpoints=self.erased.append,
        )
        controller.load()
        return controller

    def remembered(self) -> list[int]:
        listed, _ = self.store.listing(ended_since=None)
        return [job.id for job in listed]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Keeping]:
    made = Keeping(tmp_path)
    yield made
    made.store.close()


def test_a_job_that_ran_for_months_is_kept_from_its_end_on(stage: Keeping) -> None:
    """Its log may have been written long ago: what counts is when it ended (microsoft/pai#1969)."""
    job = stage.submit()
    stage.begin(job)
    stage.finish(job, 0, seconds=100 * DAY_S)
    stage.cycle(seconds=DAY_S)
    stage.cycle(seconds=28.9 * DAY_S)
    assert (stage.remembered(), stage.asked_to("erase"), stage.erased) == ([job], [], [])
    stage.cycle(seconds=0.5 * DAY_S)
    assert (stage.remembered(), stage.asked_to("erase")) == ([], [("erase", "1.1")])


def test_checkpoints_stay_when_their_job_is_too_old_and_go_when_it_is_deleted(stage: Keeping) -> None:
    """Nobody asked for the first; whoever trained for a week and looks after six finds the model."""
    old, deleted = stage.submit(), stage.submit()
    for job in (old, deleted):
        stage.begin(job)
        stage.finish(job, 0)
    stage.controller.delete([stage.job(deleted)], by="me").result()
    stage.cycle(seconds=31 * DAY_S)
    assert (stage.remembered(), stage.erased) == ([], [deleted])


def test_one_that_is_taken_back_is_as_young_as_its_new_end(stage: Keeping) -> None:
    job = stage.submit()
    stage.begin(job)
    stage.finish(job, 1)
    stage.done(stage.controller.requeue(job, by="me", is_now=False), seconds=29 * DAY_S)
    stage.began(job, 0)
    stage.cycle(seconds=5 * DAY_S)
    assert stage.states(job) == ["running"]
    stage.finish(job, 0)
    stage.cycle(seconds=29 * DAY_S)
    assert stage.remembered() == [job]
    stage.cycle(seconds=2 * DAY_S)
    assert stage.asked_to("erase") == [("erase", "1.1"), ("erase", "1.2")]


def test_jobs_that_wait_or_run_are_never_too_old(stage: Keeping) -> None:
    running, waiting = stage.gang(4), stage.gang(4)
    stage.begin(running)
    stage.cycle(seconds=1000 * DAY_S)
    assert stage.states(running, waiting) == ["running", "queued"]


def test_a_folder_for_checkpoints_that_the_user_named_stays(stage: Keeping) -> None:
    own, named = stage.submit(), stage.submit(checkpoints="/home/me/models")
    for job in (own, named):
        stage.begin(job)
        stage.finish(job, 0)
    stage.controller.delete([stage.job(own), stage.job(named)], by="me").result()
    assert (stage.remembered(), stage.erased) == ([], [own])


def test_what_was_used_is_known_for_ever(stage: Keeping) -> None:
    job = stage.gang(1, gpus=1)
    stage.begin(job)
    stage.finish(job, 0, seconds=100)
    stage.cycle(seconds=1000 * DAY_S)
    assert stage.remembered() == []
    assert [one.used for one in stage.store.usage(since="1970-01-01")] == [Used(100.0, 100.0, attempts=1)]


def test_without_a_retention_everything_is_kept(stage: Keeping) -> None:
    stage.controller = stage._controller(keep_s=None)
    job = stage.submit()
    stage.begin(job)
    stage.finish(job, 0)
    stage.cycle(seconds=10_000 * DAY_S)
    assert stage.remembered() == [job]


# -- the folders themselves ------------------------------------------------------------------------------------------


def until_gone(folder: Path) -> None:
    """A thread removes what was renamed."""
    end = time.monotonic() + PATIENCE_S
    while any(folder.glob(".erased-*")):
        assert time.monotonic() < end, "it is still there"
        os.sched_yield()


def made(folder: Path, job: str) -> Path:
    (folder / job / "deep").mkdir(parents=True)
    (folder / job / "deep" / "1.model").write_text("weights")
    return folder / job


def test_a_jobs_folder_is_gone_at_once_and_others_stay(tmp_path: Path) -> None:
    mine, other = made(tmp_path, "7"), made(tmp_path, "77")
    CheckpointFolders(tmp_path).erase(7)
    assert (mine.exists(), other.exists()) == (False, True)
    until_gone(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["77"]


def test_a_job_without_checkpoints_leaves_nothing_to_erase(tmp_path: Path) -> None:
    CheckpointFolders(tmp_path).erase(7)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_server_left_half_erased_is_removed_by_the_next(tmp_path: Path) -> None:
    made(tmp_path, ".erased-3")
    CheckpointFolders(tmp_path)
    until_gone(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_links_inside_are_removed_and_not_followed(tmp_path: Path) -> None:
    elsewhere = made(tmp_path / "home", "models")
    root = tmp_path / "checkpoints"
    made(root, "7").joinpath("link").symlink_to(elsewhere)
    CheckpointFolders(root).erase(7)
    until_gone(root)
    assert (elsewhere / "deep" / "1.model").read_text() == "weights"
