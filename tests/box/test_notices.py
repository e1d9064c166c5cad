"""Notices of a box server: as their user, in a control group of their own, and nobody waits for them."""

from __future__ import annotations

import os
import re
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from box.machine import SYSTEM_PYTHON, Machine, Person, wait_for
from server import wait_for_end
from swell.notifications.programs import LIMITS

pytestmark = pytest.mark.slow

DOWN_S_MAX = 10.0


@pytest.fixture(scope="module")
def mailbox() -> Iterator[Path]:
    """Where a stand-in for sendmail, first on the server's PATH, leaves what it was given; pytest's own is private."""
    with tempfile.TemporaryDirectory(prefix="swell-mail-") as made:
        folder = Path(made)
        (folder / "box").mkdir()
        program = folder / "bin" / "sendmail"
        program.parent.mkdir()
        left = f"{folder}/box/$(id -un)"
        says = f'(id -un; cat /proc/self/cgroup; echo "$@"; cat) > {left}.part && mv {left}.part {left}'
        program.write_text(f"#!/bin/sh\n{says}\n")
        for one in (folder, program.parent, program):
            one.chmod(0o755)
        (folder / "box").chmod(0o1777)
        yield folder


@pytest.fixture(scope="module")
def box(mailbox) -> Iterator[Machine]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{mailbox}/bin:{os.environ['PATH']}")
        with Machine() as machine:
            yield machine


def notices(person: Person, job: int, count: int = 1) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    def is_there() -> bool:
        events = person.swell("events", str(job), "-o", "json").json
        found[:] = [{"kind": one["kind"], **one["detail"]} for one in events if one["kind"].startswith("Notice")]
        return len(found) >= count

    wait_for(is_there, f"the notice of job {job}")
    return found


def script(person: Person, name: str, text: str) -> str:
    program = person.home / name
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return str(program)


def number(path: Path) -> int:
    wait_for(lambda: path.exists() and path.read_text().strip().isdigit(), f"{path}")
    return int(path.read_text())


def test_a_notice_reads_the_jobs_own_log_through_the_box(box):
    ben = box.people[1]
    swell = f"PYTHONPATH={box.client_folder} {SYSTEM_PYTHON} -c 'from swell.cli import main; main()'"
    told = script(ben, "told", f"{swell} logs $SWELL_JOB_ID > $HOME/log 2>&1; echo $SWELL_JOB_STATE >> $HOME/log")
    job = ben.start("--notify", told, "--", "sh", "-c", "echo what the job said; exit 3")
    assert notices(ben, job) == [{"kind": "NoticeSent", "to": told, "tries": 1}]
    assert (ben.home / "log").read_text() == "what the job said\nfailed\n"


def test_it_runs_in_a_control_group_of_its_own_which_is_gone_afterwards(box):
    ben = box.people[1]
    job = ben.start("--notify", script(ben, "where", "cat /proc/self/cgroup > $HOME/groups"), "--", "true")
    notices(ben, job)
    own = re.findall(r"\S*(/swell-notices-\S+/notice-\S+)", (ben.home / "groups").read_text())
    assert {name.rpartition("/")[2].startswith(f"notice-{job}-") for name in own} == {True}
    bases = [Path(line) for line in (box.state.root / "notices.cgroup").read_text().splitlines()]
    assert {base.name for base in bases} == {own[0].split("/")[1]}
    assert [group for base in bases for group in base.glob("notice-*")] == []


FORKS = """
import os, time
count = 0
try:
    while count < 600:
        if os.fork() == 0:
            time.sleep(1000)
        count += 1
except OSError:
    pass
open("{told}.part", "w").write(str(count))
os.rename("{told}.part", "{told}")
"""


def test_it_may_have_so_many_processes_and_no_more(box):
    """Its control group had no limits: a notice forked 2,292 processes. A task's has had them all along."""
    ben = box.people[1]
    told = ben.home / "forked"
    (ben.home / "forks.py").write_text(FORKS.format(told=told))
    ben.start("--notify", script(ben, "forks", f"exec {SYSTEM_PYTHON} {ben.home}/forks.py"), "--", "true")
    assert LIMITS.processes // 2 < number(told) < LIMITS.processes
    wait_for(lambda: box.processes_of(ben) == [], "the end of what it forked")


HIDES = """\
env -i setsid sh -c 'echo $$ > {folder}/hidden; exec sleep 1000' > /dev/null 2>&1 < /dev/null &
until [ -s {folder}/hidden ]; do sleep 0.05; done
"""


