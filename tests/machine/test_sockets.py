"""Connections to a server's socket."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from swell.machine.sockets import UnixConnection


@contextlib.contextmanager
def full_listener(path: Path) -> Iterator[socket.socket]:
    """One that somebody has connected to until its queue took no more."""
    with contextlib.ExitStack() as held:
        listener = held.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(path))
        listener.listen(1)
        while _joins(held.enter_context(socket.socket(socket.AF_UNIX)), path):
            pass
        yield listener


def _joins(waiting: socket.socket, path: Path) -> bool:
    waiting.setblocking(False)
    try:
        waiting.connect(str(path))
    except BlockingIOError:
        return False
    return True


def test_a_connection_waits_while_others_fill_the_queue_of_the_listener(tmp_path: Path) -> None:
    """4,000 connections of another user's made every command fail at once: `Resource temporarily unavailable`."""
    with full_listener(tmp_path / "socket") as listener:
        line = UnixConnection(tmp_path / "socket", timeout=60.0)
        connecting = threading.Thread(target=line.connect)
        connecting.start()
        listener.settimeout(0.1)  # the last one may have been taken already
        while connecting.is_alive():
            with contextlib.suppress(TimeoutError):
                accepted, _ = listener.accept()
                accepted.close()
        assert line.sock.gettimeout() == 60.0
        line.close()


def test_it_waits_no_longer_than_its_timeout(tmp_path: Path) -> None:
    with full_listener(tmp_path / "socket"), pytest.raises(TimeoutError, match="takes no connection"):
        UnixConnection(tmp_path / "socket", timeout=0.2).connect()
