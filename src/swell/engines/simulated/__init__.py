"""Machines and jobs that exist only in virtual time; the controller cannot tell them from real ones.

Public: `Timeline`, the virtual clock and what is going to happen; `Behavior`, how one job behaves; `SimulatedEngine`.
What does not belong here: workloads, policies and reports of results (`swell.sim`).
"""

from swell.engines.simulated.behavior import Behavior, Saving, Speed
from swell.engines.simulated.engine import JobServer, SimulatedEngine
from swell.engines.simulated.timeline import Timeline

__all__ = ["Behavior", "JobServer", "Saving", "SimulatedEngine", "Speed", "Timeline"]