def test_what_it_hides_in_the_background_ends_with_it(box):
    ben = box.people[1]
    job = ben.start("--notify", script(ben, "hides", HIDES.format(folder=ben.home)), "--", "true")
    notices(ben, job)
    wait_for_end(number(ben.home / "hidden"))


def test_a_mail_is_sent_as_the_user_in_a_control_group_of_its_own(box, mailbox):
    ben = box.people[1]
    job = ben.start("--name", "train", "--notify", "mailto:ann@example.org", "--", "true")
    assert notices(ben, job) == [{"kind": "NoticeSent", "to": "mailto:ann@example.org", "tries": 1}]
    who, *groups, words, to, subject = (mailbox / "box" / ben.name).read_text().partition("\nAuto-")[0].splitlines()
    assert (who, words, to) == (ben.name, "-i -odi ann@example.org", "To: ann@example.org")
    assert subject == f"Subject: [swell] job {job} (train) of {ben.name} succeeded"
    assert any(f"notice-{job}-" in line for line in groups)


@pytest.mark.parametrize("address", ["http://127.0.0.1:1/", "http://169.254.169.254/", "http://localhost:1/"])
def test_root_does_not_lend_its_place_in_the_network(box, address):
    """A number is refused at once; a name when it was resolved, and the job's event says so."""
    ben = box.people[1]
    done = ben.swell("run", "-d", "--notify", address, "--", "true")
    if "localhost" not in address:
        assert (done.code, "this server sends no notices to such networks" in done.stderr) == (125, True), done
        return
    [event] = notices(ben, done.id)
    assert (event["kind"], event["to"]) == ("NoticeRefused", "http://localhost:1")
    assert "this server sends no notices to such networks" in event["problem"]


STAYS = {
    "sleeps": "echo $$ > {folder}/{name}.new; mv {folder}/{name}.new {folder}/{name}; exec sleep 1000",
    "ignores SIGTERM": "trap '' TERM HUP INT; echo $$ > {folder}/{name}; while :; do sleep 1; done",
    "a daemon": "env -i setsid sh -c 'echo $$ > {folder}/{name}; exec sleep 1000' & wait",
}


def test_sigterm_ends_a_box_server_in_seconds_and_nobody_was_kept_waiting(box):
    """Three users' worth of notices that never end; what was not told is told after the restart."""
    ben, anna = box.people[1], box.people[0]
    jobs = {}
    for how, text in STAYS.items():
        name = how.replace(" ", "-")
        told = script(ben, f"stays-{name}", text.format(folder=ben.home, name=name))
        jobs[name] = ben.start("--notify", told, "--", "true")
    pids = {name: number(ben.home / name) for name in jobs}
    quick, other = ben.start("--notify", "true", "--", "true"), anna.start("--notify", "true", "--", "true")
    sent = [{"kind": "NoticeSent", "to": "true", "tries": 1}]
    assert (notices(ben, quick), notices(anna, other)) == (sent, sent)
    for name in jobs:
        (ben.home / name).unlink()
    before = time.monotonic()
    box.down()
    took_s = time.monotonic() - before
    assert took_s < DOWN_S_MAX, took_s
    for pid in pids.values():
        wait_for_end(pid)
    box.up()
    again = {name: number(ben.home / name) for name in jobs}
    assert set(again.values()) & set(pids.values()) == set()
    box.down()
    for pid in again.values():
        wait_for_end(pid)
    for name, job in jobs.items():
        script(ben, f"stays-{name}", "exit 0")
        jobs[name] = job
    box.up()
    for name, job in jobs.items():
        assert notices(ben, job) == [{"kind": "NoticeSent", "to": str(ben.home / f"stays-{name}"), "tries": 1}]


def test_what_a_killed_server_left_running_is_ended_by_the_next(box):
    ben = box.people[1]
    (ben.home / "left").unlink(missing_ok=True)
    told = script(ben, "stays-left", f"env -i setsid sh -c 'echo $$ > {ben.home}/left; exec sleep 1000' & wait")
    job = ben.start("--notify", told, "--", "true")
    pid = number(ben.home / "left")
    (ben.home / "left").unlink()
    box.down(signal.SIGKILL)
    script(ben, "stays-left", "exit 0")
    box.up()
    wait_for_end(pid)
    assert notices(ben, job) == [{"kind": "NoticeSent", "to": told, "tries": 1}]
