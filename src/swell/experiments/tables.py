"""Which tables does a report have? Contenders in numbers, times by contender and size, and every job as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from swell.experiments.conclude import ContenderRuns
from swell.experiments.figures import MeasuredRun
from swell.experiments.measure import GangOutcome
from swell.experiments.statistics import Observed, deviation, interval, mean, quantile

MISSING = "–"
GANG_COLUMNS = (
    *("run", "contender", "gang", "size", "outcome", "submitted_s", "created_s", "first_bound_s", "bound_s"),
    *("running_s", "ended_s", "wait_s", "spread_s", "startup_s", "run_s", "total_s", "is_censored", "restarts"),
    "estimated",
)
SCHEDULER_COLUMNS = (
    *("size", "experiment", "scheduler", "log_time", "external_recorded_time", "submit_to_completion_time"),
)
SUMMARY_COLUMNS = (
    *("contender", "done", "makespan s", "total mean s", "total median s", "total p99 s", "wait mean s"),
    *("used", "clogged", "gangs/s", "pods/s", "CPU s", "memory MiB"),
)
KNOWN_COLUMNS = ("scheduler", "experiment", "done", "total_time mean", "total_time std", "run_time mean")


@dataclass(frozen=True, slots=True)
class TextTable:
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def plain(self) -> str:
        """For a terminal."""
        widths = [max(len(row[place]) for row in (self.columns, *self.rows)) for place in range(len(self.columns))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in (tuple(name.upper() for name in self.columns), *self.rows)
        ]
        return "\n".join(lines)


def summary_table(found: Sequence[ContenderRuns]) -> TextTable:
    return TextTable(SUMMARY_COLUMNS, tuple(_summary(one) for one in found))


def _summary(one: ContenderRuns) -> tuple[str, ...]:
    totals = [run.totals() for run in one.runs]
    figures = [run.figures for run in one.runs]
    return (
        one.contender,
        f"{one.done}/{one.gangs}",
        _makespan(one),
        _means(totals),
        _quantiles(totals, 0.5),
        _quantiles(totals, 0.99),
        _waits(one.runs),
        _over_runs([100 * figure.utilization for figure in figures], 0, "%"),
        _over_runs([100 * figure.clogged for figure in figures], 0, "%"),
        _over_runs([figure.gangs_per_s for figure in figures], 2),
        _over_runs([figure.pods_per_s for figure in figures], 1),
        _over_runs([figure.cpu_s for figure in figures], 1),
        _over_runs([figure.memory_mib for figure in figures], 0),
    )


def _over_runs(values: Sequence[float | None], digits: int, unit: str = "") -> str:
    """Mean of what each run has, with its interval; with one run there is none. A run that has no value counts not."""
    known = [value for value in values if value is not None]
    if not known:
        return MISSING
    found = interval(known)
    more = "" if found is None else f" ± {found.high - found.mean:.{digits}f}{unit}"
    return f"{fmean(known):.{digits}f}{unit}{more}"


def _means(totals: Sequence[Sequence[Observed]]) -> str:
    """A lower bound has no interval: nobody knows how far off it is."""
    together = mean([time for run in totals for time in run])
    if together is None or together.is_lower_bound:
        return MISSING if together is None else str(together)
    return _over_runs([fmean(time.seconds for time in run) for run in totals], 1)


def _quantiles(totals: Sequence[Sequence[Observed]], part: float) -> str:
    """None where any run has none: that of the others would be one of survivors."""
    found = [quantile(run, part) for run in totals]
    return MISSING if None in found else _over_runs(found, 1)


def _waits(runs: Sequence[MeasuredRun]) -> str:
    """Of how many gangs, where not all were bound whole; those are survivors, and have no interval."""
    found = [[times.wait_s for times in run.times if times.wait_s is not None] for run in runs]
    together = [wait for waits in found for wait in waits]
    if len(together) < sum(len(run.times) for run in runs):
        return f"{fmean(together):.1f} of {len(together)}" if together else MISSING
    return _over_runs([fmean(waits) for waits in found], 1)


def _makespan(one: ContenderRuns) -> str:
    spans = list(one.makespans.values())
    if len(spans) < len(one.runs):
        watched = max(run.figures.at_least_s for run in one.runs)
        return f"not done after {watched:.0f}"
    return _over_runs(spans, 1)


def _number(value: float | None) -> str:
    return MISSING if value is None else f"{value:.1f}"


def known_table(found: Sequence[ContenderRuns]) -> TextTable:
    """Scheduler by experiment, as in the scheduler experiments that people know; but nothing is left out."""
    sizes = sorted({times.size for one in found for run in one.runs for times in run.times})
    return TextTable(KNOWN_COLUMNS, tuple(_known(one, size) for one in found for size in sizes))


def _known(one: ContenderRuns, size: int) -> tuple[str, ...]:
    totals = [time for run in one.runs for time in run.totals(size)]
    runs = [times.run_s for run in one.runs for times in run.times if times.size == size and times.run_s is not None]
    done = sum(not time.is_censored for time in totals)
    average = mean(totals)
    return (
        one.contender,
        f"size-{size}",
        f"{done}/{len(totals)}",
        MISSING if average is None else str(average),
        _number(deviation(totals)),
        _number(fmean(runs) if runs else None),
    )


def schedulers_csv(runs: Sequence[MeasuredRun]) -> str:
    """With the columns of the scheduler experiments that people know: of gangs that are done, as there."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(SCHEDULER_COLUMNS)
    for run in runs:
        for one in run.times:
            if one.outcome is not GangOutcome.DONE or one.ended_s is None:
                continue
            started = one.first_bound_s if one.bound_s is None else one.bound_s
            times = (one.run_s, None if started is None else one.ended_s - started, one.total_s)
            numbers = ["" if value is None else f"{value:.3f}" for value in times]
            writer.writerow([one.size, f"size-{one.size}", run.facts.contender, *numbers])
    return text.getvalue()


def gangs_csv(runs: Sequence[MeasuredRun]) -> str:
    """One line for each gang of each run, finished or not."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(GANG_COLUMNS)
    for run in runs:
        for one in run.times:
            moments = (one.submitted_s, one.created_s, one.first_bound_s, one.bound_s, one.running_s, one.ended_s)
            times = (one.wait_s, one.spread_s, one.startup_s, one.run_s, one.total_s)
            numbers = ["" if value is None else f"{value:.3f}" for value in (*moments, *times)]
            head = [run.facts.repeat, run.facts.contender, one.gang, one.size, one.outcome]
            writer.writerow([*head, *numbers, int(one.is_censored), one.restarts, " ".join(one.estimated)])
    return text.getvalue()
