"""Does a run still make progress, and what waits when it is given up as stuck?

*Progress* is what happens for the first time, and a whole gang that runs: all its ranks at the same moment. What is
done again and again is none, and neither is a gang that is not whole, however long its ranks run: they wait for the
others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from swell.experiments.events import ENDS, LEAVES, EventKind, RunEvent
from swell.experiments.measure import GangAsked
from swell.model.quantity import number_of

NAMED_MAX = 8  # gangs in a sentence; the events have all of them
STEPS = ENDS | {EventKind.SUBMITTED, EventKind.CREATED, EventKind.BOUND, EventKind.RUNNING}  # towards the end of a gang


class RunProgress:
    """Decided on the events of a run alone, in the order in which they are told."""

    def __init__(self, gangs: Sequence[GangAsked]) -> None:
        self._sizes = {gang.name: gang.size for gang in gangs}
        self._seen: set[tuple[str, int | None, EventKind]] = set()
        self._running: defaultdict[str, set[int]] = defaultdict(set)
        self._whole: set[str] = set()  #: gangs of which all ranks run
        self._last = 0.0

    def apply(self, event: RunEvent) -> None:
        what = event.gang, event.rank, event.kind
        was_whole = event.gang in self._whole
        self._follow(event)
        if was_whole or (event.kind in STEPS and what not in self._seen):
            self._last = max(self._last, event.at)
        self._seen.add(what)

    def _follow(self, event: RunEvent) -> None:
        running = self._running[event.gang]
        if event.rank is None and event.kind is EventKind.DELETED:
            running.clear()
        elif event.rank is not None and event.kind is EventKind.RUNNING:
            running.add(event.rank)
        elif event.rank is not None and event.kind in LEAVES:
            running.discard(event.rank)
        if len(running) >= self._sizes[event.gang]:
            self._whole.add(event.gang)
        else:
            self._whole.discard(event.gang)

    def is_stuck(self, now_s: float, stuck_s: float) -> bool:
        """Was there none for longer than that?"""
        return not self._whole and now_s - self._last > stuck_s


def describe_waiting(
    gangs: Sequence[GangAsked], events: Sequence[RunEvent], reasons: Mapping[str, str] | None = None
) -> str:
    """One sentence; empty: every gang has ended. `reasons`: what the cluster says about a gang."""
    held: defaultdict[str, set[int]] = defaultdict(set)
    done: defaultdict[str, set[int]] = defaultdict(set)
    over: set[str] = set()
    for event in sorted(events, key=lambda event: event.at):
        if event.rank is None:
            over |= {event.gang} if event.kind is EventKind.DELETED else set()
        elif event.kind is EventKind.BOUND:
            held[event.gang].add(event.rank)
        elif event.kind in LEAVES:
            held[event.gang].discard(event.rank)
            done[event.gang] |= {event.rank} if event.kind is EventKind.SUCCEEDED else set()
            over |= {event.gang} if event.kind is EventKind.FAILED else set()
    left = [gang for gang in gangs if gang.name not in over and len(done[gang.name]) < gang.size]
    if not left:
        return ""
    left.sort(key=lambda gang: (-len(held[gang.name]), gang.name))
    named = [_one(gang, len(held[gang.name]), (reasons or {}).get(gang.name, "")) for gang in left[:NAMED_MAX]]
    halves = sum(0 < len(held[gang.name]) < gang.size for gang in left)
    more = f" and {len(left) - NAMED_MAX} more" if len(left) > NAMED_MAX else ""
    ended = f"{number_of(len(left), 'gang')} {'has' if len(left) == 1 else 'have'} not ended"
    held_back = f"{halves} of them " + ("holds" if halves == 1 else "hold") + " nodes without being whole"
    return f"{ended}, {held_back}: {'; '.join(named)}{more}"


def _one(gang: GangAsked, held: int, reason: str) -> str:
    return f"{gang.name} has {held} of {number_of(gang.size, 'rank')}" + (f" ({reason})" if reason else "")
