"""Logs, events, waiting, cancelling, deleting: what is done with jobs that exist."""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path

import pytest

from server import Server
from swell.model.logindex import ENTRY, pack_entry

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def talker(server: Server) -> int:
    """A job that has written ten short lines and ended."""
    job = server.start("--name", "talker", "--", "sh", "-c", "for n in 0 1 2 3 4 5 6 7 8 9; do echo line $n; done")
    server.until(job, "succeeded")
    return job


# -- logs ----------------------------------------------------------------------------------------------------------


def test_logs_are_printed_as_they_were_written(server, talker):
    done = server.swell("logs", str(talker))
    assert (done.code, done.stderr) == (0, "")
    assert done.stdout == "".join(f"line {n}\n" for n in range(10))
    assert server.swell("logs", "talker").stdout == done.stdout


@pytest.mark.parametrize(("lines", "expected"), [("0", []), ("1", [9]), ("3", [7, 8, 9]), ("50", list(range(10)))])
def test_only_the_last_lines_can_be_asked_for(server, talker, lines, expected):
    assert server.swell("logs", "--tail", lines, str(talker)).stdout == "".join(f"line {n}\n" for n in expected)


def test_the_last_lines_are_whole_however_long_they_are(server):
    """With lines of 2,000 letters `--tail 2` began in the middle of one."""
    script = "for n in 0 1 2 3 4; do printf '%s-%02000d\\n' $n 0; done"
    job = server.start("--", "sh", "-c", script)
    server.until(job, "succeeded")
    lines = server.swell("logs", "--tail", "2", str(job)).stdout.splitlines()
    assert [line[:2] for line in lines] == ["3-", "4-"]
    assert {len(line) for line in lines} == {2002}


def test_logs_are_followed_until_the_task_ends(server, gate):
    job = server.start("--", "sh", "-c", f"echo one; echo two; read line < {gate}; echo three")
    server.until_output(job, b"two\n")
    whole = server.spawn("logs", "-f", str(job))
    last = server.spawn("logs", "-f", "--tail", "1", str(job))
    assert whole.stdout is not None
    assert last.stdout is not None
    assert whole.stdout.read(8) == b"one\ntwo\n"
    assert last.stdout.read(4) == b"two\n"
    gate.open()
    for process in (whole, last):
        rest, said = process.communicate(timeout=30)
        assert (process.returncode, rest, said) == (0, b"three\n", b"")


def test_logs_of_a_job_that_has_not_begun_say_so_and_wait_when_followed(server):
    hold = server.start("--gpus", "4", "--", "sleep", "600")
    server.until(hold, "running")
    job = server.start("--name", "later", "--gpus", "1", "--", "echo", "hello")
    done = server.swell("logs", str(job))
    said = f"swell: job {job} (later) has no output yet: it is queued; to see why, run: swell why {job}\n"
    assert (done.code, done.stdout, done.stderr) == (0, "", said)
    follower = server.spawn("logs", "-f", str(job))
    assert follower.stderr is not None
    assert follower.stderr.readline().decode() == said
    server.swell("cancel", str(hold))
    assert follower.communicate(timeout=30)[0] == b"hello\n"
    assert follower.returncode == 0


def test_logs_of_every_rank_and_index_can_be_asked_for(server):
    gang = server.start("--tasks", "2", "--", "sh", "-c", "echo rank $RANK")
    array = server.start("--array", "5,7", "--", "sh", "-c", "echo index $JOB_COMPLETION_INDEX")
    for job in (gang, array):
        server.until(job, "succeeded")
    assert server.swell("logs", "--rank", "1", str(gang)).stdout == "rank 1\n"
    assert server.swell("logs", "--rank", "7", str(array)).stdout == "index 7\n"
    assert server.swell("logs", str(array)).stdout == "index 5\n"
    done = server.swell("logs", "--rank", "2", str(gang))
    assert (done.code, done.stderr) == (2, f"swell: job {gang} has no task 2; its ranks are 0 to 1\n")
    done = server.swell("logs", "--rank", "6", str(array))
    assert (done.code, done.stderr) == (2, f"swell: job {array} has no task 6; its array is 5,7\n")


