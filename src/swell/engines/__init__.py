"""Where tasks run. One protocol; `workers/` is the default, `kubernetes/` and `simulated/` come beside it.

Public: `Engine`. An engine knows `model` and nothing of the planner or the store. It remembers nothing that
matters: after a restart the controller tells it again.
"""

from __future__ import annotations

from typing import Protocol

from swell.model.job import AttemptId, JobId
from swell.model.launch import Launch, Observation


class Engine(Protocol):
    """Somewhere tasks run. Remembers nothing; the store remembers."""

    def observe(self) -> Observation:
        """Nodes and runs as they are; tasks that changed since the last look (all of them after a restart)."""

    def start(self, launches: tuple[Launch, ...]) -> None:
        """One attempt's part on every node it is on. The same launches twice are harmless."""

    def stop(self, attempt: AttemptId, grace_s: float, generation: int) -> None:
        """SIGTERM, grace, SIGKILL. An unknown attempt is success."""

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
