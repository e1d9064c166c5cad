"""Small workloads whose outcome can be worked out by hand."""

from __future__ import annotations

from swell.engines.simulated.behavior import Table
from swell.sim import SimCluster, SimJob, Workload

LINEAR = Table({(1, 1): 100.0, (1, 2): 50.0, (1, 4): 25.0})  # twice the GPUs, half the time
FLAT = Table({(1, 1): 100.0, (1, 2): 100.0, (1, 4): 100.0})  # more GPUs bring nothing
BOX = SimCluster.of(1, 4)


def job(name: str, at: float = 0.0, **changes: object) -> SimJob:
    """Four epochs of 100 GPU-seconds each."""
    known: dict[str, object] = {"epochs": 4, "width": 2, "width_min": 1, "width_max": 4, "speed": LINEAR}
    return SimJob(name, at, **{**known, **changes})  # type: ignore[arg-type]


def workload(*jobs: SimJob) -> Workload:
    return Workload("story", jobs)
