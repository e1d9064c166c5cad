"""Rounds of the seeds that a command line names, each in a folder of its own."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Protocol


class Played(Protocol):
    @property
    def seen(self) -> Counter[str]:
        """What has happened, and how often."""

    @property
    def broken(self) -> list[str]:
        """What must never be, and was."""


def play_all(play: Callable[[int, Path], Played]) -> None:
    """Ends with what is broken, if anything is."""
    for seed in map(int, sys.argv[1:]):
        with tempfile.TemporaryDirectory() as scratch:
            played = play(seed, Path(scratch))
            print(", ".join(f"{what} {count}" for what, count in played.seen.most_common()))
            if played.broken:
                sys.exit("\n".join(played.broken))
