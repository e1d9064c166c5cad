"""Which of root's ports has a box server of a test, also while that server is down?

A box server listens on one of ten ports, and takes the same one when it starts again: running jobs report there. Tests
in other processes start box servers meanwhile, and each takes the first port that is free. One that a test had taken
down did not start again, because its port was another test's by then.
"""

from __future__ import annotations

import contextlib
import fcntl
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

LOCKS = Path(tempfile.gettempdir()) / "swell-box-ports"
PATIENCE_S = 150.0  # until another test run's box server gives one back


@contextlib.contextmanager
def reserved_port(candidates: Sequence[int]) -> Iterator[int]:
    """A port that no other test has until the end, and on which nothing listens."""
    LOCKS.mkdir(exist_ok=True)
    until = time.monotonic() + PATIENCE_S
    while True:
        for port in candidates:
            with (LOCKS / str(port)).open("w") as lock:
                if _is_locked(lock.fileno()) and _is_free(port):
                    yield port
                    return
        assert time.monotonic() < until, f"all of the ports {candidates} are in use"
        time.sleep(0.2)


def keep_port(state: Path, port: int) -> None:
    """A box server that starts in this folder listens there, as if it had before."""
    state.mkdir(mode=0o711, parents=True, exist_ok=True)
    (state / "port").write_text(str(port))


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
