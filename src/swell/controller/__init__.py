"""The one loop: observe, plan, check, record, apply. The only place that waits, and the only one that has a clock.

Public: `Controller`. It knows the store and the engine by their protocols, asks the planner, and decides
nothing by itself beyond what a recorded fact implies (all tasks ended ⇒ the job ended).
"""

from swell.controller.cycle import Controller

__all__ = ["Controller"]
