"""Who is at the other end of a connection, how many may there be, and how long may a request take to arrive?

A Unix socket tells who connected (SO_PEERCRED: the kernel's word, not the client's), TCP from which address. Everybody
on a machine can connect to loopback and to the socket of a box server, so neither may be filled up: connections are
counted by whom they come from, on all ports together, and one that does not get its request across in time is closed.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import struct
import threading
from collections import Counter
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from swell.api.refusals import Refusals

DESCRIPTORS_KEPT = 150  # of those the process may have: the database, logs being read, notices
CONNECTIONS_MAX = max(64, min(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - DESCRIPTORS_KEPT))
LOOPBACK_MAX = CONNECTIONS_MAX * 3 // 4  # TCP does not say who connects, so it may not take what the socket needs
USER_MAX = CONNECTIONS_MAX // 4  # of one user on the socket, of one machine elsewhere: nobody can keep the others out
LOOPBACK = "127.0.0.1"
ROOT = 0  # our own worker; and root needs no tricks
REQUEST_S = 20.0  # for a whole request to arrive; loopback brings 64 MB in a tenth of a second
HEAD_BYTES_MAX = 256 * 1024  # of a request's line and headers; ours have one
PEER = "swell.peer"  # in the scope's `state`; None: it came over TCP

CREDENTIALS = struct.Struct("3i")

log = logging.getLogger(__name__)
refusals = Refusals(log)
quiet = logging.getLogger(f"{__name__}.uvicorn")  # it writes a line for every bad request, however many there are
quiet.setLevel(logging.ERROR)


@dataclass(frozen=True, slots=True)
class Peer:
    """A process on this machine, as the kernel names it."""

    pid: int
    uid: int

    def __str__(self) -> str:
        return f"pid {self.pid} uid {self.uid}"


class Crowd:
    """All connections of this process, by whom they come from: descriptors are the process's, whichever port took them.

    Every opened door is served by a thread of its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[int | str] = Counter()

    def enter(self, whom: int | str) -> tuple[int, int]:
        """How many there are now, and how many of this one."""
        with self._lock:
            self._counts[whom] += 1
            return self._counts.total(), self._counts[whom]

    def leave(self, whom: int | str) -> None:
        with self._lock:
            self._counts[whom] -= 1
            if not self._counts[whom]:
                del self._counts[whom]


crowd = Crowd()


class Connection(HttpToolsProtocol):
    """uvicorn's, with a peer and bounds."""

    peer: Peer | None = None
    _deadline: asyncio.TimerHandle | None = None
    _head_bytes: int | None = 0  #: None: the headers of the request under way are complete

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = quiet

    def send_400_response(self, msg: str) -> None:
        refusals.note(self._origin(), "what was sent is not HTTP")
        super().send_400_response(msg)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.peer = _peer(transport.get_extra_info("socket"))
        self.app_state = {**self.app_state, PEER: self.peer}
        if self._is_one_too_many(*crowd.enter(self._whom())):
            self._refuse("too many connections")
        else:
            self._expect_request()

    def _is_one_too_many(self, everybody: int, same: int) -> bool:
        whom = self._whom()
        if whom == ROOT:
            return False
        return everybody > CONNECTIONS_MAX or same > (LOOPBACK_MAX if whom == LOOPBACK else USER_MAX)

    def data_received(self, data: bytes) -> None:
        if self._deadline is None and self._head_bytes is not None:
            self._expect_request()
        if self._head_bytes is not None:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes is not None and self._head_bytes > HEAD_BYTES_MAX:
            self._refuse(f"headers of more than {HEAD_BYTES_MAX} bytes")

    def on_headers_complete(self) -> None:
        self._head_bytes = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        self._stop_waiting()
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        crowd.leave(self._whom())
        self._stop_waiting()
        super().connection_lost(exc)

    def _expect_request(self) -> None:
        self._deadline = self.loop.call_later(REQUEST_S, self._refuse, f"no whole request within {REQUEST_S:g} s")

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self, why: str) -> None:
        refusals.note(self._origin(), f"connection closed: {why}")
        self._stop_waiting()
        self.transport.abort()

    def _whom(self) -> int | str:
        """A user of this machine, or an address."""
        return str((self.client or (LOOPBACK,))[0]) if self.peer is None else self.peer.uid

    def _origin(self) -> str:
        return str(self.peer or (self.client or ("?",))[0])


def _peer(found: socket.socket) -> Peer | None:
    if found.family != socket.AF_UNIX:
        return None
    pid, uid, _ = CREDENTIALS.unpack(found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
    return Peer(pid, uid)
