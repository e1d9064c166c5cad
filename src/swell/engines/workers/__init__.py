"""The `workers` engine: agents that converge to the desired set of launches the server answers their sync with.

Public: `WorkersEngine`. It holds the desired set and the latest word of every worker; which tasks should run
is not decided here.
"""

from swell.engines.workers.engine import WorkersEngine
from swell.engines.workers.report import DesiredSet, WorkerReport

__all__ = ["DesiredSet", "WorkerReport", "WorkersEngine"]
