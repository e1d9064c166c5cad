"""The one loop: observe, plan, check, record, apply. The only place that waits, and the only one that has a clock.

Public: `Controller`, and `Loop`, which runs its cycles. It knows the store and the engine by their protocols, asks
the planner, and decides nothing by itself beyond what a recorded fact implies (all tasks ended ⇒ the job ended).
"""

from swell.controller.controller import Controller
from swell.controller.loop import Loop

__all__ = ["Controller", "Loop"]
