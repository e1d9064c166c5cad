"""Who gets how many? An exact knapsack over what `price.py` says each width is worth.

Everybody has the least width already; what is shared out is the rest. Higher priorities are served first, each as if
the lower ones were not there. Ties keep a job as it is, then the narrower width.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from swell.model.job import JobId
from swell.planner.price import Contender, Option, prices

EPSILON = 1e-9  # a gain below this is rounding


def share_out(contenders: Iterable[Contender], spare: int) -> dict[JobId, int]:
    """Widths, given the units that are left when everybody has the least."""
    everybody = sorted(contenders, key=lambda one: (-one.rank, one.job))
    units = spare + sum(one.options[0].cost for one in everybody)
    priced = prices(everybody, units)
    widths: dict[JobId, int] = {}
    for one in everybody:
        if one.fixed is not None:
            widths[one.job] = _nearest(one, one.fixed, spare)
            spare -= _extra(one, one.option(widths[one.job]))
    open_ones = [one for one in everybody if one.fixed is None]
    for _, members in groupby(open_ones, key=lambda one: one.rank):
        group = list(members)
        widths |= _knapsack(group, priced, spare)
        spare -= sum(_extra(one, one.option(widths[one.job])) for one in group)
    return widths


def _nearest(one: Contender, wanted: int, spare: int) -> int:
    """The width that was decided, or as near to it as there is room for."""
    return max(
        option.width for option in one.options if option.width <= wanted and _extra(one, option) <= max(0, spare)
    )


def _extra(one: Contender, option: Option) -> int:
    return option.cost - one.options[0].cost


def _knapsack(group: Sequence[Contender], priced: dict[JobId, float], spare: int) -> dict[JobId, int]:
    best = [0.0] * (spare + 1)  # best[g]: the most that the jobs so far are worth with g spare units
    picks: list[list[Option]] = []
    for one in group:
        best, pick = _add(one, priced[one.job], best)
        picks.append(pick)
    chosen: dict[JobId, int] = {}
    for one, pick in zip(reversed(group), reversed(picks), strict=True):
        option = pick[spare]
        chosen[one.job] = option.width
        spare -= _extra(one, option)
    return chosen


def _add(one: Contender, price: float, best: list[float]) -> tuple[list[float], list[Option]]:
    """One more job: for every number of spare units the best total, and which of its options that takes.

    The present width is tried first, then from the least up: on a tie nothing changes.
    """
    after, pick = [-1.0] * len(best), [one.options[0]] * len(best)
    for option in sorted(one.options, key=lambda option: (option.width != one.present, option.width)):
        extra, worth = _extra(one, option), price * option.kept / option.left_s
        for units in range(extra, len(best)):
            total = best[units - extra] + worth
            if total > after[units] + EPSILON:
                after[units], pick[units] = total, option
    return after, pick