def test_logs_since_a_time_leave_out_what_is_older(server, gate):
    """Beside a log the worker notes when what was written; here the first note is made an hour older."""
    job = server.start(
        "--name", "since", "--", "sh", "-c", f"echo old; read line < {gate}; echo new; read line < {gate}"
    )
    server.until_output(job, b"old\n")
    notes = server.root / "tasks" / f"{job}.1" / "0" / "index"
    until_it_holds(server, job, notes, 1)
    notes.write_bytes(pack_entry(0, time.time() - 3600))
    gate.open()
    server.until_output(job, b"new\n")
    until_it_holds(server, job, notes, 2)
    gate.open()
    server.until(job, "succeeded")
    assert server.swell("logs", str(job)).stdout == "old\nnew\n"
    assert server.swell("logs", "--since", "30m", str(job)).stdout == "new\n"
    assert server.swell("logs", "--since", "2h", str(job)).stdout == "old\nnew\n"


def until_it_holds(server: Server, job: int, notes: Path, entries: int) -> None:
    """The worker looks at logs about once a second. A long poll for a change that does not come is our wait."""
    for _ in range(40):
        if notes.exists() and notes.stat().st_size >= entries * ENTRY.size:
            return
        server.client().job(job).refresh(wait_s=0.25)
    raise AssertionError(f"{notes} never had {entries} entries")


def test_logs_of_an_attempt_that_never_was_are_not_found(server, talker):
    assert server.swell("logs", "--attempt", "1", str(talker)).stdout.startswith("line 0\n")
    done = server.swell("logs", "--attempt", "9", str(talker))
    assert done.code == 2
    assert done.stderr == f"swell: job {talker} has no attempt 9; it has had 1\n"


# -- events --------------------------------------------------------------------------------------------------------


def test_events_tell_what_happened_to_a_job_and_who_did_it(server):
    job = server.start("--name", "eventful", "--", "sleep", "600")
    server.until(job, "running")
    server.swell("cancel", str(job), "--wait")
    events = server.swell("events", str(job), "-o", "json").json
    assert [event["kind"] for event in events] == [
        "Submitted",
        "Started",
        "Running",
        "CancelRequested",
        "Stopping",
        "Ended",
    ]
    me = events[0]["actor"]
    assert [event["actor"] for event in events] == [me, "swell", "swell", me, "swell", "swell"]
    table = server.swell("events", str(job)).stdout.splitlines()
    assert table[0].split() == ["AT", "JOB", "EVENT", "BY", "DETAIL"]
    assert len(table) == 7


def test_events_are_followed_as_they_happen(server, gate):
    process = server.spawn("events", "-f", "-o", "json")
    assert process.stdout is not None
    job = server.start("--name", "followed", "--", "sh", "-c", f"read line < {gate}")
    kinds: list[str] = []
    for line in process.stdout:
        event = json.loads(line)
        if event["job"] == job:
            kinds.append(event["kind"])
        if kinds[-1:] == ["Running"]:
            gate.open()
        if kinds[-1:] == ["Ended"]:
            break
    assert kinds == ["Submitted", "Started", "Running", "Ended"]
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=10)
    assert (process.returncode, said.strip()) == (130, b"")


def test_following_events_ends_with_a_word_when_the_server_dies(own_server):
    process = own_server.spawn("events", "-f")
    assert process.stdout is not None
    assert process.stdout.readline().split() == [b"AT", b"JOB", b"EVENT", b"BY", b"DETAIL"]
    own_server.start("--wait-for-nodes", "--gpus", "64", "--", "true")
    for line in process.stdout:  # the stream is open when something came through it
        if b"Submitted" in line:
            break
    own_server.kill()
    _, said = process.communicate(timeout=30)
    assert process.returncode == 1
    assert said.decode().startswith(f"swell: the server of {own_server.root} closed the connection; restart it")


# -- wait ----------------------------------------------------------------------------------------------------------


