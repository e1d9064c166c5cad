"""Who is told when, and what if it does not work? A slow notice delays nobody else's."""

from __future__ import annotations

import email.policy
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from notifications.test_post import Ear
from specs import spec
from swell.config import parse_config
from swell.errors import NotFound
from swell.machine.state_folder import StateFolder
from swell.model.job import JobState, Notify
from swell.model.reason import Code
from swell.notifications import Notices, Programs, notices, rules_for
from swell.store import JobRecord

PATIENCE_S = 20.0
Event = tuple[int, str, Mapping[str, object], bool]


def job(number: int, *to: str, owner: str = "ann", ended_at: float = 1.0, **changes: Any) -> JobRecord:
    given = spec(notify=Notify(to))
    made = JobRecord(
        id=number,
        version=1,
        name="resnet",
        owner=owner,
        state=JobState.FAILED,
        reason_code=Code.TASK_FAILED,
        reason_evidence={},
        priority=0,
        spec_text=json.dumps(given.to_document()),
        environment="",
        submitted_at=0.0,
        started_at=0.5,
        ended_at=ended_at,
        exit_code=4,
        cancel_requested_by=None,
        cancel_grace_s=None,
        attempts=1,
        width=1,
        width_min=1,
        width_max=1,
        tasks_total=1,
        tasks_running=0,
        tasks_succeeded=0,
        tasks_failed=1,
        nodes=(),
    )
    return replace(made, **changes)


class Desk:
    """The store's and the controller's part, in a test's hands."""

    def __init__(self, folder: Path, kind: str = "private", **settings: object) -> None:
        self.jobs: dict[int, JobRecord] = {}
        self.events: list[Event] = []
        self._came = threading.Condition()
        rules = rules_for(parse_config({"notices": settings}).notices, on_box=False, on_cluster=kind == "cluster")
        programs = Programs(StateFolder(folder / "state"), "a-store", limit_s=1000) if kind != "cluster" else None
        self.notices = Notices(rules, programs, self.read, self.told)

    def read(self, number: int) -> JobRecord:
        if number not in self.jobs:
            raise NotFound("deleted")
        return self.jobs[number]

    def told(self, number: int, kind: str, detail: Mapping[str, object], is_last: bool) -> None:
        with self._came:
            self.events.append((number, kind, detail, is_last))
            self._came.notify_all()

    def tell(self, one: JobRecord) -> None:
        self.jobs[one.id] = one
        self.notices.tell(one)

    def until(self, holds: Callable[[], bool]) -> None:
        with self._came:
            assert self._came.wait_for(holds, PATIENCE_S), self.events


