"""What follows from the events of a run: when did each gang wait, start and end, and who held which node meanwhile?

A gang's time is the sum of three: *wait* (submitted to all ranks bound), *start-up* (all bound to all running) and
*run* (all running to the last end). Its *spread* (first to last rank bound) is a part of the wait. A gang that was
evicted and began again counts with its last beginning. A gang without an end is *unfinished*: all that is known of
its time is that it is longer than it was watched, and it is never left out.

Moments that nobody saw. A rank that runs was bound before: where that was not seen, or was heard of late, its moment
is its stamp, moved by the difference of both clocks (the median over all events that have both), and kept between the
events before and after it. Without a stamp it is the moment of the next stage. Either is marked `estimated`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from swell.experiments.events import ENDS, EventKind, RunEvent

STAGES = (EventKind.CREATED, EventKind.BOUND, EventKind.RUNNING, EventKind.SUCCEEDED)


class GangOutcome(StrEnum):
    DONE = "done"
    FAILED = "failed"
    DELETED = "deleted"  # somebody took it away before its end
    UNFINISHED = "unfinished"


@dataclass(frozen=True, slots=True)
class GangAsked:
    """One gang of a workload."""

    name: str
    size: int
    submit_s: float = 0.0  #: since the run began
    cpus_milli: int = 1000  #: of each rank
    memory_mib: int = 0
    gpus: int = 0
    duration_s: float = 60.0  #: from all ranks running to the end
    size_max: int = 0  #: above `size`: it may be resized up to this; 0: it may not


@dataclass(frozen=True, slots=True)
class GangTimes:
    """What became of one gang; moments in seconds since the run began. None: that did not happen."""

    gang: str
    size: int
    outcome: GangOutcome
    submitted_s: float
    created_s: float | None  #: its last pod exists
    first_bound_s: float | None
    bound_s: float | None  #: its last rank has a node
    running_s: float | None  #: its last rank runs
    ended_s: float | None  #: its last rank has ended; of one that was deleted: when that was
    watched_s: float  #: until when anybody looked
    restarts: int = 0
    estimated: tuple[str, ...] = ()  #: stages with a moment that nobody saw

    @property
    def is_censored(self) -> bool:
        """Its time is at least what it says, and nobody knows how much longer."""
        return self.outcome in (GangOutcome.UNFINISHED, GangOutcome.DELETED)

    @property
    def wait_s(self) -> float | None:
        return _between(self.submitted_s, self.bound_s)

    @property
    def spread_s(self) -> float | None:
        return _between(self.first_bound_s, self.bound_s)

    @property
    def startup_s(self) -> float | None:
        return _between(self.bound_s, self.running_s)

    @property
    def run_s(self) -> float | None:
        return None if self.is_censored else _between(self.running_s, self.ended_s)

    @property
    def total_s(self) -> float:
        """Submitted to the last end; of a censored one until nobody looked any more, or it was taken away."""
        return max(0.0, (self.watched_s if self.ended_s is None else self.ended_s) - self.submitted_s)


def _between(begin: float | None, end: float | None) -> float | None:
    return None if begin is None or end is None else max(0.0, end - begin)


def clock_difference(events: Iterable[RunEvent]) -> float:
    """Seconds by which the cluster's clock is ahead of ours; 0 where no event says."""
    found = [event.stamp - event.at for event in events if event.stamp is not None and not event.is_late]
    return median(found) if found else 0.0


def measure_gangs(gangs: Sequence[GangAsked], events: Sequence[RunEvent], watched_s: float) -> tuple[GangTimes, ...]:
    """Of every gang that was to be submitted; `watched_s`: when the run was over."""
    by_gang: defaultdict[str, list[RunEvent]] = defaultdict(list)
    for event in sorted(events, key=lambda event: event.at):
        by_gang[event.gang].append(event)
    ahead = clock_difference(events)
    return tuple(_measure(gang, by_gang[gang.name], ahead, watched_s) for gang in gangs)


