"""How many workers should a pool launch now, and which should it end?

Pure: what is known goes in, what to do comes out. The rules, in the order in which they count:

1. What cannot be asked is unknown, never zero: without the backend's answer or the server's, nothing is launched.
2. Never more than the maximum, counting every worker that may still run, launches under way and unknown states too.
3. After a failed start the pool waits, each time twice as long, and then launches one worker: when that registers, all
   is well again. So a backend that starts nothing is asked a few times an hour, whatever waits.
4. The minimum is filled at once.
5. For waiting jobs as many are launched as are missing, i.e. wanted and not under way, at the launch rate.
6. Workers that wait in the backend and that nobody wants any more are taken back after a while. Those that run leave by
   themselves when they are idle.
"""

from __future__ import annotations

from dataclasses import dataclass

from swell.model.pool import PoolDemand
from swell.pools.backend import WorkerState
from swell.pools.ledger import NO_TOTALS, LaunchedWorker, LaunchTotals
from swell.pools.options import PoolOptions

RETRY_S = 15.0  # after the first failed start
RETRY_S_MAX = 900.0
SURPLUS_S = 60.0  # jobs come in bursts; what waits in a queue has a place in it


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """What a pool knows at one moment."""

    now: float
    entries: tuple[LaunchedWorker, ...] | None  #: after the last look; None: the backend cannot be asked
    demand: PoolDemand | None  #: None: the server cannot be asked
    totals: LaunchTotals = NO_TOTALS
    surplus_since: float | None = None  #: since when more wait in the backend than anybody wants; None: not now
    has_launched: bool = True  #: workers that may still be there, as far as it remembers


@dataclass(frozen=True, slots=True)
class Decision:
    launch: int = 0  #: workers for waiting jobs
    standing: int = 0  #: workers that keep the minimum; launched too
    cancel: tuple[str, ...] = ()  #: ids of workers that should leave
    kill: tuple[str, ...] = ()  #: ids of workers that end at once
    surplus_since: float | None = None
    is_stopping: bool = False  #: somebody wants the pool to end
    ends: bool = False  #: the pool has nothing left to do


def decide(options: PoolOptions, facts: PoolFacts) -> Decision:
    if facts.entries is None and facts.demand is not None and facts.demand.is_stopping:
        return Decision(is_stopping=True, ends=not facts.has_launched)
    if facts.entries is None or facts.demand is None:
        return Decision(surplus_since=facts.surplus_since)
    live = tuple(entry for entry in facts.entries if entry.is_live)
    if facts.demand.is_stopping:
        return _stop(facts.demand, live)
    late = tuple(entry.id for entry in live if _is_late(options, entry, facts.now))
    surplus = _surplus(options, facts.demand, live)
    since = (facts.surplus_since if facts.surplus_since is not None else facts.now) if surplus else None
    is_over = since is not None and facts.now - since >= SURPLUS_S
    kills = frozenset(facts.demand.kills)
    forced = {entry.id for entry in live} & (frozenset(facts.demand.forced) | frozenset(late))
    leaving = {entry.id for entry in live} & (kills | frozenset(surplus if is_over else ())) - forced
    launch, standing = _launches(options, facts, live)
    return Decision(launch, standing, tuple(sorted(leaving)), tuple(sorted(forced)), since)


def _stop(demand: PoolDemand, live: tuple[LaunchedWorker, ...]) -> Decision:
    """Workers that have jobs are left alone, unless they are to end, too; they leave when they are idle."""
    useless = [entry.id for entry in live if demand.ends_workers or entry.is_standing or entry.is_under_way]
    return Decision(cancel=tuple(sorted(useless)), is_stopping=True, ends=not useless)


def _is_late(options: PoolOptions, entry: LaunchedWorker, now: float) -> bool:
    """It runs, costs, and was never heard of."""
    since = entry.running_since
    return not entry.has_registered and since is not None and now - since > options.start_s


def _launches(options: PoolOptions, facts: PoolFacts, live: tuple[LaunchedWorker, ...]) -> tuple[int, int]:
    """For waiting jobs, and for the minimum."""
    room = max(0, options.workers_max - len(live))
    missing = _missing(facts.demand, live)
    below = min(room, max(0, options.workers_min - len(live)))
    if facts.totals.failures:
        is_due = retry_s(facts.totals, facts.now) == 0 and not any(entry.is_under_way for entry in live)
        probe = min(room, 1) if is_due and (missing or below) else 0
        return (0, probe) if below else (probe, 0)
    if facts.now - facts.totals.launched_at < options.launch_s:
        missing = 0
    more = min(room - below, max(0, missing - below), options.launches_max)
    return more, below


def _missing(demand: PoolDemand | None, live: tuple[LaunchedWorker, ...]) -> int:
    if demand is None or demand.workers is None:
        return 0
    return max(0, demand.workers - sum(entry.is_under_way for entry in live))


def _surplus(options: PoolOptions, demand: PoolDemand, live: tuple[LaunchedWorker, ...]) -> list[str]:
    """Of those that wait in the backend, the youngest that nobody wants; none where nothing is known."""
    if demand.workers is None:
        return []
    coming = [entry for entry in live if entry.is_under_way]
    waiting = [entry.id for entry in coming if entry.state is WorkerState.PENDING and entry.seen_at is not None]
    unwanted = min(len(coming) - demand.workers, len(live) - options.workers_min)
    return waiting[len(waiting) - max(0, min(unwanted, len(waiting))) :]


def retry_s(totals: LaunchTotals, now: float) -> float:
    """Until the next launch may be tried after failed starts; 0: nothing is in the way."""
    if not totals.failures:
        return 0.0
    pause = min(RETRY_S * 2.0 ** min(totals.failures - 1, 10), RETRY_S_MAX)
    return max(0.0, totals.failed_at + pause - now)
