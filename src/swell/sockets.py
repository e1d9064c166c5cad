"""How does HTTP travel over a Unix socket, and where is a machine's one?"""

from __future__ import annotations

import http.client
import os
import socket
import stat
from pathlib import Path

BOX_SOCKET = Path("/run/swell/swell.sock")
BOX_STATE = Path("/var/lib/swell")
BOX_UNIT = Path("/etc/systemd/system/swell.service")
HOST = "localhost"


class UnixConnection(http.client.HTTPConnection):
    """As http.client's, to a path."""

    def __init__(self, path: Path, *, timeout: float) -> None:
        super().__init__(HOST, timeout=timeout)
        self._path = path

    def connect(self) -> None:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.settimeout(self.timeout)
            made.connect(str(self._path))
        except OSError:
            made.close()
            raise
        self.sock = made


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


def listen_on(path: Path) -> socket.socket:
    """For everybody on this machine; one that an earlier server left is replaced without a moment in between."""
    if not path.parent.exists():
        path.parent.mkdir(parents=True)
        path.parent.chmod(0o755)  # whatever the umask
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(beside))
    beside.chmod(0o666)
    listener.listen(1024)
    beside.rename(path)
    return listener