def _measure(gang: GangAsked, events: Sequence[RunEvent], ahead: float, watched_s: float) -> GangTimes:
    of_rank: defaultdict[int, list[RunEvent]] = defaultdict(list)
    for event in events:
        if event.rank is not None:
            of_rank[event.rank].append(event)
    ranks = [_rank(of_rank[rank], ahead) for rank in sorted(of_rank)]
    submitted = next((event.at for event in events if event.kind is EventKind.SUBMITTED), gang.submit_s)
    taken_at = next((event.at for event in events if event.kind is EventKind.DELETED and event.rank is None), None)
    outcome = _outcome(gang, ranks, taken_at)
    ended = _all([rank.end for rank in ranks], gang.size) if outcome in (GangOutcome.DONE, GangOutcome.FAILED) else None
    if outcome is GangOutcome.FAILED:
        ended = max((rank.end for rank in ranks if rank.end is not None), default=None)
    if outcome is GangOutcome.DELETED:
        ended = taken_at if taken_at is not None else max(rank.deleted for rank in ranks if rank.deleted is not None)
    return GangTimes(
        gang.name,
        gang.size,
        outcome,
        submitted,
        _all([rank.moments.get(EventKind.CREATED) for rank in ranks], gang.size),
        min((at for rank in ranks if (at := rank.moments.get(EventKind.BOUND)) is not None), default=None),
        _all([rank.moments.get(EventKind.BOUND) for rank in ranks], gang.size),
        _all([rank.moments.get(EventKind.RUNNING) for rank in ranks], gang.size),
        ended,
        watched_s,
        max((rank.restarts for rank in ranks), default=0),
        tuple(str(stage) for stage in STAGES if any(stage in rank.estimated for rank in ranks)),
    )


def _outcome(gang: GangAsked, ranks: Sequence[_Rank], taken_at: float | None) -> GangOutcome:
    """A gang whose ranks had all succeeded was cleared away; one of which a rank had not was taken away."""
    if sum(rank.has_succeeded for rank in ranks) >= gang.size:
        return GangOutcome.DONE
    if any(rank.has_failed for rank in ranks):
        return GangOutcome.FAILED
    is_gone = all(rank.deleted is not None or rank.has_succeeded for rank in ranks)
    if taken_at is not None or (is_gone and any(rank.deleted is not None for rank in ranks)):
        return GangOutcome.DELETED
    return GangOutcome.UNFINISHED


def _all(moments: Sequence[float | None], size: int) -> float | None:
    """The last of them, if as many ranks as there should be have one."""
    found = [moment for moment in moments if moment is not None]
    return max(found) if len(found) >= size else None


# -- one rank --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rank:
    """Its last beginning."""

    moments: Mapping[EventKind, float]
    estimated: frozenset[EventKind]
    end: float | None
    has_succeeded: bool
    has_failed: bool
    deleted: float | None  #: None: it is there, or has ended by itself before
    restarts: int


def _rank(events: Sequence[RunEvent], ahead: float) -> _Rank:
    lives = _beginnings(events)
    last = lives[-1]
    seen = {event.kind: event for event in last}
    moments, estimated = _moments(last, ahead)
    end = next((event.at for event in last if event.kind in ENDS), None)
    deleted = seen.get(EventKind.DELETED)
    return _Rank(
        moments,
        estimated,
        end,
        EventKind.SUCCEEDED in seen,
        EventKind.FAILED in seen,
        None if deleted is None or end is not None else deleted.at,
        len(lives) - 1,
    )


def _beginnings(events: Sequence[RunEvent]) -> list[list[RunEvent]]:
    """A rank that is created or bound after it left a node, or after it was bound elsewhere, begins again."""
    lives: list[list[RunEvent]] = [[]]
    for event in events:
        kinds = {one.kind for one in lives[-1]}
        is_again = event.kind in kinds and event.kind in (EventKind.CREATED, EventKind.BOUND)
        has_left = bool(kinds & {EventKind.RELEASED, EventKind.DELETED})
        if is_again or (has_left and event.kind in STAGES):
            lives.append([])
        lives[-1].append(event)
    return lives


def _moments(events: Sequence[RunEvent], ahead: float) -> tuple[dict[EventKind, float], frozenset[EventKind]]:
    """When it reached each stage, seen or concluded."""
    seen = {event.kind: event for event in events}
    reached = [
        stage for stage in STAGES if stage in seen or (stage is EventKind.SUCCEEDED and EventKind.FAILED in seen)
    ]
    if not reached:
        return {}, frozenset()
    moments: dict[EventKind, float] = {}
    estimated: set[EventKind] = set()
    later = max(event.at for event in events)
    for stage in reversed(STAGES[: STAGES.index(reached[-1]) + 1]):
        event = seen.get(stage)
        if event is not None and not event.is_late:
            moments[stage] = event.at
        elif stage is not EventKind.SUCCEEDED:
            earlier = max((one.at for one in events if one.kind in STAGES[: STAGES.index(stage)]), default=0.0)
            known = later if event is None or event.stamp is None else event.stamp - ahead
            moments[stage] = min(later, max(min(earlier, later), known))
            estimated.add(stage)
        later = moments.get(stage, later)
    return moments, frozenset(estimated)
