"""Who is at the other end of a connection, and how long may a request take to arrive, an answer to be read?

A Unix socket tells who connected (SO_PEERCRED: the kernel's word, not the client's), TCP from which address. Everybody
on a machine can connect to loopback and to the socket of a box server, so neither may be filled up: connections are
counted by whom they come from, on all ports together (`crowd.py`). Over TCP nobody has said who they are until a token
of theirs was found good. Who does not get a request across in time, or does not read the answer, is hung up on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.utils import get_remote_addr

from swell.api.audit import RefusalLog
from swell.api.crowd import Crowd, Whom

REQUEST_S = 20.0  # for a whole request to arrive; loopback brings 64 MB in a tenth of a second
ANSWER_LOOK_S = 10.0  # so often an answer that waits to be read must have become shorter
ANSWER_BYTES_MIN = 16 * 1024  # by so much; the slowest line that one works over brings ten times that
HEAD_BYTES_MAX = 256 * 1024  # of a request's line and headers; ours have one
PEER = "swell.peer"  # in the scope's `state`; None: it came over TCP
SEAT = "swell.seat"  # in the scope's `state`: this connection, for who finds out whose it is

#: The user of a private server: all connections may be theirs, and their worker's come before them, as their tokens
#: tell. Root is known without one, here as on a box.
OWNER = os.geteuid() or None
SOCKET = "the socket"  # in place of an address

CREDENTIALS = struct.Struct("3i")

log = logging.getLogger(__name__)
refusals = RefusalLog(log)
quiet = logging.getLogger(f"{__name__}.uvicorn")  # it writes a line for every bad request, however many there are
quiet.setLevel(logging.ERROR)


@dataclass(frozen=True, slots=True)
class Peer:
    """A process on this machine, as the kernel names it."""

    pid: int
    uid: int

    def __str__(self) -> str:
        return f"pid {self.pid} uid {self.uid}"


crowd = Crowd()


class ClientConnection(HttpToolsProtocol):
    """uvicorn's, with a peer and bounds."""

    peer: Peer | None = None
    _deadline: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None  #: None: nothing waits to be read by the client
    _head_bytes: int | None = 0  #: None: the headers of the request under way are complete

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = quiet

    def send_400_response(self, msg: str) -> None:
        refusals.note(self._origin(), "what was sent is not HTTP")
        super().send_400_response(msg)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self.peer = _peer(transport.get_extra_info("socket"))
        if not self._enter(transport):  # before anything else is made for it: a flood is refused quickly
            self._refuse("too many connections")
            return
        super().connection_made(transport)
        # `pause_writing` says then that something was not read at once. Not 0: asyncio's TLS pauses at its mark, not
        # above it, and would never go on.
        transport.set_write_buffer_limits(high=1)
        self.app_state = {**self.app_state, PEER: self.peer, SEAT: self}
        self._expect_request()

    def _enter(self, transport: asyncio.Transport) -> bool:
        if self.peer is not None and self.peer.uid != OWNER:
            return crowd.enter(self, self.peer.uid)
        self.client = get_remote_addr(transport)
        return crowd.enter_as_stranger(self, str((self.client or (SOCKET,))[0]))

    def belongs_to(self, whom: Whom, *, share: bool) -> None:
        """Whoever is at the other end has shown a token; it counts as theirs from now on."""
        if not crowd.recognise(self, whom, share=share):
            self._refuse("too many connections")

    def is_idle(self) -> bool:
        """Nothing is being worked on, and nothing waits to be read."""
        return self._unread is None and (self.cycle is None or self.cycle.response_complete)

    def give_way(self) -> None:
        """To a newer one. From any thread: every opened door has its own."""
        self.loop.call_soon_threadsafe(self._refuse, "too many connections that have not said who they are")

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

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_answer()

    def resume_writing(self) -> None:
        self._stop_watching()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        crowd.leave(self)
        self._stop_waiting()
        self._stop_watching()
        super().connection_lost(exc)

    def _watch_answer(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._unread = self.loop.call_later(ANSWER_LOOK_S, self._look_at_answer, left)

    def _look_at_answer(self, before: int) -> None:
        if before - self.transport.get_write_buffer_size() < ANSWER_BYTES_MIN:
            self._refuse(f"the answer was not read within {ANSWER_LOOK_S:g} s")
        else:
            self._watch_answer()

    def _stop_watching(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _expect_request(self) -> None:
        self._deadline = self.loop.call_later(REQUEST_S, self._refuse, f"no whole request within {REQUEST_S:g} s")

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self, why: str) -> None:
        refusals.note(self._origin(), f"connection closed: {why}")
        self._stop_waiting()
        self._stop_watching()
        self.transport.abort()

    def _origin(self) -> str:
        return str(self.peer or (self.client or ("?",))[0])


def _peer(found: socket.socket) -> Peer | None:
    if found.family != socket.AF_UNIX:
        return None
    pid, uid, _ = CREDENTIALS.unpack(found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
    return Peer(pid, uid)
