"""What waits, and how far has it come? For a run that is given up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from swell.experiments.events import LEAVES, EventKind, RunEvent
from swell.experiments.measure import GangAsked
from swell.model.quantity import number_of

NAMED_MAX = 8  # gangs in a sentence; the events have all of them


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
