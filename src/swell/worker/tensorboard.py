"""Can somebody look at the training while it goes on?

TensorBoard is started beside a job that asks for it and carries the attempt's marks, so whatever ends the attempt's
leftovers ends it too, also after a crash of ours. It is the user's own program, from the job's PATH, and found there by
a process of the user's: a PATH of thousands of links would keep us looking for minutes. Where there is none, or it
ends, the job runs all the same, its address is no longer told, and the job's trouble is what its log says last.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

from swell.machine.log_limit import LogWatch
from swell.machine.users import open_without_waiting

MARK = "SWELL_TENSORBOARD=1"
NAME = "tensorboard"  # its folder beside those of the tasks, and its control group
LOOPBACK = "127.0.0.1"
SAID_BYTES_MAX = 500  # of its log, in a job's trouble
FIND = """command -v tensorboard > /dev/null && exec tensorboard "$@"
echo "the program tensorboard is not on the PATH of the job; run: pip install tensorboard"; exit 127"""


class Beside(Protocol):
    """How programs beside the tasks are started, and found again; see `handling.py`."""

    def start_beside(self, argv: Sequence[str], env: dict[str, str]) -> int: ...

    def members(self, *marks: bytes) -> list[int]: ...


class Board:
    """One that was started."""

    def __init__(self, address: str, pid: int | None, folder: Path) -> None:
        self._address = address
        self._pid = pid  #: a child of ours; None: an earlier life of ours has started it
        self._folder = folder
        self._trouble = ""
        self._log = LogWatch(folder / NAME)

    @property
    def address(self) -> str:
        """Empty: nothing is there."""
        return "" if self.trouble else self._address

    def look_at_log(self) -> None:
        self._log.look()

    @property
    def trouble(self) -> str:
        """Why nothing is there; empty: it lives, as far as we know."""
        if not self._trouble and self._pid is not None and _has_ended(self._pid):
            self._trouble = f"TensorBoard exited: {_last_line(self._folder) or 'it printed nothing'}"
        return self._trouble


def start(logdir: str, workdir: str, port: int, env: dict[str, str], beside: Beside, folder: Path) -> Board:
    """One that an earlier life of ours has started is found again."""
    address = f"http://{LOOPBACK}:{port}"
    if beside.members(MARK.encode()):
        return Board(address, None, folder)
    options = ["--logdir", str(Path(workdir) / logdir), "--host", LOOPBACK, "--port", str(port)]
    words = ["/bin/sh", "-c", FIND, "tensorboard", *options]
    return Board(address, beside.start_beside(words, {**env, "SWELL_TENSORBOARD": "1"}), folder)


def spawn(folder: Path, argv: Sequence[str], workdir: str, env: dict[str, str]) -> int:
    where = workdir if Path(workdir).is_dir() else "/"
    with _log(folder) as log:
        return subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=where, env=env, start_new_session=True
        ).pid


def _has_ended(pid: int) -> bool:
    """Looked at, and left to be reaped."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _last_line(folder: Path) -> str:
    with contextlib.suppress(OSError), os.fdopen(open_without_waiting(folder / NAME / "log"), "rb") as log:
        log.seek(max(0, os.fstat(log.fileno()).st_size - SAID_BYTES_MAX))
        lines = log.read(SAID_BYTES_MAX).decode(errors="replace").split("\n")
        if said := [line.strip() for line in lines if line.strip()]:
            return said[-1]
    return ""


def _log(folder: Path) -> BinaryIO:
    """Where a user's keeper writes it, too."""
    (folder / NAME).mkdir(exist_ok=True)
    return (folder / NAME / "log").open("ab")
