"""How fast is a job by what it measured itself and by what jobs like it did?"""

from __future__ import annotations

import pytest

from swell.throughput import align, blend

Curve = tuple[tuple[int, int, float], ...]

SHARED = ((1, 1, 100.0), (2, 1, 60.0), (4, 1, 40.0), (8, 2, 50.0))


@pytest.mark.parametrize(
    ("own", "shared", "together"),
    [
        ((), (), ()),
        ((), SHARED, SHARED),
        (((2, 1, 6.0),), (), ((2, 1, 6.0),)),
        (((2, 1, 6.0),), SHARED, ((1, 1, 10.0), (2, 1, 6.0), (4, 1, 4.0), (8, 2, 5.0))),
        # the geometric mean of twice and eight times as long is four times
        (((1, 1, 200.0), (4, 1, 320.0)), SHARED, ((1, 1, 200.0), (2, 1, 240.0), (4, 1, 320.0), (8, 2, 200.0))),
        # four GPUs take 40 s, so one is expected to take 160; this job's takes 100
        (((1, 1, 100.0),), SHARED[2:], ((1, 1, 100.0), (4, 1, 25.0), (8, 2, 31.25))),
    ],
    ids=["nothing", "only others", "only its own", "one width", "two widths disagree", "none in common"],
)
def test_its_own_measurements_win_and_the_others_are_scaled_to_them(own: Curve, shared: Curve, together: Curve) -> None:
    found = blend(own, shared)
    assert [one[:2] for one in found] == [one[:2] for one in together]
    assert [one[2] for one in found] == pytest.approx([one[2] for one in together])


def test_the_same_width_on_more_nodes_is_another_one() -> None:
    assert blend(((4, 2, 80.0),), ((4, 1, 10.0), (4, 2, 20.0))) == ((4, 1, pytest.approx(40.0)), (4, 2, 80.0))


def test_an_epoch_that_is_said_to_take_no_time_divides_nothing_by_zero() -> None:
    assert align(((1, 1, 0.0),), ((1, 1, 0.0),)) == 1.0
