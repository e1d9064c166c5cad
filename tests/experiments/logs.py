"""Made-up events with known answers: `pod("a", 0, created=0, bound=2, running=3, succeeded=13)`."""

from __future__ import annotations

from swell.experiments.events import EventKind, RunEvent
from swell.experiments.figures import Capacity, MeasuredRun, RunEnd, RunFacts, measure_run
from swell.experiments.measure import GangAsked

FOUR_NODES = Capacity(nodes=4, cpus_milli=4000)


def gang(name: str, size: int, submit_s: float = 0.0) -> GangAsked:
    return GangAsked(name, size, submit_s)


def submitted(name: str, at: float = 0.0) -> RunEvent:
    return RunEvent(at, EventKind.SUBMITTED, name)


def pod(name: str, rank: int, node: str = "n0", **moments: float) -> list[RunEvent]:
    return [RunEvent(at, EventKind(kind), name, rank, node if kind == "bound" else "") for kind, at in moments.items()]


def run(
    gangs: list[GangAsked],
    events: list[RunEvent],
    *,
    watched_s: float,
    contender: str = "swell",
    repeat: int = 1,
    end: RunEnd = RunEnd.COMPLETE,
) -> MeasuredRun:
    return measure_run(RunFacts(contender, repeat, end, watched_s, tuple(gangs), FOUR_NODES), events)
