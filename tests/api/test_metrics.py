"""What Prometheus gets is what docs/metrics.md promises: every name, type and label, and no more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from api.service import WORKER, Service
from swell.api.probes import Measured
from swell.metrics import Metrics
from swell.model.codec import to_document
from swell.model.pool import PoolOffer, PoolPhase, PoolReport

DOCS = Path(__file__).parents[2] / "docs/metrics.md"
ROW = re.compile(r"^\| `(?P<name>[a-z_]+)` \| (?P<type>\w+) \|(?P<labels>[^|]*)\|", re.MULTILINE)
COUNTED = {"swell_jobs", "swell_waiting_jobs", "swell_gpus", "swell_cpus", "swell_unreadable_objects"} | {
    "swell_pool_workers",
    "swell_pool_missing_workers",
    "process_open_fds",
    "process_max_fds",
}
UNITS = ("_seconds", "_bytes", "_ratio", "_total", "_info")
LABELS = {"state", "reason", "direction", "node", "kind", "user", "result", "method", "route", "status", "version"} | {
    "pool"
}


def documented() -> dict[str, tuple[str, set[str]]]:
    """Name → type and labels."""
    return {
        row["name"]: (row["type"], set(re.findall(r"`(\w+)`", row["labels"]))) for row in ROW.finditer(DOCS.read_text())
    }


def scraped(service: Service) -> dict[str, Metric]:
    answer = service.ask("GET", "/metrics", prefix="")
    assert answer.status == 200, answer.data
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    families = text_string_to_metric_families(answer.data.decode())
    return {family.name + "_total" * (family.type == "counter"): family for family in families}


def labels_of(family: Metric) -> set[str]:
    return {label for sample in family.samples for label in sample.labels} - {"le"}


def value(service: Service, family: str, name: str, **labels: str) -> float:
    return sum(one.value for one in scraped(service)[family].samples if (one.name, one.labels) == (name, labels))


@pytest.fixture
def busy(service: Service) -> Iterator[Service]:
    """Something of everything has happened."""
    job = service.submit(gpus=1)
    service.worker.begin(job)
    service.worker.end(job)
    service.submit(gpus=99)
    service.ask("POST", "/attempts/1.1/report", {}, token=None)
    pool = PoolReport("lab", "slurm", "k" * 32, PoolOffer(1000, 1024), 0, 4)
    assert service.ask("POST", "/pools/sync", to_document(pool)).status == 200
    yield service
    service.ask("POST", "/pools/sync", to_document(replace(pool, phase=PoolPhase.STOPPED)))


def test_every_metric_is_documented_with_its_type_and_labels_and_the_other_way_round(busy):
    found = scraped(busy)
    said = documented()
    assert found.keys() == said.keys()
    assert {name: family.type for name, family in found.items()} == {name: kind for name, (kind, _) in said.items()}
    unlike = {
        name: labels_of(family)
        for name, family in found.items()
        if family.samples and labels_of(family) != said[name][1]
    }
    assert unlike == {}


def test_names_have_units_and_every_one_is_explained(busy):
    for name, family in scraped(busy).items():
        assert re.fullmatch(r"(swell|process)_[a-z_]+", name)
        assert name in COUNTED or name.endswith(UNITS), name
        assert len(family.documentation) > 10
        assert labels_of(family) <= LABELS


def test_jobs_and_their_names_add_no_series(service):
    def series() -> int:
        return sum(len(family.samples) for family in scraped(service).values())

    def visit(name: str) -> None:
        job = service.submit(name, cpus=1000)
        for path in (f"/jobs/{name}", f"/jobs/{job}/show", f"/events?job={name}", f"/nowhere/{name}"):
            service.ask("GET", path)
        service.ask("POST", f"/jobs/{job}/cancel")
        service.until(job, "cancelled")

    visit("first")
    series()  # the scrape itself is a route
    before = series()
    for number in range(20):
        visit(f"job-{number}")
    assert series() == before
    assert "job-7" not in service.ask("GET", "/metrics", prefix="").data.decode()


def test_a_request_is_counted_under_its_route_with_how_it_was_answered(service):
    route = {"method": "GET", "route": "/api/v1/jobs/{ref}", "status": "404"}
    before = value(service, "swell_http_requests_total", "swell_http_requests_total", **route)
    service.ask("GET", "/jobs/no-such-job")
    assert value(service, "swell_http_requests_total", "swell_http_requests_total", **route) == before + 1


def test_what_the_guard_refuses_is_counted_without_a_route(service):
    refused = {"method": "POST", "route": "none", "status": "401"}
    requests = value(service, "swell_http_requests_total", "swell_http_requests_total", **refused)
    reports = value(service, "swell_reports_total", "swell_reports_total", result="refused")
    service.ask("POST", "/attempts/1.1/report", {}, token="forged")
    assert value(service, "swell_http_requests_total", "swell_http_requests_total", **refused) == requests + 1
    assert value(service, "swell_reports_total", "swell_reports_total", result="refused") == reports + 1


def test_commits_and_cycles_are_timed(busy):
    for name in ("swell_store_commit_seconds", "swell_cycle_seconds", "swell_plan_seconds"):
        assert value(busy, name, f"{name}_count") > 0
        assert value(busy, name, f"{name}_sum") > 0


def test_metrics_need_the_users_token_and_are_at_one_address(service):
    assert service.ask("GET", "/metrics", prefix="", token=None).status == 401
    assert service.ask("GET", "/metrics", prefix="", token=WORKER).status == 403
    assert service.ask("GET", "/metrics").status == 404
    assert service.ask("POST", "/metrics", prefix="").status == 405
    assert service.ask("GET", "/metrics", prefix="", host="evil.example").status == 403


def test_a_client_that_goes_away_is_counted_as_such():
    """Driven by hand, to the end: the answer never begins."""
    metrics = Metrics()

    async def gone(scope: object, receive: object, send: object) -> None:
        raise ConnectionResetError

    call = Measured(gone, metrics)({"type": "http", "method": "BREW", "path": "/pot"}, None, None)
    with pytest.raises(ConnectionResetError):
        call.send(None)
    labels = {"method": "other", "route": "none", "status": "499"}
    assert metrics.registry.get_sample_value("swell_http_requests_total", labels) == 1.0
