"""What does `swell sim` do with what it was told?"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from swell.engines.simulated import Saving
from swell.errors import Rejected
from swell.model.quantity import number_of
from swell.sim.generate import generate
from swell.sim.knowledge import Knowledge
from swell.sim.plot import plot
from swell.sim.report import Summary, job_document, summarize, to_json
from swell.sim.simulation import Result, Settings, Simulation
from swell.sim.traces import openb, plain, pollux
from swell.sim.traces.lines import read_lines, refuse
from swell.sim.workload import SimCluster, Workload

Progress = Callable[[str, int, int], None]  #: policy, jobs that have ended, all jobs

NAMED_MAX = 8  # jobs that never end, in the complaint
NODES_MAX, GPUS_MAX = 20_000, 64  # of a described cluster; more is a slip of the finger
LARGE, PACE_S, PACE_S_MAX = 5_000_000, 15.0, 60.0  # for each so many jobs x GPUs so many seconds between decisions
COLUMNS = (
    *(("policy", 14), ("done", 9), ("mean", 9), ("median", 9), ("p99", 9), ("makespan", 9)),
    *(("wait", 9), ("restarts", 9), ("used", 6)),
)


@dataclass(frozen=True)
class SimRequest:
    """What was asked for."""

    file: str | None  #: None: a generated workload
    cluster: str  #: 16x4, or a file with nodes
    policies: tuple[str, ...]
    saving: str
    speeds: str
    restart_s: float
    pace_s: float | None  #: None: as the size of the workload asks for
    round_s: float | None
    load: float
    profiles: str | None  #: of a Pollux workload; None: beside its folder
    jobs: int  #: of a generated workload
    hours: float
    seed: int


def run(
    wanted: SimRequest,
    *,
    is_json: bool,
    picture: str | None,
    progress: Progress = lambda *_: None,
    complain: Callable[[str], None] = lambda _: None,
) -> str:
    """The report. A picture is written to its file; `complain` hears of jobs that never end."""
    cluster = read_cluster(wanted.cluster)
    workload = read_workload(wanted)
    pace_s = pace_of(len(workload.jobs), cluster.gpus) if wanted.pace_s is None else wanted.pace_s
    settings = Settings(
        knowledge=Knowledge(wanted.speeds),
        saving=Saving(wanted.saving),
        restart_s=wanted.restart_s,
        pace_s=pace_s,
        round_s=wanted.round_s,
    )
    results = [(policy, _simulate(workload, cluster, settings, policy, progress)) for policy in wanted.policies]
    for policy, result in results:
        for problem in _unfinished(result):
            complain(f"{policy}: {problem}")
    if picture is not None:
        _write(Path(picture), plot(results, cluster.gpus))
    summaries = [(policy, summarize(result, cluster.gpus)) for policy, result in results]
    if is_json:
        return to_json(_document(workload, cluster, wanted, pace_s, summaries, results))
    return _table(workload, cluster, pace_s, summaries)


def _unfinished(result: Result) -> list[str]:
    """Who never ends, and why."""
    found = [f"{job.name} never ends: {job.problem}" for job in result.jobs if job.problem is not None]
    more = [f"and {len(found) - NAMED_MAX} more jobs (-o json has all of them)"] if len(found) > NAMED_MAX else []
    return [*found[:NAMED_MAX], *more]


def pace_of(jobs: int, gpus: int) -> float:
    """Seconds between two decisions at least: every one of ten thousand jobs would ask for three of its own."""
    return min(PACE_S_MAX, PACE_S * (jobs * gpus // LARGE))


def _simulate(
    workload: Workload,
    cluster: SimCluster,
    settings: Settings,
    policy: str,
    progress: Progress,
) -> Result:
    chosen = replace(settings, policy=policy)
    return Simulation(workload, cluster, chosen, progress=lambda *done: progress(policy, *done)).run()


def read_cluster(text: str) -> SimCluster:
    """As in 16x4, or a file."""
    found = re.fullmatch(r"([0-9]{1,6})x([0-9]{1,3})", text)
    if found is None and re.match(r"[0-9]+x", text) and not Path(text).exists():
        raise Rejected(f"--cluster {text}: write nodes and GPUs of each, as in 16x8, or name a file with nodes")
    if found is None:
        return openb.read_nodes(Path(text))
    nodes, gpus = int(found[1]), int(found[2])
    if not 1 <= nodes <= NODES_MAX or gpus > GPUS_MAX:
        raise Rejected(f"--cluster {text}: from 1x0 to {NODES_MAX}x{GPUS_MAX}, or a file with nodes")
    return SimCluster.of(nodes, gpus)


def read_workload(wanted: SimRequest) -> Workload:
    if wanted.file is None:
        found = generate(wanted.jobs, wanted.hours, wanted.seed)
    else:
        found = _read_file(Path(wanted.file), wanted.profiles)
    return found if wanted.load == 1.0 else found.faster(wanted.load)


def _read_file(path: Path, profiles: str | None) -> Workload:
    """Its first line says which format it has."""
    is_yaml = path.suffix in (".yaml", ".yml")
    lines = [] if is_yaml else read_lines(path)
    names = lines[0].text.split(",") if lines else []
    if "num_replicas" in names:
        beside = Path(profiles) if profiles is not None else path.parent.parent / pollux.STEP_TIMES
        return pollux.read(path, pollux.read_profiles(beside))
    if profiles is not None:
        raise refuse(path, "it is no Pollux workload, so --profiles has no effect; leave it out")
    return openb.read(path) if "gpu_milli" in names else plain.read(path)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise refuse(path, f"it cannot be written: {error.strerror or error}") from error


def _document(
    workload: Workload,
    cluster: SimCluster,
    wanted: SimRequest,
    pace_s: float,
    summaries: list[tuple[str, Summary]],
    results: list[tuple[str, Result]],
) -> dict[str, Any]:
    return {
        "workload": workload.name,
        "nodes": len(cluster.nodes),
        "gpus": cluster.gpus,
        "saving": wanted.saving,
        "speeds": wanted.speeds,
        "restart_s": wanted.restart_s,
        "pace_s": pace_s,
        "policies": [
            {"policy": policy, **summary.to_document(), "each": [job_document(job) for job in result.jobs]}
            for (policy, summary), (_, result) in zip(summaries, results, strict=True)
        ],
    }


def _table(workload: Workload, cluster: SimCluster, pace_s: float, summaries: list[tuple[str, Summary]]) -> str:
    head = f"{workload.name}: {number_of(len(workload.jobs), 'job')} on {number_of(len(cluster.nodes), 'node')}"
    head += f" with {number_of(cluster.gpus, 'GPU')}"
    head += f"; decisions are at least {pace_s:g} s apart" if pace_s else ""
    names = "".join(name.upper().ljust(width) for name, width in COLUMNS).rstrip()
    rows = [_row(policy, one) for policy, one in summaries]
    bound = min((one.lower_bound_s for _, one in summaries if one.lower_bound_s is not None), default=None)
    foot = f"alone on the cluster at its best width the average job takes {_time(bound)}"
    return "\n".join([head, "", names, *rows, "", foot])


def _row(policy: str, one: Summary) -> str:
    cells = (
        *(policy, f"{one.done}/{one.jobs}", _time(one.mean_s), _time(one.median_s), _time(one.p99_s)),
        *(_time(one.makespan_s), _time(one.waited_s), f"{one.restarts_per_job:.1f}/job", f"{one.utilization:.0%}"),
    )
    return "".join(cell.ljust(width) for cell, (_, width) in zip(cells, COLUMNS, strict=True)).rstrip()


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.0f}s"
    return f"{seconds / 60:.0f}m" if seconds < 7200 else f"{seconds / 3600:.1f}h"
