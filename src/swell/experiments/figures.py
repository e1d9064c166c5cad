"""What came of one run, in numbers, and what of several runs of one contender?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from swell.experiments.events import EventKind, RunEvent
from swell.experiments.measure import GangAsked, GangOutcome, GangTimes, clock_difference, measure_gangs
from swell.experiments.occupancy import Occupied, area, held_over_time
from swell.experiments.statistics import Observed


class RunEnd(StrEnum):
    COMPLETE = "complete"  # every gang has ended
    STUCK = "stuck"  # nothing happened for the stated time
    OUT_OF_TIME = "out of time"  # the longest time that a run may take is over
    BROKEN = "broken"  # the contender or the cluster failed; the detail says how


@dataclass(frozen=True, slots=True)
class Capacity:
    """Of the whole cluster, without what others hold there during all runs."""

    nodes: int
    cpus_milli: int
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class RunFacts:
    """One run, beside its events."""

    contender: str
    repeat: int  #: counted from 1
    end: RunEnd
    watched_s: float  #: when it was over
    gangs: tuple[GangAsked, ...]
    capacity: Capacity
    detail: str = ""  #: of a stuck one: what waited, and why
    cpu_s: float | None = None  #: of the contender's own processes; None: not measured
    memory_mib: float | None = None  #: of these at their peak


@dataclass(frozen=True, slots=True)
class RunFigures:
    contender: str
    repeat: int
    end: RunEnd
    gangs: int
    done: int
    failed: int
    deleted: int
    unfinished: int
    makespan_s: float | None  #: first submission to last end; None: not all are done
    at_least_s: float  #: the same, or how long it was watched in vain
    utilization: float  #: part of the cluster's GPUs, or CPUs where it has none, that was held until then
    clogged_node_s: float  #: nodes held by incomplete gangs, times seconds
    clogged: float  #: part of all node-seconds until then
    gangs_per_s: float | None  #: first submission to the last gang that was bound whole; None: none was
    pods_per_s: float | None
    restarts: int
    clock_ahead_s: float  #: of the cluster's clock
    estimated: int  #: gangs with a moment that nobody saw
    cpu_s: float | None = None
    memory_mib: float | None = None


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    facts: RunFacts
    times: tuple[GangTimes, ...]
    curve: tuple[Occupied, ...]
    figures: RunFigures

    def totals(self, size: int | None = None) -> list[Observed]:
        """Submission to end, of gangs of one size or of all."""
        chosen = [one for one in self.times if size is None or one.size == size]
        return [Observed(one.total_s, one.is_censored) for one in chosen]


def measure_run(facts: RunFacts, events: Sequence[RunEvent]) -> MeasuredRun:
    times = measure_gangs(facts.gangs, events, facts.watched_s)
    curve = held_over_time(facts.gangs, events)
    return MeasuredRun(facts, times, curve, _figures(facts, events, times, curve))


def _figures(
    facts: RunFacts, events: Sequence[RunEvent], times: Sequence[GangTimes], curve: Sequence[Occupied]
) -> RunFigures:
    counts = {outcome: sum(one.outcome is outcome for one in times) for outcome in GangOutcome}
    begin = min((one.submitted_s for one in times), default=0.0)
    is_complete = counts[GangOutcome.DONE] == len(times) and bool(times)
    end = max((one.ended_s or 0.0 for one in times), default=0.0) if is_complete else facts.watched_s
    span = max(0.0, end - begin)
    clogged = area(curve, end, lambda held: held.clogged_nodes)
    bound = [one.bound_s for one in times if one.bound_s is not None]
    first_binds = {(event.gang, event.rank): event.at for event in reversed(events) if event.kind is EventKind.BOUND}
    return RunFigures(
        facts.contender,
        facts.repeat,
        facts.end,
        len(times),
        counts[GangOutcome.DONE],
        counts[GangOutcome.FAILED],
        counts[GangOutcome.DELETED],
        counts[GangOutcome.UNFINISHED],
        span if is_complete else None,
        span,
        _utilization(facts.capacity, curve, begin, end),
        clogged,
        clogged / (facts.capacity.nodes * span) if span and facts.capacity.nodes else 0.0,
        _rate(len(bound), bound, begin),
        _rate(len(first_binds), list(first_binds.values()), begin),
        sum(one.restarts for one in times),
        clock_difference(events),
        sum(bool(one.estimated) for one in times),
        facts.cpu_s,
        facts.memory_mib,
    )


def _utilization(capacity: Capacity, curve: Sequence[Occupied], begin: float, end: float) -> float:
    """Of GPUs where gangs hold any: their CPUs are there for them."""
    has_gpus = capacity.gpus and any(held.gpus for held in curve)
    whole = (capacity.gpus if has_gpus else capacity.cpus_milli) * (end - begin)
    used = area(curve, end, lambda held: held.gpus if has_gpus else held.cpus_milli)
    return used / whole if whole > 0 else 0.0


def _rate(count: int, moments: Sequence[float], begin: float) -> float | None:
    last = max(moments, default=begin)
    return count / (last - begin) if last > begin else None
