"""What jobs report over HTTP, what they are asked, and what Kubeflow's protocol says."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest

from api.service import WAIT_S, Service
from api.trainee import GO_ON, Trainee

# -- what is taken -------------------------------------------------------------------------------------------


def test_a_report_is_shown_as_soon_as_it_is_answered(trainee):
    (trainee.folder / "two").write_bytes(b"weights")
    answer = trainee.report(
        begun=3,
        epochs_done=2,
        epochs_total=10,
        epochs=[[1, 4.0], [2, 4.0]],
        steps=[50, 5.0],
        memory_mib=900,
        checkpoint={"epochs_done": 2, "path": "two", "at": 5.0},
        metrics={"loss": 0.5},
    )
    assert (answer.status, answer.json) == (200, GO_ON)
    found = trainee.shown()
    assert (trainee.progress(), found["metrics"]) == ((2.0, 10.0), {"loss": 0.5})
    checkpoint = found["training"]["checkpoint"]
    assert (checkpoint["epochs_done"], checkpoint["path"], checkpoint["attempt"]) == (2.0, "two", 1)
    assert found["training"]["profile"] == [
        {
            "width": 1,
            "nodes": 1,
            "epochs": 2,
            "epoch_s": 4.0,
            "is_warm": True,
            "steps": 50,
            "step_s": 0.1,
            "memory_mib": 900.0,
            "steps_per_epoch": None,
        }
    ]


def test_one_that_is_ready_to_stop_is_stopped_at_once(trainee):
    """Nobody had asked this one, so the answer has nothing to say; it waits for SIGTERM anyway."""
    answer = trainee.report(epochs_done=2, checkpoint={"epochs_done": 2}, yielding=True, ready_to_stop=True)
    found = trainee.shown()
    assert (answer.status, answer.json) == (200, GO_ON)
    assert (found["state"], found["reason"]["evidence"]["cause"]) == ("stopping", "it is ready to stop")


@pytest.mark.parametrize("where", ["deep/er/file", "folder", "./plain"])
def test_a_checkpoint_is_a_file_or_a_folder_anywhere_in_the_jobs_own(trainee, where):
    path = trainee.folder / where
    path.mkdir(parents=True) if where == "folder" else path.parent.mkdir(parents=True, exist_ok=True)
    if where != "folder":
        path.write_bytes(b"weights")
    for n, told in enumerate((where, str(path)), 1):
        assert trainee.report(checkpoint={"epochs_done": n, "path": told}).status == 200
        assert trainee.shown()["training"]["checkpoint"]["path"] == where.removeprefix("./")


def test_a_link_inside_the_folder_is_kept_as_what_it_points_at_now(trainee):
    (trainee.folder / "one").write_bytes(b"weights")
    (trainee.folder / "latest").symlink_to("one")
    assert trainee.report(checkpoint={"epochs_done": 1, "path": "latest"}).status == 200
    assert trainee.shown()["training"]["checkpoint"]["path"] == "one"


def test_a_job_that_finds_its_checkpoint_by_itself_names_none(trainee):
    assert trainee.report(checkpoint={"epochs_done": 1}).status == 200
    assert trainee.shown()["training"]["checkpoint"]["path"] is None


# -- whose attempt -------------------------------------------------------------------------------------------


def test_a_job_that_has_ended_is_told_that_it_has_nothing_more_to_say(service):
    ended = Trainee(service)
    service.worker.end(ended.job)
    words = f"attempt {ended.job}.1 is over: job {ended.job} has ended"
    assert ended.report(epochs_done=1).error == (409, "Conflict", words)


# -- control -------------------------------------------------------------------------------------------------


def test_without_patience_the_answer_comes_at_once(trainee):
    assert trainee.ask("GET", "/control?rank=0&begun=1&known=").json == GO_ON


def test_one_that_is_not_asked_anything_hears_so_after_the_time_it_wanted_to_wait(trainee):
    began = time.monotonic()
    assert trainee.ask("GET", "/control?hold_s=0.3").json == GO_ON
    assert time.monotonic() - began >= 0.3


def test_one_that_waits_hears_at_once_when_it_is_asked(trainee):
    assert trainee.report(begun=4, epochs_done=3, checkpoint={"epochs_done": 3}).status == 200
    heard: list[Any] = []
    waiter = threading.Thread(target=lambda: heard.append(trainee.ask("GET", "/control?hold_s=8").json))
    waiter.start()
    until_somebody_waits(trainee.service)
    began = time.monotonic()
    assert trainee.service.ask("POST", f"/jobs/{trainee.job}/requeue").status == 200
    waiter.join(WAIT_S)
    assert (heard, time.monotonic() - began < 5) == ([{"stop_after_epoch": 4, "yield_now": False}], True)
    assert trainee.report(metrics={"loss": 1.0}).json["stop_after_epoch"] == 4


def until_somebody_waits(service: Service) -> None:
    end = time.monotonic() + WAIT_S
    while not service.services.control._waiting:
        assert time.monotonic() < end, "nobody waits"


def test_what_it_knows_already_is_no_news(trainee):
    trainee.report(begun=4, epochs_done=3, checkpoint={"epochs_done": 3})
    trainee.service.ask("POST", f"/jobs/{trainee.job}/requeue")
    began = time.monotonic()
    at_once = trainee.ask("GET", "/control?hold_s=8&known=").json
    assert time.monotonic() - began < 5
    later = trainee.ask("GET", "/control?hold_s=0.2&known=4").json
    assert at_once == later == {"stop_after_epoch": 4, "yield_now": False}
    assert time.monotonic() - began >= 0.2


def test_one_that_is_stopped_hears_that_too(trainee):
    trainee.service.ask("POST", f"/jobs/{trainee.job}/requeue", {"now": True})
    assert trainee.ask("GET", "/control?hold_s=8").json == {"stop_after_epoch": None, "yield_now": True}


@pytest.mark.parametrize(
    "query",
    [
        *("hold_s=61", "hold_s=-1", "hold_s=nan", "hold_s=inf", "rank=-1", "rank=x", "begun=-1", "known=" + "9" * 81),
        *("begun=1&epoch=-1", "begun=1&epoch=0&step=-1", "begun=1&epoch=0&step_s=nan", "begun=1&epoch=0&of=0"),
    ],
)
def test_questions_that_make_no_sense_are_refused(unharmed, query):
    assert unharmed.ask("GET", f"/control?{query}").status == 422


# -- Kubeflow's trainer status -------------------------------------------------------------------------------


def metrics(**values: Any) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def test_a_job_that_speaks_kubeflows_protocol_shows_progress_end_and_metrics(trainee):
    answer = trainee.kubeflow(
        progressPercentage=25,
        estimatedRemainingSeconds=600,
        metrics=metrics(totalEpochs="4", currentEpoch="1", loss="0.25"),
        lastUpdatedTime="2026-01-01T00:00:00Z",
    )
    assert (answer.status, answer.json) == (200, {})
    found = trainee.shown()
    assert (trainee.progress(), found["metrics"]) == ((1.0, 4.0), {"loss": 0.25})
    assert found["progress"]["expected_end_at"] is not None


def test_progress_alone_is_a_part_of_one(trainee):
    assert trainee.kubeflow(progressPercentage=40).status == 200
    assert trainee.progress() == (0.4, 1.0)


def test_an_epoch_without_a_total_is_an_epoch(trainee):
    """It was held against a total of one, and refused."""
    assert trainee.kubeflow(metrics=metrics(currentEpoch="3")).status == 200
    assert trainee.progress() == (3.0, None)


def test_where_the_library_counts_epochs_whole_percents_do_not(trainee):
    """34 percent of 3 epochs is more than the one that is done: the library's own report, and with it the
    checkpoint, was refused as going backwards."""
    assert trainee.report(begun=1, epochs_done=0, epochs_total=3).status == 200
    assert trainee.kubeflow(progressPercentage=34, metrics=metrics(totalEpochs="3", loss="0.5")).status == 200
    assert trainee.report(begun=2, epochs_done=1, checkpoint={"epochs_done": 1}).status == 200
    found = trainee.shown()
    assert (trainee.progress(), found["metrics"]) == ((1.0, 3.0), {"loss": 0.5})


@pytest.mark.parametrize("value", ["NaN", "inf", "-Infinity", "", "high", "1e999", "0x10"])
def test_values_that_are_no_numbers_are_left_out(trainee, value):
    assert trainee.kubeflow(metrics=metrics(loss=value, good="1")).status == 200
    assert trainee.shown()["metrics"] == {"good": 1.0}


@pytest.mark.parametrize("total", ["0", "-5", "1e300", "NaN"])
def test_a_total_that_cannot_be_is_left_out(trainee, total):
    """Of 1e300 epochs no end can be told: the job could no longer be listed."""
    answer = trainee.kubeflow(progressPercentage=50, estimatedRemainingSeconds=5, metrics=metrics(totalEpochs=total))
    assert (answer.status, trainee.progress()) == (200, (0.5, 1.0))


@pytest.mark.parametrize("current", ["-1", "1e300", "9"])
def test_an_epoch_that_cannot_be_is_left_out(trainee, current):
    assert trainee.kubeflow(metrics=metrics(currentEpoch=current, totalEpochs="8")).status == 200
    assert trainee.progress() == (0.0, 8.0)


@pytest.mark.parametrize(
    "body",
    [
        '{"trainerStatus": {"progressPercentage": NaN}}',
        '{"trainerStatus": {"progressPercentage": 101}}',
        '{"trainerStatus": {"progressPercentage": -1}}',
        '{"trainerStatus": {"estimatedRemainingSeconds": Infinity}}',
        '{"trainerStatus": {"estimatedRemainingSeconds": NaN}}',
        '{"trainerStatus": {"metrics": "none"}}',
        '{"trainerStatus": {"metrics": [{"name": "loss"}]}}',
        '{"trainerStatus": [1]}',
        "[]",
        "nonsense",
    ],
)
def test_nonsense_in_that_protocol_is_refused_too(unharmed, body):
    assert unharmed.ask("POST", "/trainer-status", body.encode()).status == 422


@pytest.mark.parametrize("body", [{}, {"trainerStatus": None}, {"trainerStatus": {}}, {"later": 1}])
def test_a_status_that_says_nothing_changes_nothing(trainee, body):
    before = trainee.progress()
    assert trainee.ask("POST", "/trainer-status", body).status == 200
    assert trainee.progress()[1] == before[1]


def test_a_name_that_is_too_long_is_cut_and_no_more_than_50_are_kept(trainee):
    many = [*metrics(**{"x" * 300: "1"}), *metrics(**{f"m{n}": "0" for n in range(100)})]
    assert trainee.kubeflow(metrics=many).status == 200
    kept = trainee.shown()["metrics"]
    assert (len(kept), max(map(len, kept))) == (50, 100)


def test_what_was_reported_can_always_be_listed(trainee):
    """A thousand million epochs of thirty years each: no calendar has that date."""
    assert trainee.report(epochs_done=0, epochs_total=1e9, epochs=[[1, 1e9]]).status == 200
    listed = {job["id"]: job for job in trainee.service.ask("GET", "/jobs").json["jobs"]}
    assert listed[trainee.job]["progress"] == {"epochs_done": 0.0, "epochs_total": 1e9, "expected_end_at": None}
    assert json.loads(trainee.service.ask("GET", f"/jobs/{trainee.job}").data)["state"] == "running"
