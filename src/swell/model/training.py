"""What does a job say of itself while it trains, what is remembered of that, and what is it asked to do?"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from swell.model.job import AttemptId, ResizeMode
from swell.model.profile import Training

NEW_WEIGHT = 0.3  # of a new measurement against all before it: follows a change within a few epochs
METRICS_MAX = 50
WARM_UP_S = 300.0  # of a first epoch longer than this warming up is a small part


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A durable point the job can resume from."""

    epochs_done: float
    path: str | None  #: None: the job finds it by itself
    at: float
    attempt: int


@dataclass(frozen=True, slots=True)
class Report:
    """One report of a job; docs/reports.md is the contract."""

    attempt: AttemptId
    rank: int
    begun: int | None = None  #: None: not said; so for all of them
    epochs_done: float | None = None
    epochs_total: float | None = None
    epochs: tuple[tuple[int, float], ...] = ()
    steps: tuple[int, float] | None = None
    memory_mib: float | None = None
    checkpoint: Checkpoint | None = None
    metrics: tuple[tuple[str, float], ...] = ()
    left_s: float | None = None  #: the job's own estimate of what is left
    is_yielding: bool = False
    is_ready: bool = False  #: to be stopped: all it did is durable, and it only waits for that
    is_deaf: bool = False  #: it never asks what it should do, so it is stopped where it has made its work durable
    saves_later: bool = False  #: it saves an epoch after it has reported it: durable at the latest by a clean end


@dataclass(frozen=True, slots=True)
class Control:
    """What a job is told in answer."""

    stop_after_epoch: int | None = None  #: None: go on
    yield_now: bool = False


@dataclass(frozen=True, slots=True)
class Resume:
    """What an attempt was told to go on from."""

    epochs_done: float = 0.0
    checkpoint: str | None = None  #: path; None: none, or the job finds it by itself
    used_s: float = 0.0  #: run time of the attempts before it


@dataclass(frozen=True, slots=True)
class Asked:
    """It was asked to give its room back."""

    width: int  #: to come back with; 0: when its turn comes
    when: ResizeMode
    cause: str  #: in words
    at: float
    deadline_at: float | None = None  #: None: it takes the time it takes
    room_for: int | None = None  #: the job that waits for it; None: nobody in particular
    stop_after_epoch: int | None = None  #: None: not by epochs

    def to_document(self) -> dict[str, Any]:
        return {**asdict(self), "when": str(self.when)}

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Asked:
        return cls(**{**document, "when": ResizeMode(document["when"])})


@dataclass(frozen=True, slots=True)
class Measure:
    """What was measured at one width, on so many nodes."""

    width: int
    nodes: int
    epochs: int = 0
    epoch_s: float | None = None  #: None: no epoch was finished at this width
    is_warm: bool = False  #: `epoch_s` is of epochs that were not the first of their attempt
    steps: int = 0
    step_s: float | None = None
    memory_mib: float | None = None

    def with_epoch(self, seconds: float, *, is_first: bool) -> Measure:
        """The first of an attempt includes its warming up: it counts until one that does not is known."""
        known = self.epoch_s
        if is_first and seconds < WARM_UP_S:
            if not self.is_warm:
                known = seconds if known is None else min(known, seconds)
            return replace(self, epochs=self.epochs + 1, epoch_s=known)
        mix = mixed(known if self.is_warm else None, seconds)
        return replace(self, epochs=self.epochs + 1, epoch_s=mix, is_warm=True)

    def with_steps(self, count: int, seconds: float) -> Measure:
        if count < 1:
            return self
        return replace(self, steps=self.steps + count, step_s=mixed(self.step_s, seconds / count))

    def with_memory(self, mib: float) -> Measure:
        return replace(self, memory_mib=max(self.memory_mib or 0.0, mib))


def mixed(known: float | None, new: float) -> float:
    return new if known is None else (1 - NEW_WEIGHT) * known + NEW_WEIGHT * new


@dataclass(frozen=True, slots=True)
class TrainingRecord:
    """All that is remembered of a job's training, over all its attempts."""

    epochs_done: float = 0.0  #: finished, durable or not
    epochs_total: float | None = None  #: None: nobody said
    checkpoint: Checkpoint | None = None  #: the last that was reported; None: none yet
    every_s: float | None = None  #: from one checkpoint to the next; None: not known
    restart_s: float | None = None  #: from the stop of training to training again; None: not measured
    profile: tuple[Measure, ...] = ()  #: by width, then nodes
    metrics: dict[str, float] = field(default_factory=dict)
    ends_at: float | None = None  #: when it is expected to be done, were nothing to change; None: not known
    yielded: int | None = None  #: the attempt that said it ends because it was asked to; None: none did
    saves_later: int | None = None  #: the attempt whose epochs are durable once it has ended cleanly; None: none

    @property
    def left(self) -> float | None:
        """Epochs after the durable ones; None: not known."""
        durable = self.checkpoint.epochs_done if self.checkpoint else 0.0
        return None if self.epochs_total is None else max(0.0, self.epochs_total - durable)

    def measure(self, width: int, nodes: int) -> Measure:
        known = (one for one in self.profile if (one.width, one.nodes) == (width, nodes))
        return next(known, Measure(width, nodes))

    def with_measure(self, measure: Measure) -> TrainingRecord:
        others = [one for one in self.profile if (one.width, one.nodes) != (measure.width, measure.nodes)]
        return replace(self, profile=tuple(sorted([*others, measure], key=lambda one: (one.width, one.nodes))))

    def epoch_s(self) -> tuple[tuple[int, float], ...]:
        """By width, on whatever placement it was slowest: a compact one cannot be counted on.

        A width whose epochs were all the first of their attempts is as good as unknown, unless all are: it would look
        no faster than a narrower one, and the job would give it up before it was measured.
        """
        is_any_warm = any(one.is_warm for one in self.profile)
        slowest: dict[int, float] = {}
        for one in self.profile:
            if one.epoch_s is not None and one.is_warm >= is_any_warm:
                slowest[one.width] = max(slowest.get(one.width, 0.0), one.epoch_s)
        return tuple(sorted(slowest.items()))

    def for_planner(self) -> Training:
        at = None if self.checkpoint is None else self.checkpoint.at
        return Training(self.left, self.epoch_s(), self.restart_s, at, self.every_s)

    def to_document(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> TrainingRecord:
        checkpoint = document["checkpoint"]
        return cls(
            **{
                **document,
                "checkpoint": None if checkpoint is None else Checkpoint(**checkpoint),
                "profile": tuple(Measure(**one) for one in document["profile"]),
            }
        )
