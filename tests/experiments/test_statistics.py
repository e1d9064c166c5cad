"""Averages and intervals of times of which some did not finish, and the sentences that may be said."""

from __future__ import annotations

import pytest

from experiments.logs import gang, pod, run, submitted
from swell.experiments.conclude import conclude, standings
from swell.experiments.figures import MeasuredRun, RunEnd
from swell.experiments.statistics import Average, Interval, Observed, interval, mean, paired_difference, quantile
from swell.experiments.tables import summary_table


def ended(*seconds: float) -> list[Observed]:
    return [Observed(one) for one in seconds]


def test_quantiles_of_times_that_all_ended_are_those_of_the_sorted_list() -> None:
    times = ended(*range(1, 101))
    assert [quantile(times, part) for part in (0.5, 0.99, 1.0)] == [50, 99, 100]


def test_a_censored_time_counts_as_longer_than_the_ends_before_it() -> None:
    times = [*ended(1, 2, 3), Observed(2.5, is_censored=True)]  # of four, two had ended; then one of one left
    assert [quantile(times, part) for part in (0.25, 0.5, 0.75, 1.0)] == [1, 2, 3, 3]


def test_there_is_no_median_where_most_did_not_end() -> None:
    survivors = [*ended(1, 2), *[Observed(100.0, is_censored=True)] * 48]
    assert quantile(survivors, 0.5) is None
    assert mean(survivors) == Average((3 + 4800) / 50, is_lower_bound=True)
    assert mean([]) is None


def test_the_interval_of_three_runs_is_students() -> None:
    found = interval([10.0, 12.0, 14.0])
    assert found is not None
    assert (found.mean, found.runs) == (12.0, 3)
    assert found.high - found.mean == pytest.approx(4.303 * 2 / 3**0.5)


def test_one_run_says_nothing_about_the_next() -> None:
    assert interval([10.0]) is None
    assert paired_difference([], []) is None


def test_runs_are_compared_one_by_one_with_the_same_jobs() -> None:
    """Jobs differ a lot from run to run, the contenders by one second always: that is a difference."""
    assert paired_difference([11.0, 101.0, 51.0], [10.0, 100.0, 50.0]) == Interval(1.0, 1.0, 1.0, 3)


def spans(contender: str, *seconds: float) -> list[MeasuredRun]:
    return [
        run(
            [gang("a", 1)],
            [submitted("a"), *pod("a", 0, bound=0.0, running=0.0, succeeded=span)],
            watched_s=span,
            contender=contender,
            repeat=number,
        )
        for number, span in enumerate(seconds, 1)
    ]


def stuck(contender: str) -> list[MeasuredRun]:
    log = [submitted("a"), *pod("a", 0, bound=0.0, running=0.0, succeeded=1.0), submitted("b")]
    gangs = [gang("a", 1), gang("b", 1)]
    return [run(gangs, log, watched_s=99.0, contender=contender, repeat=n, end=RunEnd.STUCK) for n in (1, 2, 3)]


def said(*runs: list[MeasuredRun]) -> tuple[str, ...]:
    return conclude(standings([one for some in runs for one in some]))


def test_who_does_not_finish_is_not_compared_by_the_times_of_its_survivors() -> None:
    assert said(stuck("default"), spans("swell", 30, 31, 32)) == (
        "Only swell finished all 3 gangs.",
        (
            "default finished 3 of 6 gangs (stuck); times of those that finished are those of survivors and are not "
            "compared."
        ),
    )


def row(runs: list[MeasuredRun]) -> dict[str, str]:
    table = summary_table(standings(runs))
    return dict(zip(table.columns, table.rows[0], strict=True))


def two(contender: str, *pairs: tuple[float, float]) -> list[MeasuredRun]:
    """Runs of two gangs with these totals, of which each waits for a tenth of it."""
    return [
        run(
            [gang("a", 1), gang("b", 1)],
            [
                event
                for name, total in zip("ab", pair, strict=True)
                for event in (submitted(name), *pod(name, 0, bound=total / 10, running=total / 10, succeeded=total))
            ],
            watched_s=max(pair),
            contender=contender,
            repeat=number,
        )
        for number, pair in enumerate(pairs, 1)
    ]


def test_every_number_of_the_table_has_its_interval_over_runs() -> None:
    """Only the makespan had one, and a median was that of all gangs of all runs, which are no independent values."""
    found = row(two("swell", (10, 30), (12, 32), (14, 34)))
    half = 4.303 * 2 / 3**0.5
    assert {name: found[name] for name in list(found)[:7]} == {
        "contender": "swell",
        "done": "6/6",
        "makespan s": f"32.0 ± {half:.1f}",
        "total mean s": f"22.0 ± {half:.1f}",
        "total median s": f"12.0 ± {half:.1f}",
        "total p99 s": f"32.0 ± {half:.1f}",
        "wait mean s": f"2.2 ± {half / 10:.1f}",
    }
    assert found["clogged"] == "0% ± 0%"
    assert [found[name].count("±") for name in ("used", "gangs/s", "pods/s")] == [1, 1, 1]
    assert (found["CPU s"], found["memory MiB"]) == ("–", "–")


def test_one_run_has_numbers_and_no_intervals() -> None:
    found = row(two("swell", (10, 30)))
    assert [found[name] for name in list(found)[2:7]] == ["30.0", "20.0", "10.0", "30.0", "2.0"]
    assert "±" not in "".join(found.values())


def test_what_is_a_lower_bound_or_known_of_survivors_only_has_no_interval() -> None:
    found = row(stuck("default"))
    assert [found[name] for name in list(found)[1:7]] == [
        *("3/6", "not done after 99", "≥ 50.0", f"1.0 ± {0:.1f}", "–", "0.0 of 3"),
    ]


def test_there_is_no_median_where_one_run_has_none() -> None:
    late = run([gang("a", 1)], [submitted("a")], watched_s=99.0, repeat=2, end=RunEnd.STUCK)
    found = row([*spans("swell", 10), late])
    assert [found[name] for name in list(found)[1:6]] == ["1/2", "not done after 99", "≥ 54.5", "–", "–"]


def test_nobody_who_finishes_is_said_first() -> None:
    assert said(stuck("default"))[0] == "No contender finished all gangs, so no completion time can be compared."


def test_a_difference_is_said_with_its_interval() -> None:
    assert said(spans("fifo", 40, 42, 41), spans("swell", 30, 31, 32)) == (
        (
            "swell was faster than fifo: mean makespan 31.0 s and 41.0 s in 3 runs; the difference is 10.0 s (95 % "
            "interval 7.5 to 12.5 s)."
        ),
    )


def test_noise_is_no_difference() -> None:
    assert said(spans("fifo", 30, 42, 35), spans("swell", 31, 33, 32)) == (
        (
            "No difference between swell and fifo was shown: mean makespan 32.0 s and 35.7 s in 3 runs; the difference "
            "is 3.7 s (95 % interval -8.8 to 16.2 s), which includes 0."
        ),
    )


def test_one_run_of_each_shows_no_difference() -> None:
    assert said(spans("fifo", 90), spans("swell", 30)) == (
        "swell and fifo: mean makespan 30.0 s and 90.0 s in one run each; one run cannot show a difference.",
    )