def test_waiting_exits_with_the_jobs_code_and_of_several_the_first_that_is_not_0(server):
    good = server.start("--", "true")
    bad = server.start("--", "sh", "-c", "exit 11")
    assert server.swell("wait", str(good)).code == 0
    assert server.swell("wait", str(good), str(bad), str(good)).code == 11


def test_waiting_gives_up_after_the_time_it_was_given(server):
    job = server.start("--name", "slow", "--", "sleep", "600")
    done = server.swell("wait", "--timeout", "0.5s", str(job))
    assert done.code == 124
    assert re.fullmatch(rf"swell: job {job} \(slow\) is still \w+ after 0.5s\n", done.stderr)
    server.swell("cancel", str(job), "--wait")
    assert server.swell("wait", str(job)).code == 143


# -- cancel and delete ---------------------------------------------------------------------------------------------


def test_a_queued_a_running_and_an_ended_job_are_cancelled_each_in_its_way(server, talker):
    hold = server.start("--name", "hold", "--gpus", "4", "--", "sleep", "600")
    server.until(hold, "running")
    waits = server.start("--name", "in-line", "--gpus", "1", "--", "true")
    done = server.swell("cancel", str(waits))
    assert (done.code, done.stderr) == (0, f"swell: job {waits} (in-line) is cancelled\n")
    done = server.swell("cancel", "--wait", str(hold))
    assert (done.code, done.stderr) == (0, f"swell: job {hold} (hold) is cancelled\n")
    done = server.swell("cancel", str(talker))
    assert (done.code, done.stderr) == (0, f"swell: job {talker} (talker) had already ended: succeeded\n")


def test_a_second_cancel_with_less_grace_is_obeyed(server):
    job = server.start("--", "sh", "-c", "trap '' TERM; echo up; sleep 20 & wait")
    server.until_output(job, b"up")
    server.swell("cancel", str(job), "--grace", "8s")
    server.swell("cancel", str(job), "--grace", "0")
    assert server.until(job, "cancelled", patience_s=3)


def test_several_are_cancelled_only_if_all_of_them_exist(server):
    job = server.start("--", "sleep", "600")
    server.until(job, "running")
    done = server.swell("cancel", str(job), "nobody-of-that-name")
    assert done.code == 2
    assert "there is no job 'nobody-of-that-name'" in done.stderr
    assert server.client().job(job).state == "running"
    server.swell("cancel", str(job), "--wait")


def test_a_running_job_is_not_deleted_and_an_ended_one_is_with_its_logs(server):
    job = server.start("--name", "doomed", "--", "sleep", "600")
    server.until(job, "running")
    done = server.swell("delete", str(job))
    said = f"swell: job {job} (doomed) is running; cancel it first: swell cancel {job}\n"
    assert (done.code, done.stderr) == (2, said)
    server.swell("cancel", str(job), "--wait")
    folder = server.root / "tasks" / f"{job}.1"
    assert folder.exists()
    done = server.swell("delete", "doomed")
    assert (done.code, done.stderr) == (0, f"swell: job {job} (doomed) is deleted\n")
    assert not folder.exists()
    done = server.swell("show", str(job))
    assert (done.code, done.stderr) == (2, f"swell: there is no job {job}; `swell ps -a` lists all\n")


def test_why_says_what_is_true_and_what_to_do(server):
    job = server.start("--name", "too-wide", "--wait-for-nodes", "--gpus", "64", "--", "true")
    server.until_true(job, lambda document: document["reason"]["code"] == "CannotRunHere")
    lines = server.swell("why", "too-wide").stdout.splitlines()
    assert lines[0] == f"job {job} (too-wide) is queued: CannotRunHere"
    assert lines[1].startswith("  it wants 1 CPU, 64 GPUs, but this machine has ")
    assert lines[2].startswith("  next: cancel it and submit it again with --gpus 4 or less")
    assert server.swell("why", "too-wide", "-o", "json").json["code"] == "CannotRunHere"
    server.swell("cancel", str(job))
    good = server.start("--", "true")
    server.until(good, "succeeded")
    assert server.swell("why", str(good)).stdout == f"job {good} (true) succeeded.\n"
