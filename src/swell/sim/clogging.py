"""Gangs that arrive at once, more than fit: do they finish, or block each other for ever?

To Kubernetes' own scheduler a gang is a number of pods: under `kube-default` each of them is a job of its own, and a
gang begins its work when all of its pods run. Under other policies a gang is one job.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from swell.engines.simulated.behavior import Table
from swell.model.resources import Resources
from swell.sim.simulation import Settings, Simulation
from swell.sim.workload import SimCluster, SimJob, Workload

POD_BY_POD = "kube-default"
ONE_CPU = Resources(cpus_milli=1000)


@dataclass(frozen=True, slots=True)
class Clogging:
    """How it ended."""

    gangs: int
    done: int
    makespan_s: float  #: until the last end

    @property
    def is_stuck(self) -> bool:
        return self.done < self.gangs


def clogging(
    policy: str, *, gangs: int = 50, sizes: tuple[int, int] = (2, 6), nodes: int = 8, cpus: int = 3, seed: int = 1
) -> Clogging:
    """All gangs arrive within a second, and each works for a minute."""
    chance = random.Random(seed)  # noqa: S311  a workload, no secret
    wanted = [chance.randint(*sizes) for _ in range(gangs)]
    pods = [(f"gang-{n}", n, size) for n, size in enumerate(wanted) for _ in range(size)]
    chance.shuffle(pods)  # controllers create the pods of many gangs side by side
    cluster = SimCluster.of(nodes, 0, cpus=cpus)
    if policy == POD_BY_POD:
        jobs = [
            rigid_job(f"{name}-{k}", k / len(pods), 1, gang=name, gang_size=n) for k, (name, _, n) in enumerate(pods)
        ]
    else:
        jobs = [rigid_job(f"gang-{n}", n / gangs, size) for n, size in enumerate(wanted)]
    result = Simulation(Workload("clogging", tuple(jobs)), cluster, Settings(policy=policy, restart_s=0.0)).run()
    ended = {(job.gang or job.name) for job, one in zip(jobs, result.jobs, strict=True) if one.end_s is not None}
    return Clogging(gangs, len(ended), max((one.end_s or 0.0 for one in result.jobs), default=0.0))


def rigid_job(
    name: str,
    at: float,
    tasks: int,
    *,
    duration_s: float = 60.0,
    per_task: Resources = ONE_CPU,
    gang: str = "",
    gang_size: int = 1,
) -> SimJob:
    """A job that runs for a time, and can neither be resized nor resumed."""
    return SimJob(
        name,
        at,
        Table({(1, tasks): duration_s}),
        epochs=1,
        width=tasks,
        width_min=tasks,
        width_max=tasks,
        per_task=per_task,
        resumes=False,
        gang=gang,
        gang_size=gang_size,
    )
