"""What differs between two experiments? Contenders that both have, side by side, and whether they may be compared."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from swell.errors import Rejected
from swell.experiments.conclude import ContenderRuns, standings
from swell.experiments.experiment import Experiment
from swell.experiments.results import ResultsFolder
from swell.experiments.tables import MISSING, TextTable

COLUMNS = ("contender", "done before", "done after", "makespan before", "makespan after", "change")


def compare(before: Path, after: Path) -> str:
    folders = [ResultsFolder.existing(path) for path in (before, after)]
    experiments = [folder.experiment() for folder in folders]
    found = [{one.contender: one for one in standings(folder.measured())} for folder in folders]
    both = [name for name in found[0] if name in found[1]]
    if not both:
        raise Rejected(f"{before} and {after} have no contender in common that was measured in both")
    rows = tuple(_row(found[0][name], found[1][name]) for name in both)
    return "\n".join([*_warnings(*experiments), TextTable(COLUMNS, rows).plain()])


def _row(before: ContenderRuns, after: ContenderRuns) -> tuple[str, ...]:
    spans = [_makespan(one) for one in (before, after)]
    change = MISSING if spans[0] is None or spans[1] is None else f"{spans[1] / spans[0] - 1:+.0%}"
    return (
        before.contender,
        *(f"{one.done}/{one.gangs}" for one in (before, after)),
        *(MISSING if span is None else f"{span:.1f} s" for span in spans),
        change,
    )


def _makespan(one: ContenderRuns) -> float | None:
    """None: it did not finish everything, so there is none."""
    return fmean(one.makespans.values()) if one.finishes_all else None


def _warnings(before: Experiment, after: Experiment) -> list[str]:
    differs = [
        name
        for name in ("workload", "cluster", "seed", "stuck_s", "longest_s")
        if getattr(before, name) != getattr(after, name)
    ]
    if not differs:
        return []
    return [
        f"These experiments differ in {', '.join(differs)}: what changed may be due to that, not to a contender.",
        "",
    ]
