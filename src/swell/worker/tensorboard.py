"""Can somebody look at the training while it goes on?

TensorBoard is started beside a job that asks for it and carries the attempt's marks, so whatever ends the attempt's
leftovers ends it too, also after a crash of ours. It is the user's own program, from the job's PATH, and found there by
a process of the user's: a PATH of thousands of links would keep us looking for minutes. Where there is none the job
runs all the same and its `tensorboard.log` says so.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

MARK = "SWELL_TENSORBOARD=1"
NAME = "tensorboard"  # its folder beside those of the tasks, and its control group
LOOPBACK = "127.0.0.1"
FIND = """command -v tensorboard > /dev/null && exec tensorboard "$@"
echo "there is no program tensorboard on the PATH of the job: pip install tensorboard"; exit 127"""


class Beside(Protocol):
    """How programs beside the tasks are started, and found again; see `handling.py`."""

    def start_beside(self, argv: Sequence[str], env: dict[str, str]) -> None: ...

    def members(self, *marks: bytes) -> list[int]: ...


def start(logdir: str, workdir: str, port: int, env: dict[str, str], beside: Beside) -> str:
    """Its address. One that an earlier life of ours has started is found again."""
    address = f"http://{LOOPBACK}:{port}"
    if beside.members(MARK.encode()):
        return address
    options = ["--logdir", str(Path(workdir) / logdir), "--host", LOOPBACK, "--port", str(port)]
    beside.start_beside(["/bin/sh", "-c", FIND, "tensorboard", *options], {**env, "SWELL_TENSORBOARD": "1"})
    return address


def spawn(folder: Path, argv: Sequence[str], workdir: str, env: dict[str, str]) -> None:
    where = workdir if Path(workdir).is_dir() else "/"
    with _log(folder) as log:
        subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=where, env=env, start_new_session=True
        )


def _log(folder: Path) -> BinaryIO:
    return (folder / "tensorboard.log").open("ab")
