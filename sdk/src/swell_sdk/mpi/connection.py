"""How do two tasks of one attempt know each other, and what do they say?

The key is made from the attempt's own token, which is never sent: each side proves that it knows it, by an HMAC over a
random number of the other side's. Every message after that carries its number and an HMAC, so that nobody in between
can add or change one. Nothing is encrypted.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
import socket
import struct
import sys
import threading
import time
from typing import Dict, Iterator, Mapping, NamedTuple, NoReturn, Tuple

RUN, OUT, ERR, END, STOP, BYE = range(6)  # what a message is; all but BYE are about one command
HEADER = struct.Struct("!IBI")  # bytes of data, what it is, which command
HELLO = struct.Struct("!32sII")  # a random number, the task, its slots
CODE = struct.Struct("!i")
MAC_BYTES = 32
DATA_BYTES_MAX = 1 << 20  # of one message; a command of MPI's has a few thousand
HANDSHAKE_S = 10.0
HANDSHAKES_MAX = 64  # at once
REFUSALS_SAID = 10  # of those who connect and cannot prove anything
GATHER_S = 600.0  # tasks begin together, but one may wait for its image
AGAIN_S = 0.2
SLOTS_MAX = 1 << 16
FIREWALLS = "the firewalls of the machines must let each other in"


class Refused(Exception):
    """The other side is no task of this attempt."""


class Message(NamedTuple):
    kind: int
    command: int  #: its number
    data: bytes


class Line:
    """A connection on which both sides know a key. `is_asking`: this side has opened it."""

    def __init__(self, connection: socket.socket, key: bytes = b"", *, is_asking: bool) -> None:
        self._connection, self._key = connection, key
        self._labels = (b"asking", b"asked") if is_asking else (b"asked", b"asking")  #: of what is sent, and received
        self._sent = self._received = 0
        self._sending = threading.Lock()

    def send(self, kind: int, command: int = 0, data: bytes = b"") -> None:
        """OSError: nobody is there any more."""
        with self._sending:
            text = HEADER.pack(len(data), kind, command) + data
            self._connection.sendall(text + self._mac(self._labels[0], self._sent, text))
            self._sent += 1

    def messages(self) -> Iterator[Message]:
        """Until the other side closes it, or somebody in between has said something."""
        with contextlib.suppress(OSError, EOFError):
            while True:
                header = read_exactly(self._connection, HEADER.size)
                length, kind, command = HEADER.unpack(header)
                data = read_exactly(self._connection, min(length, DATA_BYTES_MAX))
                given = read_exactly(self._connection, MAC_BYTES)
                if not hmac.compare_digest(given, self._mac(self._labels[1], self._received, header + data)):
                    say("a message between two tasks was changed on its way; nothing more is taken from there")
                    return
                self._received += 1
                yield Message(kind, command, data)

    def close(self) -> None:
        shut_down(self._connection)
        self._connection.close()

    def _mac(self, label: bytes, number: int, text: bytes) -> bytes:
        return sign(self._key, label, number.to_bytes(8, "big"), text)


def sign(key: bytes, *parts: bytes) -> bytes:
    """The first part is a word, those between it and the last have fixed lengths: no two lists look alike."""
    return hmac.new(key, b"\0".join(parts), hashlib.sha256).digest()


def read_exactly(connection: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        piece = connection.recv(size - len(found))
        if not piece:
            raise EOFError
        found += piece
    return bytes(found)


def attempt_key(environ: Mapping[str, str]) -> bytes:
    return sign(environ["SWELL_TOKEN"].encode(), b"swell-mpi", environ["SWELL_ATTEMPT"].encode())


def come(connection: socket.socket, key: bytes, task: int, slots: int) -> Line:
    """To task 0, as that task."""
    theirs = read_exactly(connection, 32)
    hello = HELLO.pack(secrets.token_bytes(32), task, slots)
    connection.sendall(hello + sign(key, b"task", theirs, hello))
    if not hmac.compare_digest(read_exactly(connection, MAC_BYTES), sign(key, b"first", theirs, hello)):
        raise Refused("it is not task 0")
    return Line(connection, sign(key, b"line", theirs, hello), is_asking=True)


def receive(connection: socket.socket, key: bytes) -> Tuple[int, int, Line]:
    """As task 0: who has come, with how many slots."""
    ours = secrets.token_bytes(32)
    connection.sendall(ours)
    hello = read_exactly(connection, HELLO.size)
    if not hmac.compare_digest(read_exactly(connection, MAC_BYTES), sign(key, b"task", ours, hello)):
        raise Refused("it does not know the secret of this attempt")
    connection.sendall(sign(key, b"first", ours, hello))
    _, task, slots = HELLO.unpack(hello)
    return task, slots, Line(connection, sign(key, b"line", ours, hello), is_asking=False)


class Gathering:
    """Task 0 until all others have come."""

    def __init__(self, key: bytes, tasks: int) -> None:
        self._key = key
        self._tasks = tasks
        self._missing = set(range(1, tasks))
        self._lines: Dict[int, Tuple[int, Line]] = {}
        self._changed = threading.Condition()
        self._open: Dict[socket.socket, None] = {}  #: who has not proven anything yet, the oldest first
        self._is_over = False  #: all have come: nobody takes the place of one
        self._refusals = 0

    def run(self, listener: socket.socket, within_s: float = GATHER_S) -> Dict[int, Tuple[int, Line]]:
        """Slots and line of each task."""
        until = time.monotonic() + within_s
        listener.settimeout(AGAIN_S)
        while not self._is_complete():
            if time.monotonic() >= until:
                missing = ", ".join(map(str, sorted(self._missing)[:10]))
                host, port = listener.getsockname()[:2]
                fail(f"after {within_s:g} s, tasks {missing} had not come to {host} port {port}; {FIREWALLS}")
            with contextlib.suppress(OSError):  # nobody came, or is gone again
                connection, (host, *_) = listener.accept()
                self._make_place(connection)
                threading.Thread(target=self._meet, args=(connection, host), daemon=True).start()
        return self._lines

    def _is_complete(self) -> bool:
        with self._changed:
            self._is_over = not self._missing
            return self._is_over

    def _make_place(self, connection: socket.socket) -> None:
        """A task proves itself in milliseconds. Whoever says nothing keeps no task waiting."""
        with self._changed:
            self._open[connection] = None
            if len(self._open) > HANDSHAKES_MAX:
                oldest = next(iter(self._open))
                del self._open[oldest]
                shut_down(oldest)

    def _meet(self, connection: socket.socket, host: str) -> None:
        try:
            with given_up_after(connection, HANDSHAKE_S):
                task, slots, line = receive(connection, self._key)
            if not 0 < task < self._tasks:
                raise Refused(f"there is no task {task}")
            with self._changed:
                if self._is_over:
                    raise Refused("all tasks have come already")
                before = self._lines.get(task)
                self._lines[task] = (min(slots, SLOTS_MAX), line)
                self._missing.discard(task)
            if before is not None:  # it had given up waiting for an answer, and has come again
                before[1].close()
        except (OSError, EOFError, Refused) as error:
            connection.close()
            self._say_refused(host, error)
        finally:
            with self._changed:
                self._open.pop(connection, None)

    def _say_refused(self, host: str, error: Exception) -> None:
        self._refusals += 1
        if self._refusals <= REFUSALS_SAID:
            say(f"refused a connection from {host}: {error or 'it ended at once'}")


def shut_down(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is closed
        connection.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def given_up_after(connection: socket.socket, seconds: float) -> Iterator[None]:
    """Whatever is sent meanwhile: a byte now and then does not keep it."""
    timer = threading.Timer(seconds, shut_down, (connection,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def reach_first(key: bytes, place: Tuple[str, int], task: int, slots: int, within_s: float = GATHER_S) -> Line:
    until = time.monotonic() + within_s
    while True:
        try:
            return connect(key, place, task, slots)
        except (OSError, EOFError, Refused) as error:  # it has not begun, or somebody else has its port
            if time.monotonic() >= until:
                fail(f"task 0 was not reached at {place[0]} port {place[1]} in {within_s:g} s: {error}; {FIREWALLS}")
            time.sleep(AGAIN_S)


def connect(key: bytes, place: Tuple[str, int], task: int, slots: int) -> Line:
    connection = socket.create_connection(place, timeout=HANDSHAKE_S)
    try:
        with given_up_after(connection, HANDSHAKE_S):
            line = come(connection, key, task, slots)
        connection.settimeout(None)
    except BaseException:
        connection.close()
        raise
    return line


def say(text: str) -> None:
    print(f"swell: {text}", file=sys.stderr, flush=True)


def fail(text: str) -> NoReturn:
    say(text)
    raise SystemExit(1)
