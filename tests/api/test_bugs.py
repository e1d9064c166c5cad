"""A mistake of ours, and a client that hangs up, fill no log."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.service import USER, Service
from swell.api.audit import WINDOW_S, Flood
from swell.api.bugs import shelter
from swell.api.wire import NUMBER_MAX


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    made.close()


async def broken(path: str) -> None:
    raise ValueError if path == "/a" else KeyError("b")


def fail(path: str, flood: Flood) -> None:
    asyncio.run(shelter(broken(path), {"method": "GET", "path": path}, flood))


def test_of_one_mistake_a_few_tracebacks_a_minute_are_written_and_the_rest_is_counted(caplog):
    """Each wrote 12 KB twice, and 476 came in five seconds."""
    now: list[float] = [0.0]
    missed: list[int] = []
    flood = Flood(3, 20, missed.append, monotonic=lambda: now[0])
    for _ in range(400):
        fail("/a", flood)
    fail("/b", flood)
    assert [record.getMessage() for record in caplog.records] == ["GET '/a' failed"] * 3 + ["GET '/b' failed"]
    assert all(record.exc_info for record in caplog.records)
    now[0] += WINDOW_S + 1
    fail("/b", flood)
    assert (missed, len(caplog.records)) == ([397], 5)


def test_an_endpoint_that_fails_is_answered_and_written_once(service, caplog, monkeypatch):
    """Starlette hands the exception on after the answer, and uvicorn wrote it a second time."""
    monkeypatch.setattr(service.store, "counts", lambda: 1 / 0)
    for _ in range(9):
        assert service.ask("GET", "/server").error == (
            500,
            "Bug",
            "Swell has a bug here: ZeroDivisionError; server.log has the details",
        )
    failed = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert 1 <= len(failed) <= 3
    assert {record.name for record in failed} == {"swell.api.bugs"}


BODIES = ("/api/v1/jobs", "/api/v1/jobs/cancel", "/deploy", "/submit", "/add_job", "/update_job", "/api/v1/doors")


@pytest.mark.parametrize("path", BODIES)
def test_a_client_that_hangs_up_while_it_sends_leaves_no_traceback(service, caplog, path):
    method = "PUT" if path == "/update_job" else "POST"
    head = f"{method} {path} HTTP/1.1\r\nHost: {service.host}\r\nAuthorization: Bearer {USER}\r\n"
    with socket.create_connection(("127.0.0.1", service.port)) as sender:
        sender.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{".encode())
        sender.shutdown(socket.SHUT_WR)
        while sender.recv(4096):
            pass
    assert service.ask("GET", "/health").status == 200
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_every_whole_number_in_an_address_has_a_largest_value(service):
    """`exec?rank=` with thirty digits was answered with 500: SQLite's numbers have 64 bits."""
    paths = service.ask("GET", "/openapi.json").json["paths"]
    unbounded = [
        f"{method.upper()} {path} {parameter['name']}"
        for path, methods in paths.items()
        for method, operation in methods.items()
        for parameter in operation.get("parameters", ())
        for kind in (parameter["schema"], *parameter["schema"].get("anyOf", ()))
        if kind.get("type") == "integer" and not kind.get("maximum", NUMBER_MAX + 1) <= NUMBER_MAX
    ]
    assert unbounded == []


@pytest.mark.parametrize(
    "path", ["/jobs/1/exec?rank=", "/jobs/1/logs?rank=", "/jobs/1?after=", "/jobs/", "/events?after=", "/doors/"]
)
def test_a_number_of_thirty_digits_is_refused(service, path):
    method = "DELETE" if path == "/doors/" else "GET"
    assert service.ask(method, f"{path}{10**30}").status in (404, 422)


@pytest.mark.parametrize("cpus", ["9e999999", "9e9999999999999999999", "NaN", "-Infinity", "0x1"])
def test_a_number_of_cpus_beyond_all_bounds_is_refused(service, cpus):
    """It was answered with 500: decimal.Overflow."""
    asked = {"manifest": {"apiVersion": "swell/v1", "kind": "Job", "spec": {"command": ["true"], "cpus": cpus}}}
    status, kind, message = service.ask("POST", "/jobs", {**asked, "workdir": "/tmp"}).error
    assert (status, kind) == (422, "Rejected")
    assert "is not a number of CPUs; write 2, 0.5 or 500m" in message
