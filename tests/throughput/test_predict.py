"""How fast would it be at a width nobody has tried?"""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from swell.throughput import predict


@pytest.mark.parametrize(("width", "seconds"), [(1, 80.0), (2, 41.0), (4, 30.0), (8, 33.0)])
def test_what_was_measured_answers_for_itself(width: int, seconds: float):
    assert predict(((1, 80.0), (2, 41.0), (4, 30.0), (8, 33.0)), width) == pytest.approx(seconds)


def test_between_two_measurements_it_is_between_them():
    """8 is as far from 4 as from 16 on a scale of ratios, and so is 20 s from 10 and 40."""
    assert predict(((4, 40.0), (16, 10.0)), 8) == pytest.approx(20.0)


def test_one_that_slows_down_between_two_widths_is_expected_to_do_so_in_between():
    assert predict(((2, 10.0), (8, 40.0)), 4) == pytest.approx(20.0)


def test_below_the_narrowest_the_work_is_shared_by_fewer():
    assert predict(((4, 10.0), (8, 6.0)), 1) == pytest.approx(40.0)


def test_above_the_widest_more_is_nearly_as_much_faster():
    assert predict(((2, 40.0), (4, 20.0)), 8) == pytest.approx(20.0 * 0.5**0.95)


def test_one_measurement_is_enough():
    measured = ((2, 10.0),)
    assert [predict(measured, width) for width in (1, 2, 4)] == pytest.approx([20.0, 10.0, 10.0 * 0.5**0.95])


@pytest.mark.parametrize("widest_s", [20.0, 25.0])
def test_one_that_stopped_scaling_is_not_expected_to_get_faster(widest_s: float):
    measured = ((1, 60.0), (2, 20.0), (4, widest_s))
    assert [predict(measured, width) for width in (4, 8, 64)] == [widest_s] * 3


def test_equal_times_stay_equal():
    measured = ((1, 10.0), (4, 10.0))
    assert [predict(measured, width) for width in (1, 2, 3, 4, 5, 100)] == pytest.approx([10.0] * 6)


MEASURED = st.dictionaries(st.integers(1, 1_000_000), st.floats(0, 1e9), min_size=1, max_size=8)


@given(MEASURED, st.integers(1, 1_000_000))
@example({1: 0.0, 3: 5.0}, 2)
@example({1: 5.0, 3: 0.0}, 2)
@example({1: 5e-324, 1_000_000: 1e9}, 999_999)
def test_whatever_a_job_reports_there_is_an_answer(measured: dict[int, float], width: int):
    """An epoch of no time at all, between two others, was divided by; that ended every plan from then on."""
    assert 0 < predict(tuple(sorted(measured.items())), width) < float("inf")
