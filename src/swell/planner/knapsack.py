"""Who gets how many? An exact knapsack over what `price.py` says each width is worth.

Everybody has the least width already; what is shared out is the rest. Higher priorities are served first, each as if
the lower ones were not there. Ties keep a job as it is, then the narrower width.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from math import inf
from typing import NamedTuple

from swell.model.job import JobId
from swell.planner.price import Contender, Option, Table, Worths, is_large, prices

EPSILON = 1e-9  # a gain below this is rounding


def share_out(contenders: Iterable[Contender], spare: int) -> dict[JobId, int]:
    """Widths, given the units that are left when everybody has the least."""
    everybody = sorted(contenders, key=lambda one: (-one.rank, one.job))
    units = spare + sum(one.options[0].cost for one in everybody)
    priced = prices(everybody, units)
    spare += sum(one.options[0].cost - one.least for one in everybody)
    widths: dict[JobId, int] = {}
    for one in everybody:
        if one.fixed is not None:
            widths[one.job] = _nearest(one, one.fixed, spare)
            spare -= one.above_least(widths[one.job])
    open_ones = [one for one in everybody if one.fixed is None]
    for _, members in groupby(open_ones, key=lambda one: one.rank):
        group = list(members)
        chosen = _by_slopes if is_large(len(group), spare) else _knapsack
        widths |= chosen(group, priced, spare)
        spare -= sum(one.above_least(widths[one.job]) for one in group)
    return widths


def _nearest(one: Contender, wanted: int, spare: int) -> int:
    """The width that was decided, or as near to it as there is room for."""
    widths = (option.width for option in one.options)
    return max(width for width in widths if width <= wanted and one.above_least(width) <= max(0, spare))


def _by_slopes(group: Sequence[Contender], priced: dict[JobId, float], spare: int) -> dict[JobId, int]:
    """Where the exact table would be too large: the steps of width that are worth most for a unit come first."""
    chosen = {one.job: 0 if one.may_wait else one.options[0].width for one in group}
    ranked = [
        (-priced[one.job] * step.slope, one.job, step, one)
        for one in group
        if priced[one.job] > 0
        for step in one.steps_of_worth
    ]
    full: set[JobId] = set()
    for _, job, step, one in sorted(ranked, key=lambda row: row[:2]):
        if step.units > spare or job in full:
            full.add(job)  # a later step would leave this one out
            continue
        chosen[job] = one.options[step.option].width
        spare -= step.units
    return chosen


def _knapsack(group: Sequence[Contender], priced: dict[JobId, float], spare: int) -> dict[JobId, int]:
    worths = Worths(spare)
    steps: list[tuple[Contender, list[_Offer], Table]] = []  # each job, and what those before it are worth
    for one in group:
        offers = _offers(one, priced[one.job])
        steps.append((one, offers, worths.best.copy()))
        worths.add([(offer.units, offer.worth) for offer in offers], may_leave_out=one.may_wait)
    chosen: dict[JobId, int] = {}
    for one, offers, before in reversed(steps):
        taken = _best(offers, before, spare, may_wait=one.may_wait)
        chosen[one.job] = 0 if taken is None else taken.option.width
        spare -= 0 if taken is None else taken.units
    return chosen


class _Offer(NamedTuple):
    """What a width takes of the units that are shared out, and is worth."""

    units: int
    worth: float
    option: Option


def _offers(one: Contender, price: float) -> list[_Offer]:
    """On a tie nothing changes: the present width is the first, then they come from the least up.

    Without those that cost as much as one before them, or more, and are worth no more.
    """
    found: list[_Offer] = []
    best, least = -inf, one.least  # best: of those before it that cost no more
    for number, option in enumerate(one.in_order_of_ties):
        worth, units = price * option.kept / option.left_s - EPSILON * number, option.cost - least
        if number and found[0].units <= units:
            best = max(best, found[0].worth)
        if worth > best:
            found.append(_Offer(units, worth, option))
            best = worth if number else best
    return found


def _best(offers: Sequence[_Offer], before: Table, spare: int, *, may_wait: bool) -> _Offer | None:
    """Beside those before it, which share so many units; the first of those that are worth the same. None: it waits."""
    most, best = float(before[spare]) if may_wait else -inf, None
    for offer in offers:
        if offer.units <= spare and (total := float(before[spare - offer.units]) + offer.worth) > most:
            most, best = total, offer
    return best
