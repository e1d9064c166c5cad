"""How soon is the average job done? The published workloads of Pollux, in the simulator, with every policy.

`--data DIR` names a folder that has `pollux/` as it was published (docs/measurements.md says from where). The cluster
and the cost of a restart are the published ones: 16 nodes with 4 GPUs, 30 s. `theirs` is Tiresias in this simulator.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from bench.rows import Row, Setting, middle, progress
from swell.engines.simulated import Saving
from swell.planner.policies import POLICIES
from swell.sim import Settings, SimCluster, Simulation, Workload
from swell.sim.knowledge import Knowledge
from swell.sim.report import Summary, summarize
from swell.sim.traces import pollux

CLUSTER = SimCluster.of(16, 4)
ROUND_S = 60.0
PUBLISHED = Settings(knowledge=Knowledge.KNOWN, saving=Saving.AT_ONCE, round_s=ROUND_S)
#: Row → how, and what it should reach.
OURS: dict[str, tuple[Settings, str]] = {
    "known, at once": (Settings(knowledge=Knowledge.KNOWN, saving=Saving.AT_ONCE), "<= 2500"),
    "blank, at once": (Settings(saving=Saving.AT_ONCE, shares_curves=False), "<= 2750"),
    "blank, saved when asked": (Settings(saving=Saving.WHEN_ASKED, shares_curves=False), "<= 2900"),
    "blank, epochs only": (Settings(saving=Saving.EPOCHS, shares_curves=False), "<= 3696"),
    "shared curves, at once": (Settings(saving=Saving.AT_ONCE), "<= 2550"),
    "shared curves, saved when asked": (Settings(saving=Saving.WHEN_ASKED), "<= 2900"),
    "shared curves, epochs only": (Settings(saving=Saving.EPOCHS), "<= 3696"),
}


def run(setting: Setting) -> Iterator[Row]:
    if setting.data is None:
        progress("quality needs --data DIR with pollux/ in it; it is left out")
        return
    workloads = _workloads(setting.data, setting.workloads)
    theirs = None
    for policy in (name for name in ("tiresias", "optimus") if name in POLICIES):
        row = _row(policy, workloads, replace(PUBLISHED, policy=policy))
        theirs = row.ours if policy == "tiresias" else theirs
        yield row
    for name, (settings, aim) in OURS.items():
        if not setting.rows or any(wanted in name for wanted in setting.rows):
            yield _row(name, workloads, settings, theirs, aim)


def _workloads(data: Path, wanted: tuple[str, ...]) -> list[Workload]:
    folder = data / "pollux"
    profiles = pollux.read_profiles(folder / pollux.STEP_TIMES)
    paths = sorted((folder / "workloads").glob("workload-*.csv"))
    chosen = [path for path in paths if not wanted or path.stem.removeprefix("workload-") in wanted]
    return [pollux.read(path, profiles) for path in chosen]


def _row(name: str, workloads: list[Workload], settings: Settings, theirs: float | None = None, aim: str = "") -> Row:
    found: list[Summary] = []
    plan_ms: list[float] = []
    for workload in workloads:
        result = Simulation(workload, CLUSTER, settings, busy=time.thread_time).run()
        found.append(summarize(result, CLUSTER.gpus))
        plan_ms += [1000 * seconds for seconds in result.plan_s]
    means = [one.mean_s or float("nan") for one in found]
    return Row(
        "quality",
        name,
        "s",
        fmean(means),
        theirs,
        aim,
        {
            "each": {workload.name: mean for workload, mean in zip(workloads, means, strict=True)},
            "lower_bound": fmean(one.lower_bound_s or 0.0 for one in found),
            "p99": [one.p99_s for one in found],
            "makespan": [one.makespan_s for one in found],
            "restarts_per_job": fmean(one.restarts_per_job for one in found),
            "gpu_hours_per_job": fmean(one.gpu_hours_per_job for one in found),
            "worst_fairness": max(one.worst_fairness or 0.0 for one in found),
            "done": sum(one.done for one in found),
            "jobs": sum(one.jobs for one in found),
            "decision_ms": middle(plan_ms),
            "decision_ms_max": max(plan_ms),
        },
    )
