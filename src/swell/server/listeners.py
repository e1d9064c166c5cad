"""Which sockets does a server open, and how is it called there?"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from swell.errors import Conflict, Denied
from swell.machine.boot_clock import clock
from swell.machine.listening import PORTS_OF_USERS, Listening, first_port_of_users, listen
from swell.machine.sockets import listen_on, short_name
from swell.machine.state_folder import StateFolder
from swell.model.launch import SOCKET_NAME

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
        """What others are told."""
        return f"http://{self.local}" if self.beyond is None else self.beyond.url

    def url_for_jobs(self, *, are_here: bool) -> str:
        """Jobs on this machine need no TLS, and nobody who vouches for ours."""
        is_secure = self.beyond is not None and self.beyond.is_secure
        return f"http://{self.local}" if are_here and is_secure else self.url

    @property
    def machine(self) -> str:
        """Where tasks on other machines reach those of this one."""
        return LOOPBACK if self.beyond is None else urlsplit(self.beyond.url).hostname or LOOPBACK

    @property
    def hosts(self) -> frozenset[str]:
        """What a Host header may say."""
        local = frozenset({self.local, self.local.replace(LOOPBACK, "localhost")})
        return local if self.beyond is None else local | self.beyond.hosts


def address_of(loopback: socket.socket, beyond: Listening | None) -> Address:
    return Address(f"{LOOPBACK}:{loopback.getsockname()[1]}", beyond)


@dataclass(frozen=True, slots=True)
class Listeners:
    """All sockets of a server."""

    plain: list[socket.socket]  #: loopback first; then those for jobs, and for commands and the worker
    secure: list[socket.socket]  #: where we speak TLS

    @property
    def loopback(self) -> socket.socket:
        return self.plain[0]


def open_listeners(
    state: StateFolder, port: int, beyond: Listening | None, outside: socket.socket | None = None
) -> Listeners:
    """`outside`: the socket beyond loopback, where it is open already."""
    own = listen_on(state.server_socket, mode=0o600 if state.socket is None else 0o666)
    for_others = [] if beyond is None else [outside or beyond.open()]
    plain = [_listen(state, port), _listen_for_jobs(state), own]
    if beyond is not None and beyond.is_secure:
        return Listeners(plain, for_others)
    return Listeners(plain + for_others, [])


def _listen(state: StateFolder, port: int) -> socket.socket:
    """On loopback; the same port as last time when it is free, because running jobs know it."""
    path = state.root / "port"
    last = _last_port(path)
    if port:
        _refuse_for_a_box(state, port)
        listener = listen(LOOPBACK, port, todo="choose another port with --port")
    elif state.socket is None:
        listener = _first_free([last, 0], "no port is free on loopback")
    else:
        listener = _listen_on_box(path, last)
    path.write_text(str(listener.getsockname()[1]))
    return listener


def _last_port(path: Path) -> int:
    text = path.read_text() if path.exists() else ""
    return int(text) if text.isdigit() else 0  # a power cut may leave it empty


def _first_free(candidates: Iterable[int], otherwise: str) -> socket.socket:
    why = ""
    for candidate in candidates:
        try:
            return listen(
                LOOPBACK,
                candidate,
                todo="stop the program that listens there, or give the server the right to use the port",
            )
        except Conflict as problem:
            why = str(problem)
    raise Conflict(f"{otherwise}: {why}")


def _listen_on_box(path: Path, last: int) -> socket.socket:
    """Never where a user could listen while we are away; and where running jobs look for us, or not at all."""
    first = first_port_of_users()
    safe = [port for port in BOX_PORTS if port < first]
    if not safe:
        raise Denied(
            f"{PORTS_OF_USERS} is {first}, so any user of this machine could take the port that jobs report to "
            "while the server is down; reserve it for root again: sysctl -w net.ipv4.ip_unprivileged_port_start=1024"
        )
    if last in safe and _is_since_boot(path):
        todo = (
            "running jobs report to this port: stop the program that listens there now, or, if no job is running, "
            f"remove {path}"
        )
        return listen(LOOPBACK, last, todo=todo)
    return _first_free(
        sorted(safe, key=lambda port: port != last),
        f"a box server listens on a port that only root can use, and none of the ports {safe[0]} to {safe[-1]} is free",
    )


def _refuse_for_a_box(state: StateFolder, port: int) -> None:
    first = first_port_of_users()
    if state.socket is not None and port >= first:
        raise Denied(
            f"--port {port} could be taken by any user of this machine while the box server is down, and jobs send "
            f"their tokens there; choose a port below {first}, which only root can use"
        )


def _is_since_boot(path: Path) -> bool:
    """Jobs that were told what is in this file do not outlive a restart of the machine."""
    return path.stat().st_mtime > time.time() - clock()


def _listen_for_jobs(state: StateFolder) -> socket.socket:
    """Jobs of a private server report here, and those with a network of their own; the guard lets nothing else pass.

    Containers mount its folder: mounted by itself, it would be the old one after a restart of ours.
    """
    (state.sockets / SOCKET_NAME).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with short_name(state.sockets / SOCKET_NAME) as name:
        listener.bind(name)
    # The containers of a box server's users are theirs; the guard asks for a job's token all the same.
    (state.sockets / SOCKET_NAME).chmod(0o600 if state.socket is None else 0o666)
    listener.listen(1024)
    return listener
