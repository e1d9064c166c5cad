"""Floods and slow senders are refused, bounded and logged, and everybody else is answered all the while."""

from __future__ import annotations

import contextlib
import resource
import select
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest

from box.machine import SYSTEM_PYTHON, Machine
from swell.api.connections import DESCRIPTORS_KEPT, REQUEST_S

pytestmark = pytest.mark.slow

CONNECTIONS = 10_000
DESCRIPTORS = 1024  # what a service usually may have; so many connections at once it can never hold
USER_MAX = (DESCRIPTORS - DESCRIPTORS_KEPT) // 4

#: opens so many connections, keeps them until no more than so many stand, says how many do, and waits to be ended
HOLD_MANY = """
import select, socket, sys, time
made = []
for _ in range(int(sys.argv[2])):
    one = socket.socket(socket.AF_UNIX)
    try:
        one.connect(sys.argv[1])
    except OSError:
        break
    made.append(one)
poll = select.poll()
[poll.register(one, select.POLLIN | select.POLLHUP) for one in made]
until = time.monotonic() + 30
while len(made) - len(poll.poll(0)) > int(sys.argv[3]) and time.monotonic() < until:
    time.sleep(0.1)
print(len(made) - len(poll.poll(0)), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def box() -> Iterator[Machine]:
    with Machine(descriptors=DESCRIPTORS) as machine:
        yield machine


def standing(sockets: list[socket.socket]) -> int:
    poll = select.poll()
    for one in sockets:
        poll.register(one, select.POLLIN | select.POLLHUP | select.POLLERR)
    return len(sockets) - len(poll.poll(0))


def test_ten_thousand_connections_are_bounded_and_everybody_is_answered_meanwhile(box):
    """As many at once as this process may open; the rest one after the other."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    at_once = min(CONNECTIONS, soft - 200)
    opened = 0
    with contextlib.ExitStack() as stack:
        held: list[socket.socket] = []
        while opened < CONNECTIONS:
            with contextlib.suppress(ConnectionResetError, TimeoutError):
                held.append(stack.enter_context(box.connect()))
            opened += 1
            if opened % 2000 == 0:
                assert box.people[0].swell("ps").code == 0
            if len(held) >= at_once:
                for one in held:
                    one.close()
                held.clear()
        began = time.monotonic()
        assert box.people[0].swell("ps").code == 0
        assert time.monotonic() - began < 10
        assert standing(held) <= DESCRIPTORS - DESCRIPTORS_KEPT
    assert "connection closed: too many connections" in box.log()
    assert len(box.log().encode()) < 1_000_000


def test_one_user_cannot_take_every_connection_from_the_others(box):
    anna, ben, _ = box.people
    greedy = subprocess.Popen(
        [SYSTEM_PYTHON, "-c", HOLD_MANY, str(box.socket), str(DESCRIPTORS - 50), str(USER_MAX)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        user=anna.uid,
        group=anna.gid,
        extra_groups=[],
    )
    try:
        assert greedy.stdout is not None
        assert 0 < int(greedy.stdout.readline()) <= USER_MAX
        assert ben.swell("run", "--", "true").code == 0
    finally:
        greedy.communicate()


SLOW = {
    "nothing": b"",
    "half its headers": b"GET /api/v1/health HTTP/1.1\r\nHost: x\r\nX-Slow: ",
    "half its body": b"POST /api/v1/jobs HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
    b"Content-Length: 100\r\n\r\n{",
}


def test_who_sends_too_slowly_is_hung_up_on(box):
    """Nothing at all, half of its headers, or half of its body; a byte a second of the latter two."""
    token = box.state.token.read_bytes().strip()
    host = ":".join(map(str, box.address)).encode()
    with contextlib.ExitStack() as stack:
        slow = {what: [stack.enter_context(box.connect()) for _ in range(30)] for what in SLOW}
        for what, beginning in SLOW.items():
            for one in slow[what]:
                one.sendall(beginning.replace(b"{host}", host).replace(b"{token}", token))
        assert box.people[1].swell("ps").code == 0
        until = time.monotonic() + REQUEST_S + 10
        while left := {what: count for what in slow if (count := standing(slow[what]))}:
            assert time.monotonic() < until, f"these still stand: {left}"
            for one in (*slow["half its headers"], *slow["half its body"]):
                with contextlib.suppress(OSError):
                    one.sendall(b"a")
            time.sleep(1)


def test_headers_without_end_are_cut_off(box):
    with box.connect() as endless, contextlib.suppress(ConnectionError):
        endless.sendall(b"GET / HTTP/1.1\r\n")
        for _ in range(100_000):
            endless.sendall(b"X-More: " + b"a" * 1000 + b"\r\n")
        pytest.fail("a hundred megabytes of headers were read")
    assert box.people[1].swell("ps").code == 0
