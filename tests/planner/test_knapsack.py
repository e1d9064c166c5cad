"""Who gets how many? The knapsack against trying everything."""

from __future__ import annotations

from itertools import groupby, product
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swell.planner.knapsack import share_out
from swell.planner.price import Contender, Option, prices, steps

LEFT_S = st.sampled_from((1.0, 7.0, 30.0, 400.0))
KEPT = st.sampled_from((0.0, 0.9, 1.0))


@st.composite
def contenders(draw: st.DrawFn, job: int) -> Contender:
    unit = draw(st.integers(1, 2))
    low = draw(st.integers(1, 3))
    widths = sorted({low, *draw(st.lists(st.integers(low, low + 5), max_size=4))})
    options = tuple(Option(width, width * unit, draw(LEFT_S), draw(KEPT)) for width in widths)
    fixed = draw(st.none() | st.sampled_from(widths))
    present = draw(st.sampled_from((0, *widths)))
    may_wait = fixed is None and not present and draw(st.booleans())
    return Contender(job, draw(st.integers(0, 2)), present, options, fixed, may_wait)


@st.composite
def crowds(draw: st.DrawFn) -> list[Contender]:
    return [draw(contenders(job)) for job in range(1, 1 + draw(st.integers(1, 4)))]


def extra(one: Contender, width: int) -> int:
    """Beside what it must have: the least, or nothing if it may wait."""
    return one.option(width).cost - (0 if one.may_wait else one.options[0].cost) if width else 0


def left_by_waiting(crowd: list[Contender]) -> int:
    return sum(one.options[0].cost for one in crowd if one.may_wait)


def worth(one: Contender, width: int, priced: dict[int, float]) -> float:
    if not width:
        return 0.0
    option = one.option(width)
    return priced[one.job] * option.kept / option.left_s


def widths_of(one: Contender) -> list[int]:
    return [*([0] if one.may_wait else []), *(option.width for option in one.options)]


def tried(crowd: list[Contender], spare: int, priced: dict[int, float]) -> float:
    """The most any combination of widths is worth."""
    best = -inf
    for widths in product(*(widths_of(one) for one in crowd)):
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
    decided = sum(extra(one, found[one.job]) for one in crowd if one.fixed is not None)
    left = spare + left_by_waiting(crowd) - decided
    assert left >= 0
    assert all(found[one.job] in widths_of(one) for one in crowd)
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
    spare += left_by_waiting(crowd)
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


def test_steps_of_width_lie_on_the_upper_hull():
    """The second width is worth less than half way between its neighbors, the last one less than the one before it."""
    one = Contender(
        1, 0, 0, tuple(Option(n, n, left_s, 1.0) for n, left_s in ((1, 100.0), (2, 90.0), (4, 25.0), (8, 30.0)))
    )
    found = steps([(option.cost, 100.0 / option.left_s) for option in one.options], first=None)
    assert [(step.units, step.option) for step in found] == [(3, 2)]
    assert found[0].slope == pytest.approx(1.0)


def test_of_more_jobs_and_units_than_the_exact_table_holds_the_shortest_get_the_most():
    crowd = [linear(job, 100.0 + job) for job in range(1, 2001)]
    found = share_out(crowd, 1500)
    assert sum(found.values()) == 2000 + 1500
    assert found[1] > 1
    assert found[2000] == 1
