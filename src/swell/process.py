"""How is a process started that outlives us, and how do we learn that one has ended?"""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Sequence
from pathlib import Path


def spawn_detached(argv: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """In a session of its own, with nothing of our terminal; what it says is appended to the log, mode 0600."""
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as output:
        return subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, cwd="/"
        )


def wait_for_end(pid: int, timeout_s: float | None = None) -> bool:
    """True when it has ended, also if that was long ago; False: it has not within so long. None: however long."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], timeout_s)[0])
    finally:
        os.close(descriptor)
