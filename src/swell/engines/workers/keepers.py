"""Which process keeps a task? The worker's folders say so in their names (see `worker/tasks.py`)."""

from __future__ import annotations

from pathlib import Path

from swell.model.job import AttemptId


def keeper_pid(root: Path, attempt: AttemptId, index: int) -> int | None:
    """None: it has not begun, or is not kept on this machine."""
    begun = sorted((root / str(attempt) / str(index)).glob("begun.*"))
    return int(begun[0].name.split(".")[1]) if begun else None
