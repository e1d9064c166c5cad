"""Who gets how many? The knapsack against trying everything."""

from __future__ import annotations

from itertools import groupby, product
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swell.planner.price import Contender, Option, prices
from swell.planner.share import share_out

LEFT_S = st.sampled_from((1.0, 7.0, 30.0, 400.0))
KEPT = st.sampled_from((0.0, 0.9, 1.0))


@st.composite
def contenders(draw: st.DrawFn, job: int) -> Contender:
    unit = draw(st.integers(1, 2))
    low = draw(st.integers(1, 3))
    widths = sorted({low, *draw(st.lists(st.integers(low, low + 5), max_size=4))})
    options = tuple(Option(width, width * unit, draw(LEFT_S), draw(KEPT)) for width in widths)
    fixed = draw(st.none() | st.sampled_from(widths))
    return Contender(job, draw(st.integers(0, 2)), draw(st.sampled_from((0, *widths))), options, fixed)


@st.composite
def crowds(draw: st.DrawFn) -> list[Contender]:
    return [draw(contenders(job)) for job in range(1, 1 + draw(st.integers(1, 4)))]


def extra(one: Contender, width: int) -> int:
    return one.option(width).cost - one.options[0].cost


def worth(one: Contender, width: int, priced: dict[int, float]) -> float:
    option = one.option(width)
    return priced[one.job] * option.kept / option.left_s


def tried(crowd: list[Contender], spare: int, priced: dict[int, float]) -> float:
    """The most any combination of widths is worth."""
    best = -inf
    for widths in product(*((option.width for option in one.options) for one in crowd)):
        pairs = list(zip(crowd, widths, strict=True))
        if sum(extra(one, width) for one, width in pairs) <= spare:
            best = max(best, sum(worth(one, width, priced) for one, width in pairs))
    return best


@given(crowds(), st.integers(0, 12))
def test_no_other_combination_is_worth_more(crowd: list[Contender], spare: int):
    """Those whose width is decided come first, then each priority as if the lower ones were not there."""
    units = spare + sum(one.options[0].cost for one in crowd)
    priced, found = prices(crowd, units), share_out(crowd, spare)
    assert found.keys() == {one.job for one in crowd}
    left = spare - sum(extra(one, found[one.job]) for one in crowd if one.fixed is not None)
    assert left >= 0
    free_ones = sorted((one for one in crowd if one.fixed is None), key=lambda one: -one.rank)
    for _, members in groupby(free_ones, key=lambda one: one.rank):
        group = list(members)
        got = sum(worth(one, found[one.job], priced) for one in group)
        assert got == pytest.approx(tried(group, left, priced))
        left -= sum(extra(one, found[one.job]) for one in group)
        assert left >= 0


@given(crowds(), st.integers(0, 12))
def test_a_decided_width_is_given_or_the_nearest_below_it(crowd: list[Contender], spare: int):
    found = share_out(crowd, spare)
    for one in sorted(crowd, key=lambda one: (-one.rank, one.job)):
        if one.fixed is not None:
            fitting = [o.width for o in one.options if o.width <= one.fixed and extra(one, o.width) <= spare]
            assert found[one.job] == max(fitting)
            spare -= extra(one, found[one.job])


@given(crowds(), st.integers(0, 12), st.randoms())
def test_the_order_of_jobs_does_not_matter(crowd: list[Contender], spare: int, chance):
    assert share_out(chance.sample(crowd, len(crowd)), spare) == share_out(crowd, spare)


# -- small stories -------------------------------------------------------------------------------------------


def linear(job: int, work_s: float, *, low: int = 1, high: int = 8, present: int = 0, priority: int = 0) -> Contender:
    """Twice as wide is twice as fast."""
    options = tuple(Option(width, width, work_s / width, 1.0) for width in range(low, high + 1))
    return Contender(job, priority, present, options)


def test_nothing_to_share_is_everybody_at_the_least():
    assert share_out([linear(1, 100.0), linear(2, 100.0, low=3)], 0) == {1: 1, 2: 3}


def test_with_linear_speed_up_the_shortest_goes_first():
    assert share_out([linear(1, 4000.0), linear(2, 100.0), linear(3, 900.0)], 7) == {1: 1, 2: 8, 3: 1}


def test_what_the_shortest_cannot_use_goes_to_the_next():
    assert share_out([linear(1, 4000.0), linear(2, 100.0, high=3), linear(3, 900.0)], 7) == {1: 1, 2: 3, 3: 6}


def test_a_higher_priority_takes_what_it_can_use_however_long_it_is():
    assert share_out([linear(1, 4000.0, priority=5, high=4), linear(2, 100.0)], 6) == {1: 4, 2: 4}


def test_on_a_tie_nobody_changes():
    """Both are alike, so one of them should be done first; it was the older one, also when the other was ahead."""
    present = [linear(1, 100.0, present=2, high=4), linear(2, 100.0, present=4, high=4)]
    assert share_out(present, 4) == {1: 2, 2: 4}


def test_without_anybody_there_is_nothing_to_share():
    assert share_out([], 8) == {}
