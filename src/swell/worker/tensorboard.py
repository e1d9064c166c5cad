"""Can somebody look at the training while it goes on?

TensorBoard is started beside a job that asks for it and carries the attempt's marks, so whatever ends the attempt's
leftovers ends it too, also after a crash of ours. It is the user's own program, from the job's PATH; where there is
none the job runs all the same and its `tensorboard.log` says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

MARK = "SWELL_TENSORBOARD=1"
LOOPBACK = "127.0.0.1"


class Beside(Protocol):
    """How programs beside the tasks are started, and found again; see `handling.py`."""

    def start_beside(self, argv: Sequence[str], env: dict[str, str]) -> None: ...

    def members(self, *marks: bytes) -> list[int]: ...


def start(folder: Path, logdir: str, workdir: str, port: int, env: dict[str, str], beside: Beside) -> str:
    """Its address; empty: there is none. One that an earlier life of ours has started is found again."""
    address = f"http://{LOOPBACK}:{port}"
    if beside.members(MARK.encode()):
        return address
    program = shutil.which("tensorboard", path=env.get("PATH", os.defpath))
    if program is None:
        with _log(folder) as log:
            log.write(b"there is no program `tensorboard` on the job's PATH: pip install tensorboard\n")
        return ""
    argv = [program, "--logdir", str(Path(workdir) / logdir), "--host", LOOPBACK, "--port", str(port)]
    beside.start_beside(argv, {**env, "SWELL_TENSORBOARD": "1"})
    return address


def spawn(folder: Path, argv: Sequence[str], workdir: str, env: dict[str, str]) -> None:
    where = workdir if Path(workdir).is_dir() else "/"
    with _log(folder) as log:
        subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=where, env=env, start_new_session=True
        )


def _log(folder: Path) -> BinaryIO:
    return (folder / "tensorboard.log").open("ab")
