"""What does the server not know yet?

Training adds, the reporter takes. Everything is the newest state or a sum, so it stays small however long the server
is away: only finished epochs are a list, and that one is bounded. A report is taken by copying; what it said is
removed when it has been answered, by identity, so that what was added while it was on its way stays.

Steps are running totals that only training writes, without a lock: a lock per step would be the dearest part of it.
The reporter remembers the totals it has told.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Deque, Dict, Optional, Tuple

from swell_sdk.orders import Position
from swell_sdk.voice import say

EPOCHS_PER_REPORT_MAX = 200  # docs/reports.md
EPOCHS_KEPT_MAX = 1000  # older ones are forgotten when the server is away for that many epochs
METRICS_MAX = 50  # docs/reports.md
METRIC_NAME_MAX = 100  # characters; 50 of these stay far below the 64 KiB of a report


@dataclass(frozen=True)
class Inside:
    """How far into an epoch a checkpoint was made."""

    steps_done: int
    steps_total: Optional[int] = None  #: of the whole epoch at this width; None: not known
    samples_done: Optional[int] = None  #: by all ranks together; None: only steps are counted

    def to_document(self) -> Dict[str, Any]:
        document = {"steps_done": self.steps_done, "steps_total": self.steps_total, "samples_done": self.samples_done}
        return {name: number for name, number in document.items() if number is not None}


@dataclass(frozen=True)
class Checkpoint:
    epochs_done: int
    path: Optional[str]  #: inside the job's folder; None: the job finds it by itself
    at: float  #: unix seconds
    keep: int = 0  #: how many of ours stay once the server knows of this one; 0: not ours to remove
    inside: Optional[Inside] = None  #: how far into the next epoch; None: at its beginning

    @property
    def done(self) -> Tuple[int, int]:
        return self.epochs_done, self.inside.steps_done if self.inside else 0

    def to_document(self) -> Dict[str, Any]:
        document = {"epochs_done": self.epochs_done, "path": self.path, "at": self.at}
        return document if self.inside is None else {**document, **self.inside.to_document()}


#: begun, epochs_done, epochs_total, yielding, ready to stop
Figures = Tuple[int, int, Optional[int], bool, bool]


@dataclass(frozen=True)
class Report:
    """What was taken, to be settled when it has been answered."""

    rank: int
    figures: Figures
    steps: Tuple[int, float] = (0, 0.0)  #: running totals when it was taken
    steps_since: Tuple[int, float] = (0, 0.0)
    epochs: Tuple[Tuple[int, float], ...] = ()
    checkpoint: Optional[Checkpoint] = None
    metrics: Dict[str, float] = field(default_factory=dict)
    memory_mib: Optional[float] = None
    steps_per_epoch: Optional[int] = None  #: None: not known

    @property
    def is_bare(self) -> bool:
        """Nothing in it but progress and a checkpoint?"""
        return not (self.epochs or self.steps_since[0] or self.metrics or self.memory_mib is not None)

    def to_document(self) -> Dict[str, Any]:
        begun, epochs_done, epochs_total, yielding, is_ready = self.figures
        document: Dict[str, Any] = {"rank": self.rank, "begun": begun, "epochs_done": epochs_done}
        if epochs_total is not None:
            document["epochs_total"] = epochs_total
        if yielding:
            document["yielding"] = True
        if is_ready:
            document["ready_to_stop"] = True
        if self.epochs:
            document["epochs"] = [list(epoch) for epoch in self.epochs]
        if self.steps_since[0]:
            document["steps"] = list(self.steps_since)
            if self.steps_per_epoch is not None:
                document["steps_per_epoch"] = self.steps_per_epoch
        if self.memory_mib is not None:
            document["memory_mib"] = self.memory_mib
        if self.checkpoint is not None:
            document["checkpoint"] = self.checkpoint.to_document()
        if self.metrics:
            document["metrics"] = self.metrics
        return document


class News:
    def __init__(self, rank: int, epochs_done: int, epochs_total: Optional[int], world_size: int = 1) -> None:
        self.rank = rank
        self.begun = epochs_done  #: epochs begun so far, earlier attempts included
        self.epochs_done = epochs_done  #: durable or not; never goes back
        self.epochs_total = epochs_total
        self.yielding = False
        self.is_ready = False  #: to be stopped: everything is durable, and it only waits
        self.steps = 0
        self.step_seconds = 0.0
        self.steps_per_epoch: Optional[int] = None  #: at this width; None: not known
        self.position: Position = (epochs_done, 0)  #: replaced whole, by training
        self.can_stop_at_steps = False  #: this rank compares its steps with what it is asked, and can save there
        self.world_size = world_size
        # Re-entrant: a script's own signal handler may save while training is in here.
        self._lock = threading.RLock()
        self._told: Optional[Figures] = None  #: None: the server has not heard from us
        self._steps_told: Tuple[int, float] = (0, 0.0)
        self._epochs: Deque[Tuple[int, float]] = deque(maxlen=EPOCHS_KEPT_MAX)
        self._checkpoint: Optional[Checkpoint] = None  #: None: the server knows the newest
        self._metrics: Dict[str, float] = {}
        self._memory_mib: Optional[float] = None
        self._is_next_bare = False

    def begin_epoch(self, number: int) -> None:
        self.begun = max(self.begun, number)

    def end_epoch(self, number: int, seconds: Optional[float]) -> None:
        """`seconds`: of the whole epoch; None: only a part of it was done in this attempt, and nobody knows."""
        with self._lock:
            self.epochs_done = max(self.epochs_done, number)
            self.begun = max(self.begun, number)
            if seconds is not None:
                self._epochs.append((number, seconds))

    def add_checkpoint(self, checkpoint: Checkpoint) -> None:
        """A checkpoint of n epochs says that n are done, also when the last one's body has yet to end."""
        with self._lock:
            self._checkpoint = checkpoint
            self.epochs_done = max(self.epochs_done, checkpoint.epochs_done)
            self.begun = max(self.begun, checkpoint.epochs_done)

    def add_metric(self, name: str, value: Any) -> None:
        try:
            number = float(value)
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            say("metric", f"metric {name!r} is not a number and was not sent: {error}")
            return
        if not math.isfinite(number):
            return
        with self._lock:
            self._metrics.pop(str(name)[:METRIC_NAME_MAX], None)  # to the end: the newest stay
            self._metrics[str(name)[:METRIC_NAME_MAX]] = number
            while len(self._metrics) > METRICS_MAX:
                del self._metrics[next(iter(self._metrics))]

    def add_memory(self, mib: Any) -> None:
        try:
            number = float(mib)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            return
        if math.isfinite(number) and number >= 0:
            with self._lock:
                self._memory_mib = max(number, self._memory_mib or 0.0)

    @property
    def step_mean_s(self) -> float:
        """How long a step of this attempt takes; 0: none was timed."""
        return self.step_seconds / self.steps if self.steps else 0.0

    @property
    def checkpoint(self) -> Optional[Checkpoint]:
        """Not yet known to the server. None: there is nothing to lose."""
        return self._checkpoint

    def take(self) -> Optional[Report]:
        """All of it, or None when the server knows everything."""
        with self._lock:
            report = Report(self.rank, self._figures(), checkpoint=self._checkpoint)
            if not self._is_next_bare:
                report = self._with_details(report)
            has_news = report.figures != self._told or report.checkpoint is not None or not report.is_bare
            return report if has_news else None

    def settle(self, report: Report) -> None:
        """It was taken: what it said is no news any more."""
        with self._lock:
            self._forget_details(report)
            self._told = report.figures
            self._is_next_bare = False
            if self._checkpoint is report.checkpoint:
                self._checkpoint = None

    def refuse(self, report: Report) -> None:
        """The server will never take it. Progress and checkpoint get one more chance without the rest."""
        if report.figures[-1]:
            self.is_ready = False  # a server of before does not know the word
            return
        if report.is_bare:
            self.settle(report)
            return
        with self._lock:
            self._forget_details(report)
            self._is_next_bare = True

    def _figures(self) -> Figures:
        return self.begun, self.epochs_done, self.epochs_total, self.yielding, self.is_ready

    def _with_details(self, report: Report) -> Report:
        steps, seconds = self.steps, self.step_seconds
        told_steps, told_seconds = self._steps_told
        return Report(
            report.rank,
            report.figures,
            steps=(steps, seconds),
            steps_since=(steps - told_steps, max(0.0, seconds - told_seconds)),
            epochs=tuple(self._epochs)[:EPOCHS_PER_REPORT_MAX],
            checkpoint=report.checkpoint,
            metrics=dict(self._metrics),
            memory_mib=self._memory_mib,
            steps_per_epoch=self.steps_per_epoch,
        )

    def _forget_details(self, report: Report) -> None:
        if report.steps_since[0]:
            self._steps_told = report.steps
        for epoch in report.epochs:
            if self._epochs and self._epochs[0] is epoch:
                self._epochs.popleft()
        for name, value in report.metrics.items():
            if self._metrics.get(name) is value:
                del self._metrics[name]
        if self._memory_mib is report.memory_mib:
            self._memory_mib = None
