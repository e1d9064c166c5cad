"""The real controller and planner in virtual time: what would happen to this workload on that cluster?

Public: `Workload`, `SimJob` and `SimCluster` (what is simulated), `Simulation` (how), `Result` (what came of it). There
is no second implementation of anything: only the clock, the machines and the jobs are simulated. What does not belong
here: decisions (`swell.planner`), and how tasks behave (`swell.engines.simulated`).
"""

from swell.sim.simulation import Result, Settings, Simulation, simulate
from swell.sim.workload import SimCluster, SimJob, Workload

__all__ = ["Result", "Settings", "SimCluster", "SimJob", "Simulation", "Workload", "simulate"]
