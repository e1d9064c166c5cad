"""What happened to one gang, step by step: what was asked, what was planned, what was given?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from swell.errors import NotFound
from swell.experiments.events import EventKind, RunEvent
from swell.experiments.figures import MeasuredRun, measure_run
from swell.experiments.measure import GangAsked, GangTimes
from swell.experiments.results import ResultsFolder
from swell.manifests.fields import did_you_mean
from swell.model.quantity import number_of


def trace(path: Path, gang: str, contender: str | None, repeat: int) -> str:
    """In every contender's run of that number, or in one of them."""
    folder = ResultsFolder.existing(path)
    names = [one.name for one in folder.experiment().contenders if folder.has(one.name, repeat)]
    if contender is not None and contender not in names:
        raise NotFound(f"{path} has no run {repeat} of {contender!r}{did_you_mean(contender, names)}")
    chosen = names if contender is None else [contender]
    if not chosen:
        raise NotFound(f"{path} has no finished run {repeat}; see `swell experiment report {path}`")
    return "\n\n".join(_trace(folder, name, repeat, gang) for name in chosen)


def _trace(folder: ResultsFolder, contender: str, repeat: int, name: str) -> str:
    facts, events = folder.load(contender, repeat)
    run = measure_run(facts, events)
    asked = next((gang for gang in facts.gangs if gang.name == name), None)
    if asked is None:
        known = [gang.name for gang in facts.gangs]
        raise NotFound(f"run {repeat} of {contender} has no gang {name!r}{did_you_mean(name, known[:50])}")
    own = sorted((event for event in events if event.gang == name), key=lambda event: event.at)
    times = next(one for one in run.times if one.gang == name)
    return "\n".join(
        [f"{contender}, run {repeat}, {name}", *_asked(asked), *map(_line, own), *_given(run, asked, times, own)]
    )


def _asked(gang: GangAsked) -> list[str]:
    gpus = f", {number_of(gang.gpus, 'GPU')}" if gang.gpus else ""
    grows = f" to {gang.size_max}" if gang.size_max else ""
    each = f"{number_of(gang.cpus_milli / 1000, 'CPU')}, {gang.memory_mib} MiB{gpus} each"
    ranks = f"{gang.size}{grows} ranks" if grows else number_of(gang.size, "rank")
    return [f"  asked   {ranks}, {each}, for {gang.duration_s:g} s"]


def _line(event: RunEvent) -> str:
    who = "gang" if event.rank is None else f"rank {event.rank}"
    where = f" on {event.node}" if event.node else ""
    stamp = "" if event.stamp is None else f"  (object says {event.stamp:.1f})"
    late = "  (heard of late)" if event.is_late else ""
    detail = f"  {event.detail}" if event.detail else ""
    return f"  {event.at:9.3f} s  {who:8} {event.kind}{where}{detail}{stamp}{late}"


def _given(run: MeasuredRun, asked: GangAsked, times: GangTimes, events: Sequence[RunEvent]) -> list[str]:
    bound = {event.rank for event in events if event.kind is EventKind.BOUND}
    nodes = sorted({event.node for event in events if event.kind is EventKind.BOUND})
    verdict = (
        "as asked" if len(bound) >= asked.size else f"NOT as asked: {len(bound)} of {number_of(asked.size, 'rank')}"
    )
    parts = [
        f"{name} {value:.3f} s"
        for name, value in (
            ("wait", times.wait_s),
            ("spread", times.spread_s),
            ("start-up", times.startup_s),
            ("run", times.run_s),
        )
        if value is not None
    ]
    more = f"; watched until {run.facts.watched_s:.1f} s" if times.is_censored else ""
    planned = next((event.node for event in events if event.kind is EventKind.PLANNED and event.node), None)
    if planned is not None:
        verdict += ", as planned" if planned == ", ".join(nodes) else f", NOT as planned: {planned}"
    given = f"{number_of(len(bound), 'rank')} on {number_of(len(nodes), 'node')}"
    return [
        f"  given   {given} ({verdict}); {times.outcome}{more}",
        f"  times   {', '.join(parts) or _no_times(len(bound))}",
    ]


def _no_times(bound: int) -> str:
    return "none: the gang was never whole" if bound else "none: no rank was bound"
