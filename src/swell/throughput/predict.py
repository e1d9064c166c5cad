"""How long does an epoch take at this width, on so many nodes?

What was measured answers for itself. Inside one node the time between two measured widths follows the straight line
through both on logarithmic scales, so a job that slows down between 2 and 4 is expected to slow down at 3; below the
narrowest the work is taken to be shared out evenly; above the widest it goes on from the fastest, nearly so (exponent
0.95), and half as well for each wider one that was no faster.

Over several nodes an epoch takes a / width + c: the part that is shared out, and what the tasks spend on talking to
each other. `c` is what is left over of the nearest measurement over several nodes, if the widest one inside a node
tells what is shared out. Above the widest such width c grows with the width, below the narrowest it shrinks with its
root, and between two widths the time follows the straight line through both, as inside a node. As long as one of these
measurements is the fastest of all, c is taken to be at most a part of it (`TALK_PART_MAX`): it was not measured at the
same time as others, and a small error of either kept jobs from ever being tried wider. Before there is any, c is a
fifth of an epoch on four GPUs. So no width is written off because another one was slow: a wider one is worth what this
says. Extrapolating the slope of the last two measurements is worse and unstable: small errors of measurement decide the
sign.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

GROWTH_EXPONENT = 0.95  # of the speed-up into widths never tried, inside a node
EPOCH_S_MIN = 0.001  # what a job reports as no time at all is a little: times are divided by
TALK_PART, TALK_WIDTH = 0.2, 4  # c before it is measured: this part of an epoch at this width
TALK_GROWS, TALK_SHRINKS = 1.0, 0.5  # exponents of the width: of c above what was measured, and below
CURVES_KEPT_MAX = 16_384  # about a kilobyte each; with fewer than there are jobs, none would be found again
TALK_PART_MAX = 0.3  # c as a part of the fastest epoch of all: with more, twice the width would look no faster

Measured = Sequence[tuple[int, int, float]]  #: width, nodes → seconds, ascending, at least one


def predict(measured: Measured, width: int, nodes: int | None = None) -> float:
    """Seconds for one epoch; never none. Without a number of nodes: on as few as the widths around it were."""
    curve = _curve(tuple(measured))
    return curve.compact(width) if nodes is None else curve.at(width, nodes)


@lru_cache(maxsize=CURVES_KEPT_MAX)
def _curve(measured: tuple[tuple[int, int, float], ...]) -> Curve:
    """Of jobs that have not been measured again since the last plan it is there already."""
    return Curve.of(measured)


@dataclass(frozen=True, slots=True)
class Curve:
    """What was measured of one job."""

    known: dict[tuple[int, int], float]  #: by width and nodes
    inside: tuple[tuple[int, float], ...]  #: on one node, ascending by width; worked out where none was measured
    across: tuple[tuple[int, float, float], ...]  #: over several: width, and what is shared out and left over there
    spread: tuple[tuple[int, float], ...]  #: over several, ascending by width: each on the fewest nodes

    @classmethod
    def of(cls, measured: Measured) -> Curve:
        known = {(width, nodes): max(EPOCH_S_MIN, seconds) for width, nodes, seconds in measured}
        inside = tuple((width, seconds) for (width, nodes), seconds in known.items() if nodes == 1)
        if not inside:
            (width, _), seconds = next(iter(known.items()))
            shared_out = seconds / (1 / width + TALK_PART / TALK_WIDTH)
            inside = ((1, shared_out),)
        shared_out, fastest = inside[-1][0] * inside[-1][1], min(known.values())
        across = []
        for (width, nodes), seconds in known.items():
            if nodes > 1:
                most = TALK_PART_MAX * seconds if seconds <= fastest else seconds
                talk_s = min(most, max(0.0, seconds - shared_out / width))
                across.append((width, (seconds - talk_s) * width, talk_s))
        spread = {width: shared_out / width + talk_s for width, shared_out, talk_s in reversed(across)}
        return cls(known, inside, tuple(across), tuple(sorted(spread.items())))

    def compact(self, width: int) -> float:
        """On as few nodes as the measured widths around it were; beyond those on as many as the nearest."""
        fewest: dict[int, tuple[int, float]] = {}
        for (known, nodes), seconds in self.known.items():
            fewest.setdefault(known, (nodes, seconds))
        low, high = min(fewest), max(fewest)
        if not low <= width <= high:
            return self.at(width, fewest[low if width < low else high][0])
        return _between([(known, seconds) for known, (_, seconds) in fewest.items()], width)

    def at(self, width: int, nodes: int) -> float:
        if (width, nodes) in self.known:
            return self.known[width, nodes]
        if nodes == 1:
            return self._inside(width)
        return max(EPOCH_S_MIN, self._across(width))

    def _inside(self, width: int) -> float:
        (low, low_s), (high, _) = self.inside[0], self.inside[-1]
        if width <= low:
            return low_s * low / width
        if width > high:
            return self._above(width)
        return _between(self.inside, width)

    def _above(self, width: int) -> float:
        """From the fastest width. Each wider one that was no faster halves the hope that more will be."""
        fastest, seconds = min(self.inside, key=lambda one: (one[1], one[0]))
        slower = sum(known > fastest for known, _ in self.inside)
        return seconds * math.pow(fastest / width, GROWTH_EXPONENT / 2**slower)

    def _across(self, width: int) -> float:
        if not self.across:
            shared_out = self.inside[-1][0] * self.inside[-1][1]
            return shared_out / width + TALK_PART * shared_out / TALK_WIDTH
        if self.spread[0][0] < width < self.spread[-1][0]:
            return _between(self.spread, width)
        nearest, shared_out, talk_s = min(self.across, key=lambda one: (abs(math.log(one[0] / width)), one[0]))
        exponent = TALK_GROWS if width > nearest else TALK_SHRINKS
        return shared_out / width + talk_s * math.pow(width / nearest, exponent)


def _between(measured: Sequence[tuple[int, float]], width: int) -> float:
    right = next(n for n, (known, _) in enumerate(measured) if known >= width)
    high, high_s = measured[right]
    if high == width:
        return high_s
    low, low_s = measured[right - 1]
    share = math.log(width / low) / math.log(high / low)
    return low_s * math.pow(high_s / low_s, share)
