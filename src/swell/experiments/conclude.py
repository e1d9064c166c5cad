"""Which sentences may be said of an experiment, and no more?

Two contenders are compared in runs that had the same jobs. Who does not finish is said first, because a time of those
that finished is the time of survivors. A difference is said to be one only where its 95 % interval excludes none at
all, so with a single run of each nothing is said about who is faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from swell.experiments.figures import MeasuredRun
from swell.experiments.statistics import Interval, paired_difference
from swell.model.quantity import number_of


@dataclass(frozen=True, slots=True)
class ContenderRuns:
    """One contender in all its runs."""

    contender: str
    runs: tuple[MeasuredRun, ...]  #: by their number

    @property
    def done(self) -> int:
        return sum(run.figures.done for run in self.runs)

    @property
    def gangs(self) -> int:
        return sum(run.figures.gangs for run in self.runs)

    @property
    def finishes_all(self) -> bool:
        return bool(self.runs) and self.done == self.gangs

    @property
    def makespans(self) -> dict[int, float]:
        """By run, of those that were complete."""
        found = {run.figures.repeat: run.figures.makespan_s for run in self.runs}
        return {repeat: span for repeat, span in found.items() if span is not None}


def standings(runs: Sequence[MeasuredRun]) -> tuple[ContenderRuns, ...]:
    """By contender: who finished more first, then who was faster."""
    names = dict.fromkeys(run.facts.contender for run in runs)
    found = [
        ContenderRuns(
            name, tuple(sorted((run for run in runs if run.facts.contender == name), key=lambda one: one.facts.repeat))
        )
        for name in names
    ]
    return tuple(sorted(found, key=_order))


def _order(standing: ContenderRuns) -> tuple[float, float, str]:
    spans = standing.makespans.values()
    missing = 1.0 - standing.done / standing.gangs if standing.gangs else 1.0
    return missing, fmean(spans) if spans else float("inf"), standing.contender


def conclude(found: Sequence[ContenderRuns]) -> tuple[str, ...]:
    whole = [one for one in found if one.finishes_all]
    sentences = [_unfinished(one) for one in found if not one.finishes_all]
    if not whole:
        return ("No contender finished all gangs, so no completion time can be compared.", *sentences)
    if len(whole) == 1 and len(found) > 1:
        sentences.insert(0, f"Only {whole[0].contender} finished all {number_of(whole[0].gangs, 'gang')}.")
    best, *others = whole
    return (*sentences, *(_compared(best, other) for other in others))


def _unfinished(one: ContenderRuns) -> str:
    ends = sorted({str(run.figures.end) for run in one.runs if run.figures.done < run.figures.gangs})
    return (
        f"{one.contender} finished {one.done} of {number_of(one.gangs, 'gang')} ({', '.join(ends)}); "
        "times of those that finished are those of survivors and are not compared."
    )


def _compared(best: ContenderRuns, other: ContenderRuns) -> str:
    both = sorted(best.makespans.keys() & other.makespans.keys())
    ours, theirs = ([one.makespans[repeat] for repeat in both] for one in (best, other))
    if not both:
        return f"{best.contender} and {other.contender} finished no run with the same jobs; nothing can be compared."
    difference = paired_difference(theirs, ours)
    means = f"mean makespan {fmean(ours):.1f} s and {fmean(theirs):.1f} s"
    if difference is None:
        return f"{best.contender} and {other.contender}: {means} in one run each; one run cannot show a difference."
    runs = number_of(len(both), "run")
    if difference.excludes_zero:
        return f"{best.contender} was faster than {other.contender}: {means} in {runs}; {_shown(difference)}."
    return (
        f"No difference between {best.contender} and {other.contender} was shown: {means} in {runs}; "
        f"{_shown(difference)}, which includes 0."
    )


def _shown(one: Interval) -> str:
    return f"the difference is {one.mean:.1f} s (95 % interval {one.low:.1f} to {one.high:.1f} s)"
