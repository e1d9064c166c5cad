"""What is written about an experiment? One page that needs nothing else, its plots as files, and every job as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from swell.errors import Rejected
from swell.experiments.conclude import ContenderRuns, conclude, standings
from swell.experiments.experiment import ClusterKind, Experiment
from swell.experiments.plots import nodes_by_gang, plots
from swell.experiments.results import ResultsFolder
from swell.experiments.tables import TextTable, gangs_csv, known_table, schedulers_csv, summary_table
from swell.model.quantity import number_of

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 96rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
p, ul, figure { max-width: 60rem; }
table { border-collapse: collapse; margin: 1rem 0; font-size: 13px; display: block; overflow-x: auto; }
th, td { border: 1px solid #ccc; padding: .25rem .6rem; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
figure { margin: 1.5rem 0; } svg { width: 100%; height: auto; } .note { color: #555; font-size: 13px; }
"""
NOTE = (
    "Times run from submission to completion. An unfinished gang counts with the time that it was watched: a mean with "
    "≥ is a lower bound, and there is no median where more than half did not finish. A number is the mean of what each "
    "run has, also of the runs' medians; ± is the 95 % interval of Student over runs, which needs two of them. What "
    "is a lower bound, or known of some gangs only, has none."
)
POLICY = "default-src 'none'; style-src 'unsafe-inline'"  # nothing is loaded, and nothing runs


def write_report(folder: ResultsFolder, out: Path | None = None) -> tuple[Path, str]:
    """The page, and the same in short for a terminal."""
    runs = folder.measured()
    if not runs:
        raise Rejected(f"{folder.path} has no finished run; `swell experiment run` with the same file goes on with it")
    experiment, found = folder.experiment(), standings(runs)
    pictures = plots(found)
    for one in found:
        first = one.runs[0]
        _, events = folder.load(first.facts.contender, first.facts.repeat)
        pictures[f"nodes-{one.contender}"] = nodes_by_gang(first, events)
    target = out or folder.report
    target.mkdir(parents=True, exist_ok=True)
    for name, picture in pictures.items():
        (target / f"{name}.svg").write_text(picture, encoding="utf-8")
    (target / "jobs.csv").write_text(gangs_csv(runs), encoding="utf-8")
    (target / "scheduler-times.csv").write_text(schedulers_csv(runs), encoding="utf-8")
    page = target / "index.html"
    page.write_text(_page(experiment, found, pictures, folder), encoding="utf-8")
    return page, shown(experiment, found)


def shown(experiment: Experiment, found: Sequence[ContenderRuns]) -> str:
    parts = [
        _head(experiment, found),
        "",
        summary_table(found).plain(),
        "",
        *conclude(found),
        *_missing(experiment, found),
    ]
    return "\n".join(parts)


def _head(experiment: Experiment, found: Sequence[ContenderRuns]) -> str:
    capacity = found[0].runs[0].facts.capacity
    holds = number_of(capacity.cpus_milli / 1000, "CPU")
    holds += f" and {number_of(capacity.gpus, 'GPU')}" if capacity.gpus else ""
    where = "in the simulator" if experiment.cluster.kind is ClusterKind.SIMULATOR else "of a Kubernetes cluster"
    runs = f"{number_of(experiment.workload.gangs, 'gang')}, {number_of(experiment.repeats, 'run')} each"
    return f"{experiment.name}: {runs}, on {number_of(capacity.nodes, 'node')} with {holds} {where}"


def _missing(experiment: Experiment, found: Sequence[ContenderRuns]) -> list[str]:
    wanted = experiment.repeats * len(experiment.contenders)
    there = sum(len(one.runs) for one in found)
    return [] if there == wanted else [f"Only {there} of {wanted} runs are measured so far."]


# -- the page --------------------------------------------------------------------------------------------------


def _page(
    experiment: Experiment, found: Sequence[ContenderRuns], pictures: dict[str, str], folder: ResultsFolder
) -> str:
    parts = [
        f"<h1>{escape(experiment.name)}</h1>",
        f"<p>{escape(_head(experiment, found))}; seed {experiment.seed}.</p>",
        "<h2>What may be concluded</h2>",
        "<ul id='conclusions'>",
        *(f"<li>{escape(text)}</li>" for text in (*conclude(found), *_missing(experiment, found))),
        "</ul>",
        "<h2>Contenders</h2>",
        _table("summary", summary_table(found)),
        f"<p class='note'>{escape(NOTE)}</p>",
        *(f"<figure id='{escape(name)}'>{picture}</figure>" for name, picture in pictures.items()),
        "<h2>By contender and size</h2>",
        _table("known", known_table(found)),
        _stuck(found),
        "<h2>Versions</h2>",
        _table("versions", TextTable(("what", "value"), _versions(folder))),
    ]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(experiment.name)}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"><style>{STYLE}</style></head>'
        f"<body>{''.join(parts)}</body></html>\n"
    )


def _table(name: str, table: TextTable) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in table.rows)
    return f"<table id='{name}'><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _stuck(found: Sequence[ContenderRuns]) -> str:
    details = [
        f"<li>{escape(run.facts.contender)}, run {run.facts.repeat}, {escape(str(run.facts.end))}: "
        f"{escape(run.facts.detail)}</li>"
        for one in found
        for run in one.runs
        if run.facts.detail
    ]
    return f"<h2>Runs that did not complete</h2><ul id='stuck'>{''.join(details)}</ul>" if details else ""


def _versions(folder: ResultsFolder) -> tuple[tuple[str, ...], ...]:
    return tuple((name, str(value)) for name, value in sorted(folder.versions().items()))