@pytest.fixture
def desk(tmp_path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.notices.close()


@pytest.fixture(autouse=True)
def _soon(monkeypatch) -> None:
    monkeypatch.setattr(notices, "PAUSE_S", 0.01)


def test_what_went_well_is_an_event(desk, tmp_path):
    desk.tell(job(12, "sh", "-c", f"echo $SWELL_JOB_ID $SWELL_JOB_STATE $SWELL_REASON > {tmp_path}/told"))
    desk.until(lambda: bool(desk.events))
    assert desk.events == [(12, "NoticeSent", {"to": "sh", "tries": 1}, True)]
    assert (tmp_path / "told").read_text() == "12 failed TaskFailed\n"


def test_what_fails_is_tried_a_few_times_and_then_an_event_says_why(desk, tmp_path):
    desk.tell(job(12, "sh", "-c", f"echo again >> {tmp_path}/tries; echo 'no route' >&2; exit 4"))
    desk.until(lambda: bool(desk.events))
    assert desk.events == [(12, "NoticeFailed", {"to": "sh", "problem": "exit code 4: no route", "tries": 3}, True)]
    assert (tmp_path / "tries").read_text() == "again\n" * 3


def test_an_address_gets_our_facts_and_the_text_that_a_chat_shows(desk):
    ear = Ear()
    desk.tell(job(12, f"http://127.0.0.1:{ear.port}/services/secret", name="a<!channel>&"))
    desk.until(lambda: bool(desk.events))
    ear.close()
    [(_, path, body)] = ear.got
    assert (path, body) == (
        "/services/secret",
        {
            "job": 12,
            "name": "a<!channel>&",
            "user": "ann",
            "state": "failed",
            "exit_code": 4,
            "reason": "TaskFailed",
            "ended_at": "1970-01-01T00:00:01+00:00",
            "text": "job 12 (a&lt;!channel&gt;&amp;) of ann failed: TaskFailed, exit code 4",
        },
    )
    shown = {"to": f"http://127.0.0.1:{ear.port}", "tries": 1}
    assert desk.events == [(12, "NoticeSent", shown, True)]  # without the path, which is a webhook's password


@pytest.mark.parametrize("to", [("sh", "-c", "touch ran"), ("mailto:ann@example.org",), ("https://example.org/",)])
def test_a_job_that_was_stored_before_its_server_refused_it_gets_an_event_instead(tmp_path, to):
    desk = Desk(tmp_path, "cluster")
    desk.tell(job(12, *to))
    desk.until(lambda: bool(desk.events))
    [(number, kind, detail, is_last)] = desk.events
    assert (number, kind, is_last) == (12, "NoticeRefused", True)
    assert "The operator has allowed no addresses yet" in str(detail["problem"])


def test_on_kubernetes_what_the_operator_lists_is_sent_to(tmp_path):
    ear = Ear()
    desk = Desk(tmp_path, "cluster", addresses=[f"http://127.0.0.1:{ear.port}/hooks/"])
    desk.tell(job(12, f"http://127.0.0.1:{ear.port}/hooks/one"))
    desk.tell(job(13, f"http://127.0.0.1:{ear.port}/other"))
    desk.until(lambda: len(desk.events) == 2)
    ear.close()
    assert [path for _, path, _ in ear.got] == ["/hooks/one"]
    assert {number: kind for number, kind, *_ in desk.events} == {12: "NoticeSent", 13: "NoticeRefused"}


def hang(folder: Path, name: str) -> tuple[str, ...]:
    return ("sh", "-c", f"echo up > {folder}/{name}; sleep 1000")


def test_a_slow_one_delays_neither_another_users_nor_the_same_users_next(desk, tmp_path):
    for number in range(notices.AT_ONCE_PER_USER - 1):
        desk.tell(job(number, *hang(tmp_path, str(number))))
    desk.tell(job(50, "true"))
    desk.tell(job(51, "true", owner="ben"))
    desk.until(lambda: len(desk.events) == 2)
    assert sorted(number for number, *_ in desk.events) == [50, 51]


def test_one_user_has_a_bounded_number_at_once_and_the_next_ones_follow(desk, tmp_path):
    gates = [tmp_path / str(number) for number in range(notices.AT_ONCE_PER_USER)]
    for number, gate in enumerate(gates):
        os.mkfifo(gate)
        desk.tell(job(number, "sh", "-c", f"read line < {gate}"))
    for number in range(100, 110):
        desk.tell(job(number, "true"))
    desk.tell(job(51, "true", owner="ben"))
    desk.until(lambda: bool(desk.events))
    assert [number for number, *_ in desk.events] == [51]
    gates[0].write_text("go\n")
    desk.until(lambda: len(desk.events) == 12)
    assert [number for number, *_ in desk.events] == [51, 0, *range(100, 110)]


def test_the_same_end_is_told_once_however_often_it_is_said(desk, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    one = job(12, "sh", "-c", f"echo told >> {tmp_path}/told; read line < {gate}")
    for _ in range(5):
        desk.tell(one)
    gate.write_text("go\n")
    desk.until(lambda: bool(desk.events))
    desk.tell(job(13, "true"))
    desk.until(lambda: len(desk.events) == 2)
    assert (tmp_path / "told").read_text() == "told\n"


def test_a_job_that_ends_again_while_it_is_told_stays_due_until_that_is_told_too(desk, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"  # one gate would be opened by whichever is quicker
    for gate in (first, second):
        os.mkfifo(gate)
    desk.tell(job(12, "sh", "-c", f"read line < {first}", ended_at=1.0))
    descriptor = os.open(first, os.O_WRONLY)  # returns when the first one waits there
    desk.tell(job(12, "sh", "-c", f"read line < {second}", ended_at=2.0))
    os.write(descriptor, b"go\n")
    os.close(descriptor)
    desk.until(lambda: bool(desk.events))
    second.write_text("go\n")
    desk.until(lambda: len(desk.events) == 2)
    assert [is_last for *_, is_last in desk.events] == [False, True]


@pytest.mark.parametrize("state", [JobState.QUEUED, JobState.RUNNING])
def test_a_job_that_runs_again_is_told_of_at_its_next_end(desk, state):
    again = job(12, "true", state=state)
    desk.tell(again)
    desk.tell(job(13, "true"))
    desk.until(lambda: bool(desk.events))
    desk.tell(job(12, "true", ended_at=9.0))
    desk.until(lambda: len(desk.events) == 2)
    assert [number for number, *_ in desk.events] == [13, 12]


def test_of_a_job_that_was_deleted_nobody_is_told(desk):
    desk.notices.tell(job(12, "true"))
    desk.tell(job(13, "true"))
    desk.until(lambda: bool(desk.events))
    assert [number for number, *_ in desk.events] == [13]


def test_closing_takes_no_longer_than_killing_and_leaves_what_was_not_told_due(desk, tmp_path):
    pids = [tmp_path / str(number) for number in range(3)]
    for number, pid in enumerate(pids):
        os.mkfifo(pid)
        desk.tell(job(number, "sh", "-c", f"trap '' TERM; echo $$ > {pid}; sleep 1000", owner=f"user-{number}"))
    running = [int(pid.read_text()) for pid in pids]
    before = time.monotonic()
    desk.notices.close()
    assert (desk.events, time.monotonic() - before < notices.CLOSE_S_MAX) == ([], True)
    for pid in running:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_mail_goes_through_the_machines_sendmail(desk, tmp_path, monkeypatch):
    """A stand-in at the outermost seam: what is on PATH."""
    sendmail(tmp_path, monkeypatch)
    desk.tell(job(12, "mailto:ann@example.org", name="tüftler"))
    desk.until(lambda: bool(desk.events))
    assert desk.events == [(12, "NoticeSent", {"to": "mailto:ann@example.org", "tries": 1}, True)]
    words, _, text = (tmp_path / "mail").read_text().partition("\n")
    read = email.message_from_string(text, policy=email.policy.default)
    line = "job 12 (tüftler) of ann failed: TaskFailed, exit code 4"
    assert words == "-i -odi ann@example.org"
    assert {name: read[name] for name in ("To", "Subject", "Auto-Submitted", "From", "Bcc")} == {
        "To": "ann@example.org",
        "Subject": f"[swell] {line}",
        "Auto-Submitted": "auto-generated",
        "From": None,  # that is for sendmail to say: whoever runs it
        "Bcc": None,
    }
    assert read.get_content().splitlines() == [
        line,
        "",
        "job: 12",
        "name: tüftler",
        "user: ann",
        "state: failed",
        "exit_code: 4",
        "reason: TaskFailed",
        "ended_at: 1970-01-01T00:00:01+00:00",
        "",
        "swell show 12",
        "swell logs 12",
    ]


def test_a_name_brings_no_header_of_its_own(desk, tmp_path, monkeypatch):
    sendmail(tmp_path, monkeypatch)
    desk.tell(job(12, "mailto:ann@example.org", name="x\r\nBcc: ben@example.org\r\n\r\nbody"))
    desk.until(lambda: bool(desk.events))
    head = (tmp_path / "mail").read_text().partition("\n\n")[0]
    assert [line for line in head.splitlines() if line.lower().startswith("bcc")] == []


def test_a_mail_that_is_not_taken_is_said(desk, tmp_path, monkeypatch):
    sendmail(tmp_path, monkeypatch, "echo 'user unknown' >&2; exit 67")
    desk.tell(job(12, "mailto:nobody"))
    desk.until(lambda: bool(desk.events))
    problem = {"to": "mailto:nobody", "problem": "exit code 67: user unknown", "tries": 3}
    assert desk.events == [(12, "NoticeFailed", problem, True)]


def sendmail(folder: Path, monkeypatch: pytest.MonkeyPatch, then: str = "exit 0") -> None:
    program = folder / "bin" / "sendmail"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" > {folder}/mail; cat >> {folder}/mail; {then}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
