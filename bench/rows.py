"""What does a benchmark say, and what was it told?"""

from __future__ import annotations

import json
import os
import random
import sys
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True)
class Setting:
    """What every benchmark is told."""

    folder: Path  #: empty, on a real disk, removed afterwards
    seed: int
    tasks: int  #: in one array
    repeats: int
    stored: int  #: jobs in the store when something is measured with many
    submissions: int
    starts: int  #: jobs whose start is timed
    nodes: int  #: of the simulated cluster
    data: Path | None = None  #: folder with published traces; None: what needs them is left out
    workloads: tuple[str, ...] = ()  #: of the traces; empty: all
    rows: tuple[str, ...] = ()  #: words in the names of the rows that are wanted; empty: all

    @property
    def cpus(self) -> int:
        return len(os.sched_getaffinity(0))

    def random(self) -> random.Random:
        return random.Random(self.seed)


@dataclass(frozen=True, slots=True)
class Row:
    bench: str
    row: str
    unit: str
    ours: float | None  #: None: a calibration, there is nothing of ours in it
    theirs: float | None = None  #: None: there is nobody to compare with
    aim: str = ""
    detail: dict[str, Any] = field(default_factory=dict)

    def to_line(self) -> str:
        ratio = None if self.ours is None or not self.theirs else _short(self.ours / self.theirs)
        document: dict[str, Any] = {
            "bench": self.bench,
            "row": self.row,
            "ours": _short(self.ours),
            "theirs": _short(self.theirs),
            "ratio": ratio,
            "unit": self.unit,
        }
        if self.aim:
            document["aim"] = self.aim
        return json.dumps({**document, **{name: _short(value) for name, value in self.detail.items()}})


def middle(values: list[float]) -> float:
    return float(median(values))


def at_95(values: list[float]) -> float:
    """The value that one in twenty exceeds."""
    return sorted(values)[max(0, -(-len(values) * 95 // 100) - 1)]


def progress(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def _short(value: Any) -> Any:
    """Four digits say all that a noisy machine knows."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, list):
        return [_short(one) for one in value]
    if isinstance(value, dict):
        return {name: _short(one) for name, one in value.items()}
    return value
