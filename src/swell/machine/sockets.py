"""How does HTTP travel over a Unix socket, and where is a machine's one?

A port of loopback is anybody's who binds it first. A socket is a file: only who may write to its folder listens there.
"""

from __future__ import annotations

import http.client
import os
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BOX_SOCKET = Path("/run/swell/swell.sock")
BOX_STATE = Path("/var/lib/swell")
BOX_UNIT = Path("/etc/systemd/system/swell.service")
HOST = "localhost"
CONNECT_S_MAX = 3600.0  # what fits into a timeval of any kernel


class UnixConnection(http.client.HTTPConnection):
    """As http.client's, to a path."""

    def __init__(self, path: Path, *, timeout: float) -> None:
        super().__init__(HOST, timeout=timeout)
        self._path = path

    def connect(self) -> None:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with short_name(self._path) as name:
                connect_patiently(made, name, self.timeout)
            made.settimeout(self.timeout)
        except OSError:
            made.close()
            raise
        self.sock = made


def connect_patiently(made: socket.socket, name: str, timeout_s: float | None) -> None:
    """A listener whose queue is full refuses who does not wait, and a socket with Python's timeout does not wait."""
    seconds = min(timeout_s or 0.0, CONNECT_S_MAX)  # 0: the kernel waits without an end
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(seconds), int(seconds % 1 * 1e6)))
    try:
        made.connect(name)
    except BlockingIOError as error:
        raise TimeoutError(f"{name} takes no connection: more wait for it than it answers") from error


def box_socket() -> Path | None:
    """The socket of this machine's box server; None: it has none, and everybody has their own server.

    An installed box server that is down still is the one to use: a private one beside it would fight it for the GPUs.
    """
    named = os.environ.get("SWELL_SOCKET")
    if named is not None:
        return Path(named) if named else None
    return BOX_SOCKET if _is_socket(BOX_SOCKET) or BOX_UNIT.exists() else None


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False


@contextmanager
def short_name(path: Path) -> Iterator[str]:
    """What the kernel takes for this socket however long the path of its folder is: 107 bytes are the limit."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def listen_on(path: Path, *, mode: int) -> socket.socket:
    """One that an earlier server left is replaced without a moment in between."""
    if not path.parent.exists():
        path.parent.mkdir(parents=True)
        path.parent.chmod(0o755)  # whatever the umask
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with short_name(beside) as name:
        listener.bind(name)
    beside.chmod(mode)
    listener.listen(1024)
    beside.rename(path)
    return listener
