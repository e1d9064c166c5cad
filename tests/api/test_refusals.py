"""Refusals are written down with their origin; a flood of them is counted, not written."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from api.doors.foreign import Foreign, of_user
from api.service import JOB_SECRET, Service
from swell.api.audit import LINE_MAX, LINES_PER_ORIGIN, LINES_PER_WINDOW, WINDOW_S, RefusalLog
from swell.controller.reporting import make_token
from swell.model.job import AttemptId

FOREVER = 4_000_000_000.0


def test_a_flood_leaves_a_few_lines_and_a_number(caplog):
    now = [0.0]
    refusals = RefusalLog(logging.getLogger("test"), monotonic=lambda: now[0])
    for number in range(1000):
        refusals.note("10.0.0.1", f"try {number}")
    now[0] += WINDOW_S + 1
    refusals.note("10.0.0.1", "one more")
    lines = said(caplog, "test")
    assert len(lines) == LINES_PER_ORIGIN + 2
    assert lines[0] == "refused 10.0.0.1: try 0"
    assert lines[-2:] == [f"and {1000 - LINES_PER_ORIGIN} more refusals", "refused 10.0.0.1: one more"]


def test_nobody_hides_others_behind_a_flood_and_many_together_are_bounded_too(caplog):
    refusals = RefusalLog(logging.getLogger("test"), monotonic=lambda: 0.0)
    for number in range(1000):
        refusals.note("10.0.0.1", f"try {number}")
    refusals.note("pid 7", "a forged token")
    assert said(caplog, "test")[-1] == "refused pid 7: a forged token"
    for number in range(1000):
        refusals.note(f"10.0.1.{number}", "a forged token")
    assert len(said(caplog, "test")) == LINES_PER_WINDOW


@pytest.fixture
def fresh(tmp_path) -> Iterator[Service]:
    """With a minute's lines still to write."""
    made = Service(tmp_path)
    yield made
    made.close()


def said(caplog: pytest.LogCaptureFixture, logger: str = "swell.api.security") -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == logger]


def test_a_refused_request_is_logged_with_its_origin_and_no_line_of_its_own(fresh, caplog):
    fresh.ask("GET", "/jobs/a%0AINFO%20all%20is%20well", token="forged")
    [line] = said(caplog)
    assert line.startswith("refused 127.0.0.1:")
    assert r"GET '/api/v1/jobs/a\nINFO all is well': the token is not this server's" in line
    assert "\n" not in line


NOT_A_JOBS = "the token is not one of this server's jobs, or has expired; send $SWELL_TOKEN as it is"


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (make_token("another secret", AttemptId(1, 1), FOREVER), NOT_A_JOBS),
        (make_token(JOB_SECRET, AttemptId(1, 1), 1.0), NOT_A_JOBS),
        (make_token(JOB_SECRET, AttemptId(2, 1), FOREVER), "this token is only for attempt 2.1"),
    ],
    ids=["forged", "expired", "another job's"],
)
def test_a_jobs_token_that_is_not_good_there_is_written_down_and_the_token_is_not(fresh, caplog, token, why):
    assert fresh.ask("POST", "/attempts/1.1/report", {}, token=token).status in (401, 403)
    [line] = said(caplog)
    assert line.startswith("refused 127.0.0.1:")
    assert line.endswith(f": POST '/api/v1/attempts/1.1/report': {why}")
    assert token not in line


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/d/ADDRESS/get_all_jobs"])
@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({"Host": "evil.example"}, "this server does not answer to the Host 'evil.example'; use one of: "),
        ({"Origin": "http://evil.example"}, "requests from pages of 'http://evil.example' are refused; "),
    ],
)
def test_another_host_or_site_is_written_down_without_the_token_that_an_address_is(fresh, caplog, headers, why, path):
    address = of_user(fresh, "genai").address.rpartition("/")[2]
    asked = path.replace("ADDRESS", address)
    rest = {name: value for name, value in headers.items() if name != "Host"}
    assert fresh.ask("GET", asked, prefix="", host=headers.get("Host"), headers=rest).status == 403
    [line] = said(caplog)
    assert f": GET '{path.replace('ADDRESS', '…')}': {why}" in line


@pytest.mark.parametrize(
    "asked",
    [
        "/jobs/..%2f..%2fetc%2fpasswd/logs",
        "/jobs/..%252f..%252fetc/logs",
        "/jobs/..",
        "/jobs/victim%00",
        "/jobs/victim/logs?rank=../../token",
        "/jobs/victim/logs?rank=%2e%2e%5ctoken",
    ],
)
def test_a_path_that_climbs_is_written_down_although_its_sender_may_ask(fresh, caplog, asked):
    fresh.submit("victim")
    status = fresh.ask("GET", asked).status
    [line] = said(caplog)
    assert status in (404, 422)
    assert line.startswith("refused 127.0.0.1:")
    assert line.endswith(f": it climbs; answered {status}")


@pytest.mark.parametrize("asked", ["/jobs/a..b", "/jobs/...", "/jobs?user=a", "/jobs/nobody"])
def test_a_mistake_is_not_written_down(fresh, caplog, asked):
    fresh.ask("GET", asked)
    assert said(caplog) == []


@pytest.mark.parametrize(
    ("asked", "headers", "why"),
    [
        ("/freegpu", {"Host": "evil.example"}, "Host 'evil.example', Origin None: this port answers to"),
        ("/freegpu", {"Origin": "http://evil.example"}, "Origin 'http://evil.example': this port answers to"),
        ("/get_job/..%2f..%2ftoken", {}, "GET '/get_job/../../token': it climbs; answered 404"),
    ],
)
def test_what_an_opened_port_refuses_is_written_down(fresh, caplog, asked, headers, why):
    opened = fresh.ask("POST", "/doors", {"name": "genai", "port": 0}).json["url"]
    assert Foreign(opened, tuple(headers.items())).raw("GET", asked)[0] in (403, 404)
    [line] = said(caplog, "swell.api.doors.entrance")
    assert line.startswith("refused 127.0.0.1: ")
    assert why in line


def test_what_is_quoted_of_a_request_is_bounded(fresh, caplog):
    fresh.ask("GET", "/jobs", host="x" * 50_000)
    [line] = said(caplog)
    assert len(line) < LINE_MAX + 100
