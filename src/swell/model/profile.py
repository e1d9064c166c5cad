"""What has been measured of a job while it trained?"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Training:
    """What the planner may know of a job that reports: how fast, how far, what a restart costs."""

    left: float | None = None  #: epochs still to do after the last durable one; None: nobody knows
    epoch_s: tuple[tuple[int, float], ...] = ()  #: width → seconds for one epoch, where it was measured; ascending
    restart_s: float | None = None  #: from the stop of training to training again; None: never measured
    checkpoint_at: float | None = None  #: when work was last made durable; None: never
    checkpoint_every_s: float | None = None  #: how long from one to the next; None: not known
