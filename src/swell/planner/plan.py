"""What should happen next?

`make_plan` walks down the line (higher priority first, then who came first) and gives every job a seat at its least
width when that does not delay one that stands before it (walk.py). Two things make the walk short: waiting jobs of
one shape are one class, so a shape that did not fit is not tried again; and an array is one row.

Arrays are independent tasks, so they give room back without losing work: a slot is *drained*, i.e. its task
ends and no other follows. A job further ahead in the line therefore *claims* room that arrays behind it hold;
it starts when enough of it has been seen to be empty, and nobody behind it may use that room meanwhile. The
first job for which even that is not enough gets a *reservation* (reserve.py).

An array that has lost its last slot is expected to be QUEUED again, with the tasks it has not begun: it may
then start on another node.

Elastic jobs that can resume are treated alike: in the line they keep their least width only, what they hold above it
is there for those who wait. When everybody sits (finish.py), the rest is shared out (resize.py), first with those that
start now, then, because what these get is settled by the room that is free at this moment, among the others alone:
that is what the next plan will see. A waiting job for which all this is not enough may take the room of jobs of lower
priority (preempt.py). Room that is being made is claimed, so nobody behind takes it, and of its priority nobody who
lines up later gets before the one it was promised to.
"""

from __future__ import annotations

from swell.model.job import JobState
from swell.model.plan import Plan, Snapshot, Verdict
from swell.model.reason import Code
from swell.planner.finish import Finish
from swell.planner.rank import line_up
from swell.planner.walk import Walk


def make_plan(snapshot: Snapshot) -> Plan:
    """The recipe: line up, admit, size, place."""
    if not snapshot.nodes:
        waiting = (job for job in line_up(snapshot) if job.state is JobState.QUEUED)
        return Plan((), {job.id: Verdict(Code.NO_WORKER) for job in waiting})
    walk = Walk(snapshot)
    for job in line_up(snapshot):
        walk.visit(job)
    return Finish(walk).plan()
