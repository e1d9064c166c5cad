"""What is width worth to each job?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from swell.model.job import JobState, ResizeMode
from swell.model.plan import JobView
from swell.model.training import SharedCurve, Training
from swell.planner.knapsack import share_out
from swell.planner.price import Contender, Option, contender, prices, quietness

from .world import shape

HOUR = 3600.0


def trainee(
    *,
    width: int = 0,
    left: float | None = 10.0,
    epoch_s: tuple[tuple[int, float], ...] = ((1, 100.0),),
    restart_s: float | None = 30.0,
    gpus: str = "1..4",
    job: int = 1,
    **changes: object,
) -> JobView:
    state = JobState.RUNNING if width else JobState.QUEUED
    measured = tuple((known, 1, seconds) for known, seconds in epoch_s)
    training = Training(left, measured, restart_s, checkpoint_at=0.0)
    made = JobView(job, shape(gpus=gpus), 0, state, started_at=0.0 if width else None, width=width, training=training)
    return replace(made, **changes)  # type: ignore[arg-type]


def offered(job: JobView, *, now: float = 0.0, quiet: float = 1.0, unit: int = 1) -> tuple[Option, ...]:
    return contender(job, unit, now, quiet).options


def widths(job: JobView) -> list[int]:
    return [option.width for option in offered(job)]


def left_s(job: JobView, *, now: float = 0.0) -> dict[int, float]:
    return {option.width: option.left_s for option in offered(job, now=now)}


def kept(job: JobView, *, now: float = 0.0, quiet: float = 1.0) -> dict[int, float]:
    return {option.width: round(option.kept, 4) for option in offered(job, now=now, quiet=quiet)}


# -- which widths are offered --------------------------------------------------------------------------------


def test_widths_that_are_not_faster_than_a_narrower_one_are_not_offered():
    slows_down = ((1, 100.0), (2, 50.0), (3, 60.0), (4, 50.0), (5, 45.0))
    assert widths(trainee(epoch_s=slows_down, gpus="1..5")) == [1, 2, 5]


def test_the_present_width_is_offered_also_when_it_is_a_bad_one():
    assert widths(trainee(width=3, epoch_s=((1, 100.0), (2, 50.0), (3, 60.0)), gpus="1..3")) == [1, 2, 3]


def test_a_width_that_was_asked_for_by_hand_is_offered_whatever_it_is():
    assert widths(trainee(wanted=3, epoch_s=((1, 100.0), (2, 50.0), (3, 60.0)), gpus="1..3")) == [1, 2, 3]


def test_above_16_only_every_fourth_width_is_looked_at_and_the_widest():
    assert widths(trainee(training=None, gpus="14..31")) == [14, 15, 16, 20, 24, 28, 31]


def test_a_job_is_sent_at_most_four_times_as_wide_as_it_was_ever_measured():
    assert widths(trainee(epoch_s=((1, 100.0), (2, 51.0)), gpus="1..16"))[-1] == 8


def test_a_job_that_was_never_measured_is_not_held_back():
    assert widths(trainee(training=None, gpus="1..16"))[-1] == 16


def test_a_width_costs_its_units():
    assert [option.cost for option in offered(trainee(gpus="2..4"), unit=3)] == [6, 9, 12]


# -- how long is left ----------------------------------------------------------------------------------------


def test_what_was_measured_times_what_is_left():
    assert left_s(trainee(left=10.0, epoch_s=((1, 100.0), (2, 50.0)), gpus="1..2")) == {1: 1000.0, 2: 500.0}


def test_a_job_that_says_nothing_is_taken_to_last_half_an_hour_at_its_least_width():
    assert left_s(trainee(training=None, gpus="2..2")) == {2: 1800.0}


def test_one_that_has_run_for_longer_than_that_is_taken_to_last_as_long_again():
    ran = trainee(training=None, gpus="2..2", width=2, used_s=HOUR)
    assert left_s(ran, now=HOUR) == {2: 2 * HOUR}


def test_the_users_guess_counts_until_it_has_passed():
    guessed = trainee(training=None, gpus="1..1", width=1, estimate_s=2 * HOUR)
    moments = (0.0, HOUR, 3 * HOUR)
    assert [left_s(guessed, now=now)[1] for now in moments] == [2 * HOUR, HOUR, 3 * HOUR]


def test_the_users_guess_counts_no_more_when_the_job_itself_says_how_long_it_is():
    assert left_s(trainee(estimate_s=50 * HOUR, left=10.0, gpus="1..1")) == {1: 1000.0}


def test_with_measured_epochs_of_unknown_number_the_guess_is_shared_out_by_speed():
    """An hour at its least width; at 2 it was measured to be no more than a fourth faster."""
    unknown = trainee(left=None, epoch_s=((1, 100.0), (2, 80.0)), estimate_s=HOUR, gpus="1..2")
    assert left_s(unknown) == {1: HOUR, 2: 0.8 * HOUR}


@pytest.mark.parametrize("left", [0.0, 10.0])
def test_one_whose_epochs_take_no_time_has_some_left_all_the_same(left: float):
    """Its worth was divided by what is left, and no plan was ever made again."""
    hasty = contender(trainee(left=left, epoch_s=((1, 0.0), (2, 0.0)), restart_s=0.0, width=1), 1, 0.0, 1.0)
    assert all(option.left_s > 0 for option in hasty.options)
    assert share_out([hasty], 4).keys() == {1}


# -- what a change costs -------------------------------------------------------------------------------------


def test_a_change_is_paid_over_the_time_it_will_last():
    """30 s of 300 for shrinking, of 600 for growing; nothing for staying."""
    assert kept(trainee(width=2, left=100.0, gpus="1..3")) == {1: 0.9, 2: 1.0, 3: 0.95}


def test_one_that_is_nearly_done_pays_over_what_is_left():
    """10 s are left at width 2 after a restart of 30."""
    nearly = trainee(width=1, left=0.1, epoch_s=((1, 200.0), (2, 100.0)), gpus="1..2")
    assert kept(nearly) == {1: 1.0, 2: 0.25}


def test_in_quiet_times_a_change_lasts_longer_and_costs_less():
    assert kept(trainee(width=2, left=1000.0, gpus="1..3"), quiet=2.0) == {1: 0.95, 2: 1.0, 3: 0.975}


def test_one_that_does_not_run_pays_nothing():
    assert kept(trainee(width=0, gpus="1..3")) == {1: 1.0, 2: 1.0, 3: 1.0}


def test_a_gain_of_2_percent_is_noise_however_cheap_the_restart():
    assert kept(trainee(width=1, restart_s=0.0, gpus="1..2")) == {1: 1.0, 2: 0.98}


def test_a_restart_that_was_never_measured_is_taken_to_cost_half_a_minute():
    assert kept(trainee(width=1, restart_s=None, left=100.0, gpus="1..2")) == {1: 1.0, 2: 0.95}


def test_one_that_is_stopped_at_any_moment_also_pays_for_the_work_it_loses():
    """Its checkpoint is 60 s old: those and the restart, 90 of 600."""
    sudden = trainee(width=1, left=100.0, gpus="1..2", mode=ResizeMode.IMMEDIATE)
    sudden = replace(sudden, training=replace(sudden.training, checkpoint_at=40.0))
    assert kept(sudden, now=100.0) == {1: 1.0, 2: 0.85}


def test_what_it_loses_is_never_more_than_it_has_done_since_its_start():
    sudden = trainee(width=1, left=100.0, gpus="1..2", mode=ResizeMode.IMMEDIATE, started_at=70.0)
    assert kept(sudden, now=100.0) == {1: 1.0, 2: 0.9}


def grown(*, restart_s: float = 30.0, quiet: float = 1.0, second_s: float = 95.0) -> int:
    """The width of one that runs at 1 of 2, with a free unit, a long way from its end."""
    job = trainee(width=1, left=1000.0, epoch_s=((1, 100.0), (2, second_s)), restart_s=restart_s, gpus="1..2")
    return share_out([contender(job, 1, 0.0, quiet)], 1)[1]


def test_a_restart_makes_a_small_gain_not_worth_it():
    """A twentieth faster, for a twentieth of the next ten minutes; worth it where the restart costs half."""
    assert (grown(restart_s=30.0), grown(restart_s=15.0), grown(second_s=90.0)) == (1, 2, 2)


def test_in_quiet_times_the_same_gain_is_worth_it():
    assert (grown(quiet=1.0), grown(quiet=3.0)) == (1, 2)


# -- how quiet it is -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arrivals", "now", "quiet"),
    [
        pytest.param((), 1e9, 1.0, id="nothing is known"),
        pytest.param((0.0, 60.0, 120.0), 150.0, 1.0, id="busy: one in 50 s"),
        pytest.param((0.0, 60.0, 120.0), 1800.0, 4.0, id="the silence since the last one counts"),
        pytest.param((0.0,), 300.0, 2.0, id="one arrival is enough to tell"),
        pytest.param((100.0,), 50.0, 1.0, id="a clock that went back"),
    ],
)
def test_quietness(arrivals: tuple[float, ...], now: float, quiet: float):
    assert quietness(arrivals, now) == quiet


# -- prices --------------------------------------------------------------------------------------------------

#: 4 units, were all of them counted on
UNITS = 5


def curve(job: int, *left: float) -> Contender:
    """A waiting job; what is left of it at widths 1, 2, …"""
    return Contender(job, 0, 0, tuple(Option(width, width, left_s, 1.0) for width, left_s in enumerate(left, 1)))


def linear(job: int, work_s: float, *, high: int = 4) -> Contender:
    return curve(job, *(work_s / width for width in range(1, high + 1)))


def test_the_prices_add_up_to_the_flow_time_still_to_come():
    """100 s of work and 400: alone on 4 units one after the other they are done after 25 s and 125 s."""
    priced = prices([linear(1, 400.0), linear(2, 100.0)], UNITS)
    assert priced == pytest.approx({1: 100.0, 2: 50.0})
    assert sum(priced.values()) == pytest.approx(25.0 + 125.0)


def test_they_also_do_where_two_run_side_by_side():
    """Neither gets faster above 2 units: 50 s for the first, 200 s for the second, at the same time."""
    priced = prices([linear(1, 400.0, high=2), linear(2, 100.0, high=2)], UNITS)
    assert sum(priced.values()) == pytest.approx(50.0 + 200.0)


def test_a_job_alone_costs_the_time_it_takes_at_its_fastest():
    assert prices([curve(1, 100.0, 60.0, 55.0, 54.0)], UNITS) == {1: 54.0}


def test_nobody_is_free_of_charge_on_a_machine_that_is_too_small_for_all():
    priced = prices([linear(job, 100.0 * job) for job in range(1, 10)], 1)
    assert all(price > 0 for price in priced.values())


@pytest.mark.parametrize(
    ("exponent", "shares"),
    [
        pytest.param(1.0, {1: 5, 2: 1}, id="linear: one after the other"),
        pytest.param(0.5, {1: 5, 2: 1}, id="as the root: three quarters for the first"),
        pytest.param(0.1, {1: 3, 2: 3}, id="hardly at all: side by side"),
    ],
)
def test_the_less_jobs_gain_from_width_the_more_equally_they_share(exponent: float, shares: dict[int, int]):
    left = [100.0 / width**exponent for width in range(1, 7)]
    assert share_out([curve(1, *left), curve(2, *left)], 4) == shares


def test_a_job_that_stopped_scaling_leaves_the_rest_to_one_that_has_not():
    assert share_out([curve(1, 100.0, 50.0), linear(2, 4000.0, high=6)], 4) == {1: 2, 2: 4}


def test_what_little_is_known_of_a_long_job_counts_in_part():
    """One epoch of a hundred had not ended yet: the job was believed to take ten hours, and took one."""
    sure = trainee(left=100.0, epoch_s=((1, 360.0),))
    assert sure.training is not None
    doubted = replace(sure, training=replace(sure.training, left_error=2.0))
    assert left_s(sure)[1] == pytest.approx(36_000.0)
    assert left_s(doubted)[1] == pytest.approx((36_000.0 * 1800.0) ** 0.5), (
        "as much as the guess for a job nobody knows"
    )


# -- what jobs of the same script have measured --------------------------------------------------------------

SHARED = SharedCurve(((1, 1, 100.0), (2, 1, 60.0), (8, 1, 30.0)))
ENDED = replace(SHARED, epochs=10.0, length=0.5)


@pytest.mark.parametrize(("curve", "widest"), [(None, 4), (SHARED, 16), (SharedCurve(((1, 1, 9.0),)), 4)])
def test_a_job_that_has_measured_nothing_may_go_as_wide_as_one_of_its_script_could(
    curve: SharedCurve | None, widest: int
) -> None:
    job = trainee(training=None, curve=curve, shape=shape(gpus=1, tasks="1..16"))
    assert widths(job)[-1] == widest


def test_of_others_only_the_shape_counts() -> None:
    found = left_s(trainee(left=10.0, epoch_s=((1, 20.0),), gpus="1..2", curve=SHARED))
    assert found == pytest.approx({1: 200.0, 2: 120.0})


def test_where_none_has_ended_a_job_of_which_nothing_is_known_takes_as_long_as_any() -> None:
    assert left_s(trainee(training=None, gpus="1..2", curve=SHARED)) == pytest.approx({1: 1800.0, 2: 1080.0})


def test_a_job_of_which_nothing_is_known_takes_as_long_as_those_that_have_ended() -> None:
    assert left_s(trainee(training=None, gpus="1..2", curve=ENDED)) == pytest.approx({1: 500.0, 2: 300.0})


@pytest.mark.parametrize(
    ("left", "total", "mean_length", "error", "epochs"),
    [
        (8.0, 10.0, 1.0, 0.0, 8.0),  # it is sure
        (8.0, 10.0, 1.0, 100.0, 3.0),  # all of it is five of its present epochs long, and it has done two
        (16.0, 20.0, 1.0, 100.0, 6.0),  # twice as many epochs as the others: ten, and it has done four
        (5.0, 10.0, 0.5, 100.0, 2.5),  # the five that it has done were half as long
        (2.0, 10.0, 1.0, 100.0, 0.2),  # longer than the others already: a tenth of what it says
        (8.0, None, 1.0, 0.0, 8.0),
    ],
)
def test_what_a_job_says_is_left_is_believed_the_less_the_less_it_has_done(
    left: float, total: float | None, mean_length: float, error: float, epochs: float
) -> None:
    job = trainee(left=left, epoch_s=((1, 100.0),), gpus=1, curve=ENDED)
    training = replace(job.training, left_error=error, total=total, mean_length=mean_length)  # type: ignore[type-var]
    assert left_s(replace(job, training=training)) == {1: pytest.approx(100.0 * epochs, rel=1e-3)}
