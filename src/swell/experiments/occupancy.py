"""Who held the nodes of a cluster, moment by moment, and was it of any use?

A rank holds its node from its binding until it ends, is released or deleted. A gang is *incomplete* while not all of
its ranks have a node (or have succeeded): what its ranks hold meanwhile is clogged, because they only wait for the
others.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from swell.experiments.events import LEAVES, EventKind, RunEvent
from swell.experiments.measure import GangAsked


@dataclass(frozen=True, slots=True)
class Occupied:
    """What is held from this moment until the next."""

    at: float
    ranks: int
    cpus_milli: int
    gpus: int
    clogged_nodes: int  #: nodes on which an incomplete gang has a rank


@dataclass(frozen=True, slots=True)
class Stay:
    """One rank on one node."""

    gang: str
    rank: int
    node: str
    begin_s: float
    end_s: float


def held_over_time(gangs: Sequence[GangAsked], events: Sequence[RunEvent]) -> tuple[Occupied, ...]:
    asked = {gang.name: gang for gang in gangs}
    now = _Nodes(asked)
    in_order = sorted(events, key=lambda event: event.at)
    curve = [Occupied(0.0, 0, 0, 0, 0), *(now.held(event.at) for event in in_order if now.apply(event))]
    return tuple({held.at: held for held in curve}.values())  # of one moment, how it was left


def stays(events: Sequence[RunEvent], watched_s: float) -> tuple[Stay, ...]:
    """Of every rank that ever had a node; one that has not ended stays until nobody looked any more."""
    found: list[Stay] = []
    since: dict[tuple[str, int], tuple[str, float]] = {}
    for event in sorted(events, key=lambda event: event.at):
        for rank in _ranks(event, since):
            key = event.gang, rank
            if key in since and (event.kind in LEAVES or event.kind is EventKind.BOUND):
                node, begin = since.pop(key)
                found.append(Stay(*key, node, begin, event.at))
            if event.kind is EventKind.BOUND:
                since[key] = event.node, event.at
    found += [Stay(*key, node, begin, max(begin, watched_s)) for key, (node, begin) in since.items()]
    return tuple(sorted(found, key=lambda stay: (stay.begin_s, stay.gang, stay.rank)))


def _ranks(event: RunEvent, known: Iterable[tuple[str, int]]) -> list[int]:
    """Whom it is about: one rank, or all of a gang that is deleted."""
    if event.rank is not None:
        return [event.rank]
    is_all = event.kind is EventKind.DELETED
    return [rank for gang, rank in list(known) if gang == event.gang] if is_all else []


class _Nodes:
    def __init__(self, asked: Mapping[str, GangAsked]) -> None:
        self._asked = asked
        self._held: dict[tuple[str, int], str] = {}
        self._whole: defaultdict[str, set[int]] = defaultdict(set)  #: ranks with a node, or that have succeeded
        self._of_node: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._cpus = self._gpus = 0

    def apply(self, event: RunEvent) -> bool:
        """Did anything change?"""
        gang = self._asked.get(event.gang)
        if gang is None:
            return False
        has_changed = False
        for rank in _ranks(event, self._held):
            has_changed |= self._apply(event, gang, rank)
        return has_changed

    def _apply(self, event: RunEvent, gang: GangAsked, rank: int) -> bool:
        is_bound = event.kind is EventKind.BOUND
        if not is_bound and event.kind not in LEAVES:
            return False
        self._leave(gang, rank)
        if is_bound:
            self._held[gang.name, rank] = event.node
            self._of_node[event.node][gang.name] += 1
            self._cpus += gang.cpus_milli
            self._gpus += gang.gpus
        if is_bound or event.kind is EventKind.SUCCEEDED:
            self._whole[gang.name].add(rank)
        elif event.kind is not EventKind.DELETED or not self._is_over(gang):
            self._whole[gang.name].discard(rank)
        return True

    def _is_over(self, gang: GangAsked) -> bool:
        """All its ranks have left their nodes: clearing away its pods changes nothing."""
        return len(self._whole[gang.name]) >= gang.size and not any(name == gang.name for name, _ in self._held)

    def _leave(self, gang: GangAsked, rank: int) -> None:
        node = self._held.pop((gang.name, rank), None)
        if node is None:
            return
        self._of_node[node][gang.name] -= 1
        if not self._of_node[node][gang.name]:
            del self._of_node[node][gang.name]
        self._cpus -= gang.cpus_milli
        self._gpus -= gang.gpus

    def held(self, at: float) -> Occupied:
        clogged = sum(any(self._is_incomplete(name) for name in on) for on in self._of_node.values())
        return Occupied(at, len(self._held), self._cpus, self._gpus, clogged)

    def _is_incomplete(self, name: str) -> bool:
        return len(self._whole[name]) < self._asked[name].size


def area(curve: Sequence[Occupied], until_s: float, value: Callable[[Occupied], float]) -> float:
    """Of what is held, times the seconds that it is held for."""
    ends = [held for held in curve if held.at < until_s]
    if not ends:
        return 0.0
    closed = [(one, other.at) for one, other in pairwise(ends)]
    return sum(value(one) * (until - one.at) for one, until in [*closed, (ends[-1], until_s)])
