"""What may a job's report say? The form of docs/reports.md, however it comes: sent, or left for us to find.

Everything is bounded: reports come from code that is not ours.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from swell.model.job import AttemptId
from swell.model.training import METRICS_MAX, Checkpoint, Report

EPOCHS_PER_REPORT_MAX = 200
EPOCHS_MAX = 10**9
RANKS_MAX = 1_000_000
SECONDS_MAX = 10**9
STEPS_MAX = 2**63 - 1  # what the store can hold
PART_MAX = 0.9999  # of an epoch that is not done, whatever its steps say

Finite = Annotated[float, Field(allow_inf_nan=False)]
Epochs = Annotated[float, Field(ge=0, le=EPOCHS_MAX, allow_inf_nan=False)]
Steps = Annotated[int, Field(ge=0, le=STEPS_MAX)]
Seconds = Annotated[float, Field(ge=0, le=SECONDS_MAX, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1, max_length=100)]


class CheckpointIn(BaseModel):
    model_config = ConfigDict(extra="forbid")
    epochs_done: Epochs
    path: str | None = Field(default=None, max_length=4096)
    at: Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)] = 0.0
    steps_done: Steps = 0
    steps_total: Steps | None = None
    samples_done: Steps | None = None

    def of(self, attempt: AttemptId, path: str | None, now: float) -> Checkpoint:
        """`path`: as seen from the job's folder, when somebody has looked."""
        return Checkpoint(
            self.epochs_done + self._part(),
            path,
            self.at or now,
            attempt.number,
            self.steps_done,
            self.steps_total,
            self.samples_done,
        )

    def _part(self) -> float:
        """Of the epoch under way."""
        if not self.steps_done or not self.steps_total:
            return 0.0
        return min(round(self.steps_done / self.steps_total, 4), PART_MAX)


class ReportIn(BaseModel):
    model_config = ConfigDict(extra="forbid")
    rank: int = Field(ge=0, le=RANKS_MAX)
    at: Finite | None = None
    begun: int | None = Field(default=None, ge=0, le=EPOCHS_MAX)
    epochs_done: Epochs | None = None
    epochs_total: Epochs | None = None
    epochs: list[tuple[int, Seconds]] = Field(default_factory=list, max_length=EPOCHS_PER_REPORT_MAX)
    steps: tuple[Steps, Seconds] | None = None
    steps_per_epoch: Steps | None = None
    memory_mib: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] | None = None
    checkpoint: CheckpointIn | None = None
    metrics: dict[Name, Finite] = Field(default_factory=dict, max_length=METRICS_MAX)
    yielding: bool = False
    ready_to_stop: bool = False

    def of(self, attempt: AttemptId, checkpoint: Checkpoint | None) -> Report:
        """`checkpoint`: ours, when somebody has looked where it lies."""
        told = self.model_dump(exclude={"at", "yielding", "ready_to_stop", "checkpoint", "metrics", "epochs", "steps"})
        return Report(
            attempt,
            **told,
            epochs=tuple(self.epochs),
            steps=self.steps,
            checkpoint=checkpoint,
            metrics=tuple(self.metrics.items()),
            is_yielding=self.yielding,
            is_ready=self.ready_to_stop,
        )
