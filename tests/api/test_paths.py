"""No name, rank or address leads out of where it belongs."""

from __future__ import annotations

import itertools

import pytest

from api.service import JOB_SECRET, USER, WORKER, Service
from swell.controller.reporting import make_token
from swell.model.job import AttemptId

SECRETS = ("the-users-token", "the-workers-token", "job-secret", "root:", "SQLite format")
STEPS = ("../", "..%2f", "%2e%2e/", "%2e%2e%2f", "..%252f", "..\\", "%c0%ae%c0%ae/", "....//")
TARGETS = ("token", "swell.db", "etc/passwd", "1.1/0/log")
FOREVER = 4_000_000_000.0


@pytest.fixture(scope="module")
def refs(service: Service) -> list[str]:
    service.submit("victim")
    climbed = [step * depth + target for step, depth, target in itertools.product(STEPS, (1, 4), TARGETS)]
    return [*climbed, "%00", "victim%00", "1%00.1", "victim/..%2fvictim", "%2e", "%2e%2e", "-1", "1.1"]


def test_a_job_named_by_a_path_is_no_job_and_has_no_log(service, refs):
    for ref in refs:
        for rest in ("", "/logs", "/show"):
            answer = service.ask("GET", f"/jobs/{ref}{rest}")
            assert answer.status == 404, (ref, rest, answer.data)
            assert not any(secret.encode() in answer.data for secret in SECRETS)


@pytest.mark.parametrize("query", ["rank", "attempt", "offset", "since"])
def test_a_task_named_by_a_path_is_refused(service, refs, query):
    for ref in refs[:-2]:
        answer = service.ask("GET", f"/jobs/victim/logs?{query}={ref}")
        assert answer.status == 422, (ref, answer.data)


def test_an_environment_named_by_a_path_is_not_found(service, refs):
    assert {service.ask("GET", f"/workers/environments/{ref}", token=WORKER).status for ref in refs} == {404}


def test_a_jobs_token_does_not_climb_to_another_jobs_address(service):
    token = make_token(JOB_SECRET, AttemptId(1, 1), FOREVER)
    for step in ("/../", "%2f..%2f", "/%2e%2e/", "/./../"):
        for path in (f"/attempts/1.1{step}2.1/control", f"/attempts/1.1{step}../jobs", f"/attempts/1.1{step}../server"):
            assert service.ask("GET", path, token=token).status == 404
    for path in (
        "/attempts/2.1/control",
        "/attempts//1.1/control",
        "/attempts/01.1/control",
        "/attempts/1.1%20/control",
    ):
        assert service.ask("GET", path, token=token).status in (403, 404)


def test_an_address_written_otherwise_still_wants_a_token(service):
    for path in ("/../v1/jobs", "/%6aobs", "//jobs", "/jobs/", "/health/../jobs", "/health%2f..%2fjobs", "/health/"):
        assert service.ask("GET", path, token=None).status == 401
        assert service.ask("GET", path, token=USER).status in (200, 404)
