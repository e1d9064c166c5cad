"""What may be said of times of which some are only known to be longer than they were watched?

*Quantiles* are those of Kaplan and Meier: a time that is censored counts as longer than all ends before it. Where
more than the asked part has not ended there is no such quantile, and none is made up. A *mean* with censored times in
it is a lower bound and says so. An *interval* is that of Student for the mean of a few runs (95 %), so two runs at
least are needed: the gangs of one run share a cluster and wait for each other, and are no independent measurements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

#: 97.5 % of Student's distribution by degrees of freedom, 1 to 30; above that hardly another than the last
STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
    *(2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


@dataclass(frozen=True, slots=True)
class Observed:
    """One measured time."""

    seconds: float
    is_censored: bool = False  #: it is at least that


@dataclass(frozen=True, slots=True)
class Average:
    value: float
    is_lower_bound: bool = False

    def __str__(self) -> str:
        return f"{'≥ ' if self.is_lower_bound else ''}{self.value:.1f}"


@dataclass(frozen=True, slots=True)
class Interval:
    """Of a mean, 95 %."""

    mean: float
    low: float
    high: float
    runs: int

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


def mean(observed: Sequence[Observed]) -> Average | None:
    """None: there is nothing to average."""
    if not observed:
        return None
    return Average(fmean(one.seconds for one in observed), any(one.is_censored for one in observed))


def deviation(observed: Sequence[Observed]) -> float | None:
    """Of those that have ended: what the tables people know call std. None: fewer than two have."""
    ended = [one.seconds for one in observed if not one.is_censored]
    return stdev(ended) if len(ended) > 1 else None


def survival(observed: Sequence[Observed]) -> tuple[tuple[float, float], ...]:
    """(seconds, part that takes longer), at every end."""
    left, part = len(observed), 1.0
    steps: list[tuple[float, float]] = []
    for one in sorted(observed, key=lambda one: (one.seconds, one.is_censored)):  # an end before what is cut off then
        if not one.is_censored:
            part *= (left - 1) / left
            steps.append((one.seconds, part))
        left -= 1
    return tuple(steps)


def quantile(observed: Sequence[Observed], part: float) -> float | None:
    """The shortest time in which at least this part has ended; None: so many have not."""
    return next((seconds for seconds, longer in survival(observed) if longer <= 1.0 - part + 1e-12), None)


def interval(values: Sequence[float]) -> Interval | None:
    """None: one value or none says nothing about the next."""
    count = len(values)
    if count < 2:
        return None
    half = STUDENT[min(count - 1, len(STUDENT)) - 1] * stdev(values) / math.sqrt(count)
    centre = fmean(values)
    return Interval(centre, centre - half, centre + half, count)


def paired_difference(ours: Sequence[float], theirs: Sequence[float]) -> Interval | None:
    """Of runs that had the same jobs: ours minus theirs, run by run."""
    return interval([one - other for one, other in zip(ours, theirs, strict=True)])
