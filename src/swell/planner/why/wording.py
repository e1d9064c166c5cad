"""In which words are reasons told? Of workers on machines, or of a cluster's nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from swell.model.reason import Code, Evidence, Reason
from swell.planner.why import explain, recorded
from swell.planner.why.asking import Asking
from swell.planner.why.waiting import WaitingJob


@dataclass(frozen=True, slots=True)
class Wording:
    waiting: Mapping[Code, Callable[[WaitingJob], Reason]]  #: of jobs that wait
    recorded: Mapping[Code, Callable[[Evidence, Asking], tuple[str, str]]]  #: of jobs that run or have ended


ON_MACHINES = Wording(explain.WAITING, recorded.RECORDED)
ON_CLUSTER = Wording(explain.WAITING_ON_CLUSTER, recorded.RECORDED_ON_CLUSTER)
