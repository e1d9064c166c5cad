"""Decisions without effects: `make_plan(snapshot)` says what to do next, `check` gives a second opinion,
`explain` finds the words.

Public: `make_plan`, `check_plan`, `explain`. No clock, no randomness, no I/O, no logging: the same snapshot
gives the same plan, byte for byte. What a decision costs or needs from the world is the controller's affair.

How a plan is made (the recipe is `plan.py`):

    line up the jobs ─► admit those that fit without delaying the first that waits ─► size ─► place
"""

from swell.planner.check import BrokenPlan, check_plan
from swell.planner.explain import explain
from swell.planner.plan import make_plan

__all__ = ["BrokenPlan", "check_plan", "explain", "make_plan"]
