"""`python -m swell.worker.dockerlog LOG NAME docker…`: from when on must docker's own log of a container be read?

docker's client copies what a container writes into the task's log. When the client was killed, whoever reads on from
the engine's log must neither leave out a line nor write one twice. The time of the last write is no answer: the kernel
tells it some milliseconds late, and the engine stamps each line before the client has it. So the lines of about that
time are compared with the end of the log.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

BEFORE_S = 2.0  # a client on a busy machine writes what the engine has stamped so much earlier
AFTER_S = 0.05  # more than the kernel's coarse clock is behind
COMPARED_LINES = 8
TAIL_BYTES = 1 << 20  # of the log
TOLD_BYTES_MAX = 8 << 20  # of the engine's lines around that time
ANSWER_S_MAX = 10.0

#: What the client says of its own end, or the shell of the client, stands after the last line of the container.
_OF_THE_CLIENT = re.compile(rb'(^(Killed|Terminated|time="[^"\n]*" level=[^\n]*|docker: [^\n]*)\n)+\Z', re.MULTILINE)

Line = tuple[int, bytes]  #: when the engine had it, in nanoseconds, and its text


def main() -> None:
    log, name, *runtime = sys.argv[1:]
    written = os.stat(log).st_mtime_ns  # noqa: PTH116
    since, until = (f"{written / 1e9 + shift:.9f}" for shift in (-BEFORE_S, AFTER_S))
    words = [*runtime, "logs", "--timestamps", "--since", since, "--until", until, name]
    told = subprocess.run(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=ANSWER_S_MAX
    ).stdout
    read_from = first_missing(_tail(Path(log)), parse(told[:TOLD_BYTES_MAX]), written)
    print(f"{read_from // 10**9}.{read_from % 10**9:09d}")


def first_missing(have: bytes, told: Sequence[Line], written: int) -> int:
    """When the engine had the first line that is not in the log; `written`: when that was last written to.

    The most lines that the log can end with are taken to be there. A line of which only a part is there comes again.
    """
    whole = _OF_THE_CLIENT.sub(b"", have[: have.rfind(b"\n") + 1])
    for count in range(len(told), 0, -1):
        if whole.endswith(b"".join(text for _, text in told[max(0, count - COMPARED_LINES) : count])):
            return told[count][0] if count < len(told) else told[-1][0] + 1
    return written


def parse(told: bytes) -> list[Line]:
    """Of `docker logs --timestamps`; what is no line of it is left out."""
    found = []
    for line in told.splitlines(keepends=True):
        stamp, _, text = line.partition(b" ")
        at = _nanoseconds(stamp.decode(errors="replace"))
        if at is not None:
            found.append((at, text))
    return found


def _nanoseconds(stamp: str) -> int | None:
    """Of `2026-11-18T04:47:26.684652205Z`; None: it is no such stamp."""
    seconds, _, fraction = stamp.removesuffix("Z").partition(".")
    try:
        whole = datetime.fromisoformat(f"{seconds}+00:00").timestamp()
        return int(whole) * 10**9 + int(fraction[:9].ljust(9, "0"))
    except ValueError:
        return None


def _tail(log: Path) -> bytes:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        return file.read(TAIL_BYTES)


if __name__ == "__main__":
    main()
