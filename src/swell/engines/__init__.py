"""Where tasks run. One protocol; `workers/` is the default, `kubernetes/` and `simulated/` come beside it.

Public: `Engine`, `SILENCE_S`. An engine knows `model` and nothing of the planner or the store. It remembers nothing
that matters: after a restart the controller tells it again.
"""

from __future__ import annotations

from typing import Protocol

from swell.model.assignment import Assignment
from swell.model.job import AttemptId, JobId
from swell.model.launch import Observation

SILENCE_S = 60.0  # a node that was not heard of, or is not ready, for longer is out of reach


class Engine(Protocol):
    """Somewhere tasks run. Remembers nothing; the store remembers."""

    def observe(self) -> Observation:
        """Nodes and runs as they are; tasks that changed since the last look (all of them after a restart)."""

    def start(self, assignment: Assignment) -> None:
        """One attempt, whole. The same assignment twice is harmless."""

    def stop(self, attempt: AttemptId, grace_s: float, generation: int, *, evicts: bool = False) -> None:
        """SIGTERM, grace, SIGKILL. An unknown attempt is success. `evicts`: where somebody guards its tasks against
        that, they may delay it."""

    def forget(self, attempt: AttemptId) -> None:
        """Its end is recorded; nothing of it needs to be watched any more."""

    def discard(self, job: JobId) -> None:
        """It was cancelled: what was made for it elsewhere may go, but for its logs."""

    def erase(self, attempt: AttemptId) -> None:
        """Its logs may go."""

    def log_size(self, attempt: AttemptId, index: int) -> int | None:
        """How far its log reaches; None when there is none."""

    def read_log(self, attempt: AttemptId, index: int, offset: int, limit: int) -> tuple[int, bytes]:
        """What is there from that offset on, and the offset it really begins at: a dropped beginning is skipped."""

    def log_offset_at(self, attempt: AttemptId, index: int, moment: float) -> int | None:
        """Where what was written since a moment begins, to about a second; None: nothing was."""
