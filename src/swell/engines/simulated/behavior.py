"""How does a simulated job behave: how fast is it, what does it report, what happens when it is stopped?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

STEPS = 1000  # of an epoch, where nobody says how many there are
Placement = tuple[int, ...]  #: GPUs (or tasks, of a job without GPUs) on each node, in the order of ranks


class Saving(StrEnum):
    """When a job makes its work durable."""

    AT_ONCE = "at-once"  # when it is stopped, in no time: what published simulators assume
    WHEN_ASKED = "when-asked"  # when it is asked to stop, after the step it is in
    EPOCHS = "epochs"  # at the end of each epoch, and at no other time
    NEVER = "never"  # a job that is stopped begins again


class Speed(Protocol):
    """How long the epochs of a job take."""

    def epoch_s(self, placement: Placement, epoch: int) -> float:
        """Of the epoch with this number, from 0."""

    def remaining_s(self, placement: Placement, first: int, epochs: int) -> float:
        """Of all epochs from the first of these numbers up to the last of so many."""

    def steps(self, placement: Placement, epoch: int) -> int:
        """Of the epoch with this number: as many as a job that counts them would report."""


@dataclass(frozen=True)
class Table:
    """Seconds of an epoch by (nodes, width); all epochs are alike. What is not there counts like the nearest width."""

    seconds: Mapping[tuple[int, int], float]
    _found: dict[tuple[int, int], float] = field(default_factory=dict, init=False, compare=False, repr=False)

    def epoch_s(self, placement: Placement, epoch: int) -> float:
        where = len(placement), sum(placement)
        if where not in self._found:
            self._found[where] = self.seconds.get(where) or self._nearest(*where)
        return self._found[where]

    def _nearest(self, nodes: int, width: int) -> float:
        """Of the widest that is not wider, on as many nodes as are known."""
        widths = {known for _, known in self.seconds}
        nearest = max((known for known in widths if known <= width), default=min(widths))
        of_width = {known: seconds for (known, one), seconds in self.seconds.items() if one == nearest}
        on_fewer = [known for known in of_width if known <= nodes]
        return of_width[max(on_fewer) if on_fewer else min(of_width)]

    def remaining_s(self, placement: Placement, first: int, epochs: int) -> float:
        return (epochs - first) * self.epoch_s(placement, first)

    def steps(self, placement: Placement, epoch: int) -> int:
        return STEPS


@dataclass(frozen=True)
class Behavior:
    """What a job does from its start to its end."""

    speed: Speed
    epochs: int
    saving: Saving
    restart_s: float = 0.0  #: from the start of its processes to training
    save_s: float = 0.0  #: from being asked to stop to its end, where it saves when asked
    reports: bool = True  #: False: it tells nothing of itself
    whole_seconds: bool = False  #: an epoch takes a whole number of seconds, as in the published simulator of Pollux
    exit_code: int = 0
    gang: str = ""  #: jobs of one gang do nothing until so many of it run; empty: it waits for nobody
    gang_size: int = 1

    def epoch_s(self, placement: Placement, epoch: int) -> float:
        return self.speed.epoch_s(placement, epoch)
