"""The record outside the store: who changed what, what administrators read of others, what was refused."""

from __future__ import annotations

import json
import logging
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.people import ADMIN, OTHER, OWNER, ask, name_of, submit
from api.service import USER, WAIT_S, Service
from swell.api.audit import LINES_PER_ORIGIN, Audit, FileSink, RefusalLog, open_audit
from swell.api.box import Box
from swell.config import AuditSettings, parse_config
from swell.errors import Rejected


class Record:
    """A box server whose audit goes to a file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "audit.jsonl"
        self.folder = folder
        self.open()

    def open(self) -> None:
        self.audit = open_audit(AuditSettings(file=str(self.path)), self.folder / "told.json")
        people = Box("swell-admin", runtime_folder=lambda _: Path("/run/swell-test"))
        self.service = Service(self.folder / "state", box=people, audit=self.audit)
        self.audit.start(self.service.store)

    def close(self) -> None:
        self.audit.close()
        self.service.close()

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []

    def until(self, kind: str, **fields: Any) -> dict[str, Any]:
        """The first line of that kind that says so."""
        end = time.monotonic() + WAIT_S
        while True:
            for line in self.lines():
                if line["kind"] == kind and fields.items() <= {**line, **line["detail"]}.items():
                    return line
            assert time.monotonic() < end, f"no {kind} with {fields} in {self.lines()}"
            time.sleep(0.01)


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Record]:
    made = Record(tmp_path)
    yield made
    made.close()


def test_every_change_that_a_person_makes_is_a_line_with_who_and_from_where(record):
    job = submit(record.service, OWNER, "mine")
    assert ask(record.service, OWNER, "POST", f"/jobs/{job}/hold", {}).status == 200
    held = record.until("HoldRequested", job=job)
    assert held.keys() == {"at", "id", "kind", "actor", "origin", "job", "detail"}
    assert (held["actor"], held["origin"]) == (name_of(OWNER), f"pid 4711 uid {OWNER}")
    assert record.until("Submitted", job=job)["id"] < held["id"]
    assert stat.S_IMODE(record.path.stat().st_mode) == 0o600


def test_what_an_administrator_reads_of_others_is_a_line_and_what_is_ones_own_is_none(record):
    mine, theirs = submit(record.service, ADMIN, "roots"), submit(record.service, OWNER, "theirs")
    asked = (
        f"/jobs/{theirs}",
        f"/jobs/{theirs}/logs",
        f"/jobs/{theirs}/logs?offset=0",
        f"/jobs/{mine}",
        "/jobs",
        "/usage",
        f"/events?job={theirs}",
        "/events",
        "/usage?all_users=true",
        f"/jobs?user={name_of(OWNER)}",
        "/nodes",
    )
    for path in asked:
        assert ask(record.service, ADMIN, "GET", path).status == 200, path
    assert ask(record.service, OWNER, "GET", f"/jobs/{theirs}").status == 200
    assert ask(record.service, OTHER, "GET", f"/jobs/{theirs}").status == 404
    owner = repr(name_of(OWNER))
    expected = [
        f"show of job {theirs} of {owner}",
        f"logs of job {theirs} of {owner}",
        f"events of job {theirs} of {owner}",
        "events of all users",
        "usage of all users",
        f"jobs of {owner}",
    ]
    record.until("Read", what=expected[-1])
    reads = [line for line in record.lines() if line["kind"] == "Read"]
    assert [line["detail"]["what"] for line in reads] == expected
    assert {(line["actor"], line["origin"]) for line in reads} == {("root", "pid 4711 uid 0")}


@pytest.mark.parametrize(
    ("asked", "what"),
    [
        ("/events?job={mine}&job={theirs}", "events of job {theirs} of {owner}"),
        ("/events?job={theirs}&job=", "events of all users"),
        ("/jobs?all_users=yes", "jobs of all users"),
        ("/jobs?all_users=on", "jobs of all users"),
        ("/jobs?all_users=True&lines=1", "jobs of all users"),
        ("/jobs?all_users=false&all_users=true", "jobs of all users"),
        ("/jobs?user=root&user={name}", "jobs of {owner}"),
        ("/usage?all_users=t", "usage of all users"),
        ("/history?all_users=1", "history of all users"),
        ("/usage?user=root&user={name}", "usage of {owner}"),
        ("/tokens?all_users=y", "tokens of all users"),
        ("/doors/addresses?all_users=Yes", "addresses of all users"),
        ("/jobs/{theirs}/show", "show of job {theirs} of {owner}"),
    ],
)
def test_however_it_is_asked_for_what_others_own_is_noted(record, asked, what):
    """The record read the first value of a repeated parameter, and the endpoint the last; and it knew only `true`."""
    mine, theirs = submit(record.service, ADMIN, "roots"), submit(record.service, OWNER, "theirs")
    words = {"mine": mine, "theirs": theirs, "name": name_of(OWNER), "owner": repr(name_of(OWNER))}
    assert ask(record.service, ADMIN, "GET", asked.format(**words)).status == 200
    record.until("Read", what=what.format(**words))


@pytest.mark.parametrize(
    "asked",
    ["/jobs?all_users=true&all_users=no", "/jobs?user={name}&user=root", "/events?job={theirs}&job={mine}", "/usage"],
)
def test_and_what_is_ones_own_is_not(record, asked):
    mine, theirs = submit(record.service, ADMIN, "roots"), submit(record.service, OWNER, "theirs")
    words = {"mine": mine, "theirs": theirs, "name": name_of(OWNER)}
    assert ask(record.service, ADMIN, "GET", asked.format(**words)).status == 200
    assert ask(record.service, ADMIN, "GET", "/events").status == 200
    record.until("Read", what="events of all users")
    assert [line["detail"]["what"] for line in record.lines() if line["kind"] == "Read"] == ["events of all users"]


def test_refusals_are_lines_bounded_in_number_and_without_tokens(record):
    secret = "swt.0123456789." + "s" * 43
    for _ in range(LINES_PER_ORIGIN * 3):
        assert ask(record.service, OTHER, "POST", "/server/stop").status == 403
    assert record.service.ask("GET", "/jobs", token=secret).status == 401
    assert record.service.ask("GET", f"/d/{secret}/freegpu", token=None, prefix="").status == 404
    assert record.service.ask("GET", f"/d/{secret}/freegpu", token=None, prefix="", host="evil.example").status == 403
    record.until("Refused", what=f"{name_of(OTHER)!r} may not POST '/api/v1/server/stop'")
    record.until("Refused", what="1 requests under addresses that are no good")
    refused = [line for line in record.lines() if line["kind"] == "Refused"]
    assert LINES_PER_ORIGIN <= len(refused) <= LINES_PER_ORIGIN + 4
    assert "sss" not in record.path.read_text()
    assert USER not in record.path.read_text()


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/jobs/{job}", None),
        ("GET", "/jobs/{job}/show", None),
        ("GET", "/jobs/{job}/logs", None),
        ("GET", "/jobs/{job}/exec", None),
        ("GET", "/events?job={job}", None),
        ("GET", "/events/stream?job={job}", None),
        ("POST", "/jobs/{job}/cancel", {}),
        ("POST", "/jobs/{job}/hold", {}),
        ("POST", "/jobs/cancel", {"jobs": ["{job}"]}),
        ("DELETE", "/jobs/{job}", None),
    ],
)
def test_who_asks_for_a_job_of_somebody_elses_is_written_down(record, method, path, body):
    """They are told that there is no such job, which left no line: only what was answered with 403 did."""
    job = submit(record.service, OWNER, "theirs")

    def ask_for(number: int) -> None:
        sent = {"jobs": [str(number)]} if body and "jobs" in body else body
        assert ask(record.service, OTHER, method, path.format(job=number), sent).status == 404

    ask_for(job)
    bare = path.format(job=job).partition("?")[0]
    said = f"{name_of(OTHER)!r} may not {method} '/api/v1{bare}': job {job} is of {name_of(OWNER)!r}"
    assert record.until("Refused", what=said)["actor"] == name_of(OTHER)
    ask_for(987654)
    assert ask(record.service, OTHER, "POST", "/server/stop").status == 403
    stop = f"{name_of(OTHER)!r} may not POST '/api/v1/server/stop'"
    assert record.until("Refused", what=stop)["actor"] == name_of(OTHER)
    assert [line["detail"]["what"] for line in record.lines() if line["kind"] == "Refused"] == [said, stop]


def test_a_user_has_as_many_lines_as_one_process_has(record):
    """Each command is a process of its own: whoever typed many had all the lines that there are for everybody."""
    lines: list[str] = []
    log = RefusalLog(logging.getLogger("swell.test"), monotonic=lambda: 0.0)
    log.tell = lambda origin, what, actor: lines.append(f"{origin} {what} {actor}")
    for pid in range(LINES_PER_ORIGIN * 3):
        log.note(f"pid {pid} uid 1000", "no", "ann")
    log.note("pid 1 uid 1001", "no", "ben")
    assert (len(lines), lines[-1]) == (LINES_PER_ORIGIN + 1, "pid 1 uid 1001 no ben")


def test_after_a_restart_it_goes_on_where_it_was_and_a_file_that_was_moved_away_is_made_anew(record):
    first = submit(record.service, OWNER, "first")
    record.until("Submitted", job=first)
    record.close()
    before = record.lines()
    record.path.rename(record.path.with_suffix(".1"))
    record.open()
    second = submit(record.service, OWNER, "second")
    record.until("Submitted", job=second)
    assert not {line["id"] for line in before} & {line["id"] for line in record.lines()}


def test_what_could_not_be_written_is_written_when_it_can(record, caplog):
    """As on a full disk: no job waits for it, and no event is lost."""
    record.path.unlink()
    record.path.mkdir()
    job = submit(record.service, OWNER, "meanwhile")
    end = time.monotonic() + WAIT_S
    while "the audit cannot be written: [Errno 21] Is a directory" not in caplog.text:
        assert time.monotonic() < end
        time.sleep(0.01)
    record.path.rmdir()
    submit(record.service, OWNER, "later")
    assert record.until("Submitted", job=job)["actor"] == name_of(OWNER)


def test_syslog_gets_the_same_lines(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as daemon:
        daemon.bind(str(tmp_path / "log"))
        daemon.settimeout(WAIT_S)
        audit = open_audit(AuditSettings(syslog=str(tmp_path / "log")), tmp_path / "told.json")
        service = Service(tmp_path / "state", audit=audit)
        audit.start(service.store)
        try:
            assert service.ask("GET", "/jobs", token="wrong").status == 401
            head, _, body = daemon.recv(65536).partition(b": ")
        finally:
            audit.close()
            service.close()
    assert head.startswith(b"<85>swell[")
    assert json.loads(body)["kind"] == "Refused"


def test_without_the_setting_nothing_is_written_and_a_setting_that_cannot_work_is_refused(tmp_path):
    assert not Audit().is_on
    assert not open_audit(parse_config({}).audit, tmp_path / "told.json").is_on
    settings = parse_config({"audit": {"file": str(tmp_path / "none" / "audit")}}).audit
    with pytest.raises(Rejected, match="cannot be written: No such file or directory; create its folder, or name anot"):
        open_audit(settings, tmp_path / "told.json")
    for bad in ({"file": "relative"}, {"fiel": "/x"}, {"syslog": True}, "x"):
        with pytest.raises(Rejected):
            parse_config({"audit": bad})


def test_a_disk_that_hangs_keeps_nobody_waiting_and_what_was_dropped_is_counted(tmp_path, monkeypatch):
    from swell.api import audit as module

    monkeypatch.setattr(module, "WAITING_MAX", 3)
    audit = Audit([FileSink(tmp_path / "audit")])
    for number in range(10):  # nobody writes yet
        audit.refused("somebody", str(number))
    service = Service(tmp_path / "state")
    audit.start(service.store)
    audit.close()
    service.close()
    lines = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    assert [line["detail"] for line in lines] == [{"what": "0"}, {"what": "1"}, {"what": "2"}, {"lines": 7}]
