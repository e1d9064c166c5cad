"""How fast would it be at a width nobody has tried?"""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from swell.throughput import predict


def on_one_node(*measured: tuple[int, float]) -> tuple[tuple[int, int, float], ...]:
    return tuple((width, 1, seconds) for width, seconds in measured)


@pytest.mark.parametrize(("width", "nodes", "seconds"), [(1, 1, 80.0), (4, 1, 30.0), (4, 2, 45.0), (8, 2, 33.0)])
def test_what_was_measured_answers_for_itself(width: int, nodes: int, seconds: float):
    measured = ((1, 1, 80.0), (2, 1, 41.0), (4, 1, 30.0), (4, 2, 45.0), (8, 2, 33.0))
    assert predict(measured, width, nodes) == pytest.approx(seconds)


def test_between_two_measurements_it_is_between_them():
    """8 is as far from 4 as from 16 on a scale of ratios, and so is 20 s from 10 and 40."""
    assert predict(on_one_node((4, 40.0), (16, 10.0)), 8) == pytest.approx(20.0)


def test_one_that_slows_down_between_two_widths_is_expected_to_do_so_in_between():
    assert predict(on_one_node((2, 10.0), (8, 40.0)), 4) == pytest.approx(20.0)


def test_below_the_narrowest_the_work_is_shared_by_fewer():
    assert predict(on_one_node((4, 10.0), (8, 6.0)), 1) == pytest.approx(40.0)


def test_above_the_widest_more_is_nearly_as_much_faster():
    assert predict(on_one_node((2, 40.0), (4, 20.0)), 8) == pytest.approx(20.0 * 0.5**0.95)


def test_one_measurement_is_enough():
    measured = on_one_node((2, 10.0))
    assert [predict(measured, width) for width in (1, 2, 4)] == pytest.approx([20.0, 10.0, 10.0 * 0.5**0.95])


def test_each_width_that_was_no_faster_halves_the_hope_and_none_ends_it():
    """Everything wider was written off for ever by one slow measurement."""
    once, twice = on_one_node((2, 20.0), (4, 25.0)), on_one_node((2, 20.0), (4, 25.0), (8, 25.0))
    assert predict(once, 32) == pytest.approx(20.0 * 0.0625 ** (0.95 / 2))
    assert predict(twice, 32) == pytest.approx(20.0 * 0.0625 ** (0.95 / 4))


def test_over_several_nodes_there_is_a_part_that_is_not_shared_out():
    """160 s are shared out; before anything is measured there, a fifth of an epoch on four GPUs is not."""
    assert predict(on_one_node((1, 160.0), (4, 40.0)), 8, 2) == pytest.approx(20.0 + 8.0)


def test_what_is_not_shared_out_is_learned_and_grows_with_the_width_and_shrinks_with_its_root():
    """Of eight published models it grew faster than its root: at four times the width measured, the root was 22 % too
    fast on average, and jobs were restarted to find that out."""
    measured = ((4, 1, 40.0), (8, 2, 24.0))  # 20 s of these 24 are shared out
    assert predict(measured, 32, 8) == pytest.approx(5.0 + 4.0 * 4)
    assert predict(measured, 6, 2) == pytest.approx(160.0 / 6 + 4.0 * 0.75**0.5)


def test_between_two_widths_over_several_nodes_the_time_follows_the_line_through_both():
    measured = ((4, 1, 40.0), (8, 2, 25.0), (8, 3, 70.0), (32, 8, 16.0))
    assert predict(measured, 16, 4) == pytest.approx(20.0)


def test_the_fastest_of_all_is_never_taken_to_be_mostly_talk():
    """A job with 90,000 s to go stood on 9 GPUs of an empty cluster: on 2 it had been measured while epochs were short,
    so all that it took on 9 counted as talk, which grows."""
    measured = ((2, 1, 36.0), (9, 3, 30.0))
    assert predict(measured, 36, 9) == pytest.approx(0.7 * 30.0 / 4 + 0.3 * 30.0 * 4)
    assert predict(measured, 18, 5) < 30.0


def test_but_one_that_was_slower_than_a_narrower_one_is():
    measured = ((4, 1, 20.0), (8, 2, 30.0))
    assert predict(measured, 32, 8) == pytest.approx(2.5 + 20.0 * 4)


def test_without_a_number_of_nodes_it_is_on_as_few_as_its_neighbors_were():
    measured = ((4, 1, 40.0), (4, 2, 60.0), (8, 2, 30.0), (16, 4, 20.0))
    assert [predict(measured, width) for width in (4, 8, 16)] == [40.0, 30.0, 20.0]
    assert predict(measured, 12) == pytest.approx(30.0 * (20.0 / 30.0) ** 0.5849625)


def test_one_that_never_ran_on_a_single_node_has_an_answer_there():
    assert predict(((8, 2, 35.0),), 4, 1) == pytest.approx(200.0 * 0.25**0.95)


MEASURED = st.dictionaries(
    st.tuples(st.integers(1, 1_000_000), st.integers(1, 3)), st.floats(0, 1e9), min_size=1, max_size=8
)


@given(MEASURED, st.integers(1, 1_000_000), st.integers(1, 3))
@example({(1, 1): 0.0, (3, 1): 5.0}, 2, 1)
@example({(1, 1): 5.0, (3, 1): 0.0}, 2, 1)
@example({(1, 1): 5e-324, (1_000_000, 1): 1e9}, 999_999, 2)
def test_whatever_a_job_reports_there_is_an_answer(measured: dict[tuple[int, int], float], width: int, nodes: int):
    """An epoch of no time at all, between two others, was divided by; that ended every plan from then on."""
    rows = tuple((width, nodes, seconds) for (width, nodes), seconds in sorted(measured.items()))
    assert 0 < predict(rows, width, nodes) < float("inf")
