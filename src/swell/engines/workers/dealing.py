"""Which indices of an array does each of several workers get?

A worker is given a portion and works through it by itself. Portions shrink as the work runs out, so that all end at
about the same time. What a worker has not begun is taken back when another has nothing to do, or when the worker has no
room left for the array: it counts as free when the worker has said that it no longer holds it, because until then it
may have begun it. What each has is known to the workers: a server that has just started deals nothing before all of
them have told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from swell.model.cluster import NodeId
from swell.model.launch import KEEP
from swell.model.quantity import IndexSet

AHEAD = 2  # portions for each lane that a worker should have before it: one answer takes a fraction of a second


@dataclass(slots=True)
class _Hand:
    """What one worker has."""

    held: list[int]  #: that it was given, begun or not, in order
    left: int = 0  #: of those, not begun, as the worker said last
    lanes: int = 0  #: tasks at once
    returning: frozenset[int] = frozenset()  #: asked back, and not yet said to be given back


@dataclass(slots=True)
class ArrayDeal:
    indices: IndexSet  #: to be done in this attempt
    nodes: tuple[NodeId, ...] = ()
    _lanes: dict[NodeId, int] = field(default_factory=dict)
    _hands: dict[NodeId, _Hand] = field(default_factory=dict)  #: of those who have told what they hold
    _lost: set[NodeId] = field(default_factory=set)
    _begun: set[int] = field(default_factory=set)
    _pool: list[int] | None = None  #: nobody's, in order; None: not everybody has told
    is_open: bool = True  #: somebody may get more

    def seat(self, lanes: Mapping[NodeId, int]) -> None:
        """Who takes part, and how many tasks each may run at once."""
        self.nodes = tuple(lanes)
        self._lanes = dict(lanes)
        for node, hand in self._hands.items():
            hand.lanes = self._lanes.get(node, 0)

    def begun(self, indices: Iterable[int]) -> None:
        self._begun.update(indices)

    def told(self, node: NodeId, held: str, left: int) -> None:
        """What a worker says that it holds. Whatever it has begun must have been told before."""
        if node in self._lost:
            return
        hand = self._hands.get(node)
        if hand is None:
            hand = self._hands[node] = _Hand(list(IndexSet.parse(held)), lanes=self._lanes.get(node, 0))
        hand.left = left
        if hand.returning and held == self.grant(node):
            free, hand.returning = hand.returning - self._begun, frozenset()
            self._pool = sorted([*(self._pool or []), *free])

    def lose(self, node: NodeId) -> None:
        """Its machine is gone: what it had not begun is nobody's."""
        self._lost.add(node)
        hand = self._hands.pop(node, None)
        if hand is not None and self._pool is not None:
            self._pool = sorted({*self._pool, *hand.held, *hand.returning} - self._begun)

    def grant(self, node: NodeId) -> str:
        """What a worker is told that it holds."""
        hand = self._hands.get(node)
        return KEEP if hand is None else indices_text(hand.held)

    def deal(self) -> bool:
        """True: somebody's portion has changed."""
        if any(node not in self._hands and node not in self._lost for node in self.nodes):
            return False
        if self._pool is None:
            taken = {index for hand in self._hands.values() for index in hand.held}
            self._pool = [index for index in self.indices if index not in taken and index not in self._begun]
        was_open = self.is_open
        has_changed = any([*self._give(self._pool), self._take_back()])
        is_rich = any(hand.left > AHEAD * hand.lanes for hand in self._hands.values())
        is_returning = any(hand.returning for hand in self._hands.values())
        self.is_open = bool(self._pool) or is_returning or (is_rich and len(self._hands) > 1)
        return has_changed or was_open != self.is_open

    def _give(self, pool: list[int]) -> list[bool]:
        return [self._give_to(hand, pool) for _, hand in sorted(self._hands.items())]

    def _give_to(self, hand: _Hand, pool: list[int]) -> bool:
        """Half of its share of what is left, and a little ahead at least."""
        if not pool or not hand.lanes or hand.left >= AHEAD * hand.lanes:
            return False
        lanes = sum(other.lanes for other in self._hands.values())
        count = max(AHEAD * hand.lanes - hand.left, len(pool) * hand.lanes // (2 * lanes))
        portion, pool[:] = pool[:count], pool[count:]
        hand.held = sorted({*hand.held, *portion})
        hand.left += len(portion)
        return True

    def _take_back(self) -> bool:
        """From who has no room, or has most ahead while another has nothing; the last indices, which begin last."""
        if any(hand.returning for hand in self._hands.values()):
            return False
        without_room = [hand for hand in self._hands.values() if not hand.lanes and hand.left]
        if without_room:
            return _ask_back(without_room[0], without_room[0].left, self._begun)
        idle = [hand for hand in self._hands.values() if hand.left < hand.lanes]
        rich = max(self._hands.values(), key=lambda hand: hand.left - AHEAD * hand.lanes, default=None)
        if self._pool or not idle or rich is None or rich.left <= AHEAD * rich.lanes:
            return False
        return _ask_back(rich, rich.left // 2, self._begun)


def _ask_back(hand: _Hand, count: int, begun: set[int]) -> bool:
    unbegun = [index for index in hand.held if index not in begun]
    asked = frozenset(unbegun[-count:])
    if not asked:
        return False
    hand.returning = asked
    hand.held = [index for index in hand.held if index not in asked]
    return True


def indices_text(indices: list[int]) -> str:
    """`indices` in order. With steps: a worker sends the text with each report, and it should be short."""
    runs: list[tuple[int, int, int]] = []
    for index in indices:
        first, last, step = runs[-1] if runs else (index, index, 0)
        if runs and (first == last or index - last == step):
            runs[-1] = first, index, index - last
        else:
            runs.append((index, index, 1))
    return str(IndexSet(tuple(one for run in runs for one in _plainest(*run))))


def _plainest(first: int, last: int, step: int) -> tuple[tuple[int, int, int], ...]:
    """Two indices that are not neighbours are shorter without a step."""
    return ((first, first, 1), (last, last, 1)) if first + step == last and step > 1 else ((first, last, step),)
