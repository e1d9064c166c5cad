"""Notices of a real private server: what they see, that they keep nobody waiting, and that none is lost."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from server import SWELL, Server, wait_for_end
from swell.machine.processes import ready

pytestmark = pytest.mark.slow

PATIENCE_S = 30.0
DOWN_S_MAX = 8.0  # 1 to 2 when nothing else happens on the machine; a notice had 30, three times


def notices(server: Server, job: int, count: int = 1) -> list[dict[str, Any]]:
    """Events of its notices, as soon as there are so many."""
    found: list[dict[str, Any]] = []
    for event in server.client().follow_events(job=str(job), after=0):
        if event["kind"].startswith("Notice"):
            found.append({"kind": event["kind"], **event["detail"]})
        if len(found) == count:
            break
    return found


class Number:
    """A process says which it is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        self._descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def read(self) -> int:
        assert ready(PATIENCE_S, self._descriptor), f"nobody wrote to {self.path}"
        return int(os.read(self._descriptor, 100).split()[0])


@pytest.fixture
def number(tmp_path) -> Iterator[Number]:
    return Number(tmp_path / "number")


def test_a_notice_reads_the_jobs_own_log_with_nothing_but_its_number(server, tmp_path):
    """It got the job's state as SWELL_STATE, which names the state folder: every command of ours failed in it."""
    notify = f"sh -c '{SWELL} logs $SWELL_JOB_ID > {tmp_path}/log; echo $SWELL_JOB_STATE >> {tmp_path}/log'"
    job = server.start("--notify", notify, "--", "sh", "-c", "echo what the job said; exit 3")
    assert notices(server, job) == [{"kind": "NoticeSent", "to": "sh", "tries": 1}]
    assert (tmp_path / "log").read_text() == "what the job said\nfailed\n"


def test_how_a_notice_went_is_in_swell_events(server):
    job = server.start("--notify", r"""sh -c 'printf "\033[31mno mail today" >&2; exit 9'""", "--", "true")
    assert notices(server, job) == [
        {"kind": "NoticeFailed", "to": "sh", "problem": "exit code 9: [31mno mail today", "tries": 3}
    ]
    shown = server.swell("events", str(job)).stdout
    assert re.search(r"NoticeFailed +swell +to=sh problem=exit code 9: \[31mno mail today tries=3", shown)


def test_a_private_server_does_not_send_to_a_clouds_own_services(server):
    done = server.swell("run", "-d", "--notify", "http://169.254.169.254/latest/meta-data", "--", "true")
    assert (done.code, "resolves to 169.254.169.254, and this server sends no notices" in done.stderr) == (125, True)


STAYS = {
    "sleeps": "sh -c 'echo $$ > {path}; exec sleep 1000'",
    "ignores SIGTERM": "sh -c 'trap \"\" TERM INT HUP; echo $$ > {path}; while :; do sleep 1; done'",
    "a daemon": "sh -c 'setsid sh -c \"echo \\$\\$ > {path}; exec sleep 1000\" & wait'",
}


@pytest.mark.parametrize("how", STAYS)
def test_down_takes_seconds_with_a_notice_under_way_which_is_told_after_a_restart(own_server, tmp_path, number, how):
    notify = STAYS[how].format(path=number.path)
    job = own_server.start("--notify", notify, "--", "true")
    pid = number.read()
    before = time.monotonic()
    done = own_server.down()
    took_s = time.monotonic() - before
    wait_for_end(pid)
    assert (done.code, took_s < DOWN_S_MAX) == (0, True), took_s
    own_server.up()
    again = number.read()
    assert again != pid
    assert [event for event in own_server.client().events(job=str(job)) if event["kind"].startswith("Notice")] == []
    before = time.monotonic()
    own_server.down()  # ours only: the fixture's own end would wait for it, too
    assert time.monotonic() - before < DOWN_S_MAX
    wait_for_end(again)


def test_a_slow_notice_delays_no_other(server, number, gate):
    slow = server.start("--notify", f"sh -c 'echo $$ > {number.path}; read line < {gate}'", "--", "true")
    number.read()
    job = server.start("--notify", "true", "--", "true")
    assert notices(server, job) == [{"kind": "NoticeSent", "to": "true", "tries": 1}]
    kinds = {event["kind"] for event in server.client().events(job=str(slow))}
    assert kinds & {"NoticeSent", "NoticeFailed"} == set()
    gate.open()
    assert notices(server, slow) == [{"kind": "NoticeSent", "to": "sh", "tries": 1}]


def test_a_mail_leaves_through_the_sendmail_on_the_servers_path(tmp_path):
    """A stand-in at the outermost seam: what is on PATH."""
    program = tmp_path / "bin" / "sendmail"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/mail\ncat >> {tmp_path}/mail\n')
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    with Server(tmp_path, env={"PATH": path}) as server:
        job = server.start("--name", "train", "--notify", "mailto:ann@example.org", "--", "false")
        assert notices(server, job) == [{"kind": "NoticeSent", "to": "mailto:ann@example.org", "tries": 1}]
    said = (tmp_path / "mail").read_text()
    assert said.startswith("-i -odi ann@example.org\nTo: ann@example.org\nSubject: [swell] job 1 (train) of ")


@pytest.mark.skipif(any(Path(folder, "sendmail").exists() for folder in ("/usr/sbin", "/usr/lib")), reason="it has one")
def test_a_mail_is_refused_where_no_sendmail_is(server):
    done = server.swell("run", "-d", "--notify", "mailto:ann@example.org", "--", "true")
    assert (done.code, "this machine has no sendmail" in done.stderr) == (125, True), done
