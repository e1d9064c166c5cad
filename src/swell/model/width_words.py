"""Which words of a genai manager's manifest follow the number of GPUs that a job was given?

A variable NGPU follows in every attempt, where the manifest has one. `--num_processes=` follows where the job may be
resized: a fixed job starts as many processes as its user wrote.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

NGPU = "NGPU"
NUM_PROCESSES = re.compile(r"--num_processes=\d+")


def following_value(name: str, text: str, gpus: int) -> str:
    """The value of a variable."""
    return str(gpus) if name == NGPU else text


def following_command(words: Sequence[str], gpus: int, *, is_elastic: bool) -> tuple[str, ...]:
    """The words of a command, or of its arguments."""
    return tuple(NUM_PROCESSES.sub(f"--num_processes={gpus}", word) if is_elastic else word for word in words)
