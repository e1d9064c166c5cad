"""What was an attempt told at its start, what was it asked since, and why is it being stopped?"""

from __future__ import annotations

from dataclasses import dataclass

from swell.model.job import ResizeMode
from swell.model.reason import Code, Evidence


@dataclass(frozen=True, slots=True)
class Resume:
    """What an attempt was told to go on from."""

    epochs_done: float = 0.0
    checkpoint: str | None = None  #: path; None: none, or the job finds it by itself
    used_s: float = 0.0  #: run time of the attempts before it
    steps_done: int = 0  #: of the epoch that the checkpoint lies in; 0: between epochs
    steps_total: int | None = None  #: of that epoch, at the width it was made at; None: not known
    samples_done: int | None = None  #: of that epoch; None: only steps were counted


@dataclass(frozen=True, slots=True)
class Asked:
    """An attempt was asked to give its room back."""

    width: int  #: to come back with; 0: when its turn comes
    when: ResizeMode
    cause: str  #: in words
    at: float
    deadline_at: float | None = None  #: None: it takes the time it takes
    room_for: int | None = None  #: the job that waits for it; None: nobody in particular
    stop_after_epoch: int | None = None  #: None: not by epochs
    tells_step: bool = False  #: its ranks are asked where they are, so that a step for all of them can be chosen
    stop_at_step: tuple[int, int] | None = None  #: epoch from 0, and step of the attempt; None: not inside an epoch


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason with which a job fails once all its processes have ended."""

    code: Code
    evidence: Evidence  #: for people; nothing is decided by it


@dataclass(frozen=True, slots=True)
class Stopping:
    """An attempt was sent SIGTERM, and gets SIGKILL when the grace is over."""

    cause: str  #: in words
    grace_s: float
    cancelled_by: str | None = None  #: who had cancelled the job by then; None: nobody had
    failure: Failure | None = None  #: what the job fails with; None: how its tasks end tells
    evicts: bool = False  #: its pods are evicted, as far as PodDisruptionBudgets allow it

    def is_as_urgent_as(self, *, cancelled_by: str | None, grace_s: float | None) -> bool:
        """False: since then the job was cancelled, or cancelled again with less grace. `grace_s` None: any will do."""
        if cancelled_by is None:
            return True
        return self.cancelled_by is not None and (grace_s is None or grace_s >= self.grace_s)
