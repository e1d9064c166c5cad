"""What holding something takes, and how it fades."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swell.model.plan import Slot
from swell.model.resources import Resources
from swell.model.usage import CPU_WEIGHT, Account, charged_gpus, cpu_seconds, faded_gpu_s, gpu_seconds

HALF_LIFE_S = 1000.0
MEMORY = {("a", "g0"): 16384, ("b", "g0"): 8192}

moments = st.floats(0, 100_000)


def slot(*devices: str, node: str = "a", cpus_milli: int = 0, gpus: int = 0, share_mib: int = 0) -> Slot:
    return Slot(0, node, Resources(cpus_milli, 0, gpus, share_mib), devices)


def test_whole_gpus_count_by_number_whatever_memory_was_asked_for():
    assert gpu_seconds((slot("g0", "g1", gpus=2, share_mib=4096), slot("g2", gpus=1)), MEMORY, 10.0) == 30.0


def test_a_share_counts_by_the_fraction_of_its_own_gpus_memory():
    assert gpu_seconds((slot("g0", share_mib=4096),), MEMORY, 10.0) == 2.5
    assert gpu_seconds((slot("g0", node="b", share_mib=4096),), MEMORY, 10.0) == 5.0


def test_a_share_of_a_gpu_that_is_no_longer_there_counts_as_all_of_it():
    assert gpu_seconds((slot("gone", share_mib=4096),), MEMORY, 10.0) == 10.0


def test_cores_count_by_thousandths_and_in_fair_share_only_where_there_is_no_gpu():
    cores = slot(cpus_milli=1500)
    assert cpu_seconds((cores, cores), 10.0) == 30.0
    assert charged_gpus((cores, cores), MEMORY) == 3 * CPU_WEIGHT
    assert charged_gpus((cores, slot("g0", gpus=1, cpus_milli=8000)), MEMORY) == 1.0


def test_after_one_half_life_half_of_it_counts():
    account = Account(100.0, at=5000.0)
    assert [account.faded(5000.0 + lives * HALF_LIFE_S, HALF_LIFE_S) for lives in (0, 1, 2)] == [100.0, 50.0, 25.0]


def test_a_clock_that_was_set_back_does_not_make_use_grow():
    assert Account(100.0, at=5000.0).faded(4000.0, HALF_LIFE_S) == 100.0
    assert Account(100.0, at=5000.0).charged(1.0, 4900.0, 4800.0, HALF_LIFE_S) == Account(100.0, 5000.0)


@given(st.floats(0.01, 8), moments, st.floats(0, 5000), st.floats(0, 5000))
def test_the_closed_form_is_the_sum_of_many_small_pieces(gpus, begin, length, later):
    """Each piece fades from its middle; a hundred of them are near enough to the integral."""
    end, now, piece = begin + length, begin + length + later, length / 100
    pieces = [gpus * piece * 2 ** (-(now - begin - (n + 0.5) * piece) / HALF_LIFE_S) for n in range(100)]
    assert faded_gpu_s(gpus, begin, end, now, HALF_LIFE_S) == pytest.approx(sum(pieces), rel=1e-3, abs=1e-6)


@given(moments, st.floats(0, 5000), st.floats(0, 5000))
def test_it_does_not_matter_in_how_many_steps_something_is_charged(begin, first, second):
    middle, end = begin + first, begin + first + second
    at_once = Account(10.0, begin).charged(2.0, begin, end, HALF_LIFE_S)
    in_steps = Account(10.0, begin).charged(2.0, begin, middle, HALF_LIFE_S).charged(2.0, middle, end, HALF_LIFE_S)
    assert in_steps.faded(end, HALF_LIFE_S) == pytest.approx(at_once.faded(end, HALF_LIFE_S), rel=1e-6, abs=1e-6)
