"""What can be told of a cycle that is over?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from swell.store import EventRecord


@dataclass(frozen=True, slots=True)
class Cycled:
    events: Sequence[EventRecord]  #: what was recorded
    restarts_s: Sequence[float]  #: of jobs that began to train: what their start cost
    plan_s: float  #: CPU time of making the plan and checking it
    cycle_s: float  #: from the look at the world until everything was asked for
