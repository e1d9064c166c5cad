"""Which sockets does a server open, and how is it called there?"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from swell.errors import Conflict
from swell.listening import Listening, listen
from swell.model.container import SOCKET_NAME
from swell.sockets import listen_on
from swell.state import StateFolder

LOOPBACK = "127.0.0.1"
#: Where only root can listen (and IANA has assigned nothing): while a box server is down, no user may take its port and
#: be told what jobs report, with their tokens.
BOX_PORTS = range(1011, 1021)


@dataclass(frozen=True, slots=True)
class Address:
    """Of a server."""

    local: str  #: host and port on loopback
    beyond: Listening | None  #: None: it is on loopback only

    @property
    def url(self) -> str:
        """What jobs are told."""
        return f"http://{self.local}" if self.beyond is None else self.beyond.url

    @property
    def hosts(self) -> frozenset[str]:
        """What a Host header may say."""
        local = frozenset({self.local, self.local.replace(LOOPBACK, "localhost")})
        return local if self.beyond is None else local | self.beyond.hosts


def address_of(loopback: socket.socket, beyond: Listening | None) -> Address:
    return Address(f"{LOOPBACK}:{loopback.getsockname()[1]}", beyond)


def open_listeners(state: StateFolder, port: int, beyond: Listening | None) -> list[socket.socket]:
    """Loopback first; then the sockets for containers and, on a box, for everybody; then whatever was asked for."""
    for_everybody = [] if state.socket is None else [listen_on(state.socket)]
    for_others = [] if beyond is None else [beyond.open()]
    return [_listen(state, port), _listen_for_containers(state), *for_everybody, *for_others]


def _listen(state: StateFolder, port: int) -> socket.socket:
    """On loopback; the same port as last time when it is free, because running jobs know it."""
    path = state.root / "port"
    text = path.read_text() if path.exists() else ""
    last = int(text) if text.isdigit() else 0  # a power cut may leave it empty
    safe = () if state.socket is None else BOX_PORTS
    for candidate in [port] if port else [last, *safe, 0]:
        try:
            listener = listen(LOOPBACK, candidate, todo="choose another with --port")
        except Conflict:
            if candidate == port and port:
                raise
            continue
        path.write_text(str(listener.getsockname()[1]))
        return listener
    raise Conflict("no port is free on loopback; end something that listens there")


def _listen_for_containers(state: StateFolder) -> socket.socket:
    """Jobs with a network of their own report here; the guard lets nothing else pass.

    Containers mount its folder: mounted by itself, it would be the old one after a restart of ours.
    """
    (state.sockets / SOCKET_NAME).unlink(missing_ok=True)
    folder = os.open(state.sockets, os.O_RDONLY | os.O_DIRECTORY)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # However long the folder's path is: 107 bytes are the limit.
        listener.bind(f"/proc/self/fd/{folder}/{SOCKET_NAME}")
    finally:
        os.close(folder)
    # The containers of a box server's users are theirs; the guard asks for a job's token all the same.
    (state.sockets / SOCKET_NAME).chmod(0o600 if state.socket is None else 0o666)
    listener.listen(1024)
    return listener
