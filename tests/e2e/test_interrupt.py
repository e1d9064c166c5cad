"""Ctrl-C: a person at a terminal is asked, a script's job is cancelled."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pexpect
import pytest

from server import SWELL, Server

pytestmark = pytest.mark.slow

QUESTION = r"job (\d+): \[d\]etach \(the job keeps running\), \[c\]ancel it, c\[o\]ntinue watching\? "
PATIENCE_S = 30


@contextmanager
def terminal(server: Server, *words: str, **variables: str) -> Iterator[pexpect.spawn]:
    """The command line on a terminal of its own."""
    child = pexpect.spawn(
        SWELL,
        list(words),
        env=server.environment(TERM="xterm", **variables),
        cwd=str(server.folder),
        timeout=PATIENCE_S,
        encoding="utf-8",
        dimensions=(24, 200),
    )
    try:
        yield child
    finally:
        child.close(force=True)


def watched(child: pexpect.spawn) -> int:
    """The job's id, when its first line is there."""
    child.expect(r"swell: job (\d+) ")
    job = int(child.match[1])
    child.expect("up\r\n")
    return job


def interrupt(child: pexpect.spawn) -> None:
    child.sendintr()
    child.expect(QUESTION)


def test_detach_lets_the_job_go_on_and_says_how_to_see_it_again(server, gate):
    with terminal(server, "run", "--", "sh", "-c", f"echo up; read line < {gate}; echo done") as child:
        job = watched(child)
        interrupt(child)
        child.sendline("d")
        child.expect(f"swell: job {job} keeps running; to see it again, run: swell logs -f {job}\r\n")
        child.expect(pexpect.EOF)
        child.wait()
        assert child.exitstatus == 0
    server.until(job, "running")
    gate.open()
    assert server.until(job, "succeeded")["exit_code"] == 0


def test_cancel_ends_the_job_and_shows_its_last_words(server):
    script = "trap 'echo last words; exit 1' TERM; echo up; sleep 600 & wait"
    with terminal(server, "run", "--", "sh", "-c", script) as child:
        job = watched(child)
        interrupt(child)
        child.sendline("c")
        child.expect(f"swell: cancelling job {job}\r\n")
        child.expect("last words\r\n")
        child.expect(pexpect.EOF)
        child.wait()
        assert child.exitstatus == 130
    assert server.client().job(job).state == "cancelled"


def test_continue_goes_on_watching_and_shows_nothing_twice(server, gate):
    """Every line used to be printed again from the first, twice from then on."""
    with terminal(server, "run", "--", "sh", "-c", f"echo up; read line < {gate}; echo done; exit 3") as child:
        watched(child)
        for answer in ("o", ""):
            interrupt(child)
            child.sendline(answer)
            child.expect("swell: watching job")
        gate.open()
        child.expect(pexpect.EOF)
        child.wait()
        assert child.exitstatus == 3
        assert "up\r\n" not in child.before
        assert child.before.count("done\r\n") == 1


def test_an_answer_nobody_understands_is_asked_again_and_a_second_ctrl_c_detaches(server):
    with terminal(server, "run", "--", "sh", "-c", "echo up; sleep 600") as child:
        job = watched(child)
        interrupt(child)
        child.sendline("what?")
        child.expect(QUESTION)
        child.sendintr()
        child.expect(f"job {job} keeps running")
        child.expect(pexpect.EOF)
        child.wait()
        assert child.exitstatus == 0
    server.until(job, "running")
    server.swell("cancel", str(job), "--wait")


def test_a_job_that_still_waits_can_be_cancelled_in_the_same_way(server):
    with terminal(server, "run", "--wait-for-nodes", "--gpus", "64", "--", "true") as child:
        child.expect(r"swell: job (\d+) waits: ")
        job = int(child.match[1])
        interrupt(child)
        child.sendline("c")
        child.expect(pexpect.EOF)
        child.wait()
        assert child.exitstatus == 130
    assert server.client().job(job).state == "cancelled"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_without_a_terminal_an_interrupt_cancels(server, number):
    process = server.spawn("run", "--", "sh", "-c", "echo up; sleep 600")
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    job = int(re.findall(r"swell: cancelling job (\d+)\n", said.decode())[0])
    assert server.client().job(job).state == "cancelled"


def test_on_a_terminal_states_have_colours_unless_nobody_wants_them(server):
    server.until(server.start("--name", "colourful", "--", "true"), "succeeded")
    with terminal(server, "ps") as child:
        child.expect(pexpect.EOF)
        assert "\x1b[32msucceeded" in child.before
        assert max(len(line) for line in child.before.splitlines()) <= 200 + 2 * len("\x1b[32m")
    with terminal(server, "ps", NO_COLOR="1") as child:
        child.expect(pexpect.EOF)
        assert "\x1b" not in child.before
