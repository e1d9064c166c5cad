"""Floods are refused, bounded and logged, and everybody else is answered all the while."""

from __future__ import annotations

import contextlib
import resource
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest

from box.machine import SYSTEM_PYTHON, Machine, standing, wait_for
from swell.api.connections import REQUEST_S
from swell.api.crowd import DESCRIPTORS_KEPT

pytestmark = pytest.mark.slow

CONNECTIONS = 10_000
DESCRIPTORS = 1024  # what a service usually may have; so many connections at once it can never hold
USER_MAX = (DESCRIPTORS - DESCRIPTORS_KEPT) // 4
STRANGERS_MAX = (DESCRIPTORS - DESCRIPTORS_KEPT) // 8

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


@pytest.fixture
def door(box) -> Iterator[int]:
    """The port of one that is open."""
    opened = box.client().open_door("genai", 0, user=box.people[0].name)
    yield opened["port"]
    box.client().close_door(opened["port"])


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """For this process, which is root's: the hard limit, too."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = CONNECTIONS + 1000
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(enough, before[0]), max(enough, before[1])))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def connect_all(stack: contextlib.ExitStack, port: int, count: int) -> list[socket.socket]:
    """Those that came through; the others were hung up on at once."""
    made = []
    for _ in range(count):
        with contextlib.suppress(ConnectionResetError, TimeoutError):
            made.append(stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10)))
    return made


def test_ten_thousand_connections_at_once_are_bounded_and_everybody_is_answered_meanwhile(box, many_descriptors):
    with contextlib.ExitStack() as stack:
        held: list[socket.socket] = []
        for _ in range(5):
            held += connect_all(stack, box.address[1], CONNECTIONS // 5)
            assert box.people[0].swell("ps").code == 0
        began = time.monotonic()
        assert box.people[0].swell("ps").code == 0
        assert time.monotonic() - began < 10
        too_many = "the end of those that are too many"
        wait_for(lambda: standing(held) <= STRANGERS_MAX, too_many, within_s=REQUEST_S / 2)  # before idleness ends them
    assert "connection closed: too many connections that have not said who they are" in box.log()
    assert len(box.log().encode()) < 1_000_000


def answered(stack: contextlib.ExitStack, port: int, count: int) -> list[socket.socket]:
    """Connections that got an answer; all of them are kept for the next request."""
    found = []
    for one in connect_all(stack, port, count):
        with contextlib.suppress(ConnectionError):
            one.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            if one.recv(1000).startswith(b"HTTP/1.1 403 "):
                found.append(one)
    return found


def test_a_door_and_the_main_port_together_keep_no_more_strangers_than_one(box, door):
    """Each counted for itself, and two ports took more descriptors than the process has. The newest are kept.

    The server accepts on each port by itself: which connection is newer is certain only after the others were accepted.
    """
    with contextlib.ExitStack() as stack:
        oldest = answered(stack, box.address[1], STRANGERS_MAX // 2)
        assert len(oldest) == STRANGERS_MAX // 2
        held = connect_all(stack, box.address[1], STRANGERS_MAX)
        wait_for(lambda: standing(oldest) == 0, "the end of those that the next ones took the place of")
        held += connect_all(stack, door, STRANGERS_MAX)
        wait_for(lambda: standing(held) <= STRANGERS_MAX, "the end of those that are too many", within_s=REQUEST_S / 2)
        newest = held[-(STRANGERS_MAX // 2) :]
        assert standing(newest) == len(newest)
        assert box.people[0].swell("ps").code == 0


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


def test_headers_without_end_are_cut_off(box):
    with box.connect() as endless, contextlib.suppress(ConnectionError):
        endless.sendall(b"GET / HTTP/1.1\r\n")
        for _ in range(100_000):
            endless.sendall(b"X-More: " + b"a" * 1000 + b"\r\n")
        pytest.fail("a hundred megabytes of headers were read")
    assert box.people[1].swell("ps").code == 0
