"""Who sends too slowly is hung up on, wherever they connect, and everybody else is answered all the while."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from box.machine import Machine, standing
from swell.api.connections import REQUEST_S

pytestmark = pytest.mark.slow

EACH = 30
SLOW = {
    "nothing": "",
    "half its headers": "GET /api/v1/health HTTP/1.1\r\nHost: x\r\nX-Slow: ",
    "half its body": "POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
    "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n[",
}


@pytest.fixture(scope="module")
def box() -> Iterator[Machine]:
    with Machine() as machine:
        yield machine


@pytest.fixture
def ways(box) -> Iterator[dict[Callable[[], socket.socket], dict[str, str]]]:
    """How one connects to the port, the socket and an opened door, and the words of a request there."""
    door = box.client().open_door("genai", 0, user=box.people[0].name)["port"]
    token, port = box.state.token.read_text().strip(), box.address[1]
    yield {
        box.connect: {"path": "/api/v1/jobs", "host": f"127.0.0.1:{port}", "token": token},
        box.connect_to_socket: {"path": "/api/v1/jobs", "host": "localhost", "token": token},
        partial(socket.create_connection, ("127.0.0.1", door), 10): {
            "path": "/add_job",
            "host": f"127.0.0.1:{door}",
            "token": token,
        },
    }
    box.client().close_door(door)


def test_who_sends_too_slowly_is_hung_up_on_and_written_down(box, ways):
    """Nothing at all, half of its headers, or half of its body; a byte a second of the latter two."""
    slow: dict[str, list[socket.socket]] = {what: [] for what in SLOW}
    with contextlib.ExitStack() as stack:
        for _ in range(EACH):
            for connect, words in ways.items():
                for what, beginning in SLOW.items():
                    one = stack.enter_context(connect())
                    one.sendall(beginning.format(**words).encode())
                    slow[what].append(one)
        assert box.people[1].swell("ps").code == 0
        until = time.monotonic() + REQUEST_S + 10
        while left := {what: count for what in slow if (count := standing(slow[what]))}:
            assert time.monotonic() < until, f"these still stand: {left}"
            for one in (*slow["half its headers"], *slow["half its body"]):
                with contextlib.suppress(OSError):
                    one.sendall(b"a")
            time.sleep(1)
    said = f"connection closed: no whole request within {REQUEST_S:g} s"
    written = [line.partition(" refused ")[2] for line in box.log().splitlines() if said in line]
    assert {origin.split()[0] for origin in written} == {"127.0.0.1:", "pid"}
