"""Hold, release, requeue and scale over HTTP."""

from __future__ import annotations

import pytest

WORDS = ("hold", "release", "requeue", "scale")


@pytest.fixture
def waiting(service):
    """A job that waits for more than there is."""
    job = service.submit("waits", cpus=1000)
    service.until_true(job, lambda found: found["reason"]["code"] in ("CannotRunHere", "NoWorker"))
    yield job
    service.ask("POST", f"/jobs/{job}/cancel")
    service.until(job, "cancelled")


def test_a_job_is_held_and_released(service, waiting):
    held = service.ask("POST", f"/jobs/{waiting}/hold")
    assert (held.status, held.json["state"], held.json["reason"]["code"]) == (200, "held", "Held")
    released = service.ask("POST", f"/jobs/{waiting}/release")
    assert (released.status, released.json["state"]) == (200, "queued")


def test_what_is_not_held_cannot_be_released(service, waiting):
    words = f"job {waiting} is not held; it is queued"
    assert service.ask("POST", f"/jobs/{waiting}/release").error == (409, "Conflict", words)


def test_what_has_not_started_cannot_be_started_again(service, waiting):
    words = f"job {waiting} is queued: it has not started, so there is nothing to start again"
    assert service.ask("POST", f"/jobs/{waiting}/requeue").error == (409, "Conflict", words)


def test_an_ended_job_is_started_again(service):
    job = service.submit()
    service.worker.begin(job)
    service.worker.end(job, 1)
    answer = service.ask("POST", f"/jobs/{job}/requeue", {"now": False})
    assert (answer.status, answer.json["state"] in ("queued", "starting")) == (200, True)
    assert (answer.json["ended_at"], answer.json["exit_code"]) == (None, None)
    service.ask("POST", f"/jobs/{job}/cancel")


@pytest.mark.parametrize("width", [0, -1, 1_000_001, "wide", 1.5, []])
def test_a_width_that_is_none_is_refused(service, waiting, width):
    status, kind, words = service.ask("POST", f"/jobs/{waiting}/scale", {"width": width}).error
    assert (status, kind, words[:6]) == (422, "Rejected", "width ")


def test_a_width_the_job_did_not_ask_for_is_refused(service, waiting):
    words = f"width 2 is outside job {waiting}'s range, 1..1"
    assert service.ask("POST", f"/jobs/{waiting}/scale", {"width": 2}).error == (422, "Rejected", words)


def test_without_a_width_nothing_is_scaled(service, waiting):
    assert service.ask("POST", f"/jobs/{waiting}/scale", {}).status == 422
    assert service.ask("POST", f"/jobs/{waiting}/scale", {"width": None}).status == 200


@pytest.mark.parametrize("word", WORDS)
def test_a_job_that_never_was(service, word):
    body = {"width": 1} if word == "scale" else None
    words = "there is no job 999999; `swell ps -a` lists all"
    assert service.ask("POST", f"/jobs/999999/{word}", body).error == (404, "NotFound", words)


@pytest.mark.parametrize("word", WORDS)
def test_a_job_that_has_succeeded_stays_as_it_is(service, word):
    job = service.submit()
    service.worker.begin(job)
    service.worker.end(job, 0)
    before = service.ask("GET", f"/jobs/{job}").json
    status, kind, _ = service.ask("POST", f"/jobs/{job}/{word}", {"width": 1} if word == "scale" else None).error
    assert (status, kind, service.ask("GET", f"/jobs/{job}").json) == (409, "Conflict", before)
