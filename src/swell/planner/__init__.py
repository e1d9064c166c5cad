"""Decisions without effects: `make_plan(snapshot)` says what to do next, `check` gives a second opinion,
`explain` finds the words, `find_shortages` says for whom another node would help.

Public: `make_plan`, `check_plan`, `explain`, `find_shortages`. No clock, no randomness, no I/O, no logging: the same
snapshot gives the same plan, byte for byte. What a decision costs or needs from the world is the controller's affair.

How a plan is made (the recipe is `plan.py`):

    line up the jobs ─► admit those that fit without delaying the first that waits ─► size ─► place
"""

from swell.planner.check import BrokenPlan, check_plan
from swell.planner.plan import make_plan
from swell.planner.shortage import Group, Shortage, find_shortages
from swell.planner.why.explain import explain

__all__ = ["BrokenPlan", "Group", "Shortage", "check_plan", "explain", "find_shortages", "make_plan"]
