"""What should happen next?

`make_plan` is four values, each made from those before it and never changed afterwards (JobSets that have nodes to
themselves are told first which: domains.py):

- `admitted` (admit.py): in the order of the queue (higher priority first, then who came first) every job gets a seat at
  its least width when that does not delay a job before it. Two things keep this short: waiting jobs of one shape are
  one class, so a shape that did not fit is not tried again; and an array is one row.
- `widths` (size.py): what is left when everybody has a seat is shared out among the elastic jobs.
- `placed` (place.py): nodes and devices for those that start, and the new widths that there is room for now.
- the plan itself: actions and verdicts.

Arrays are independent tasks, so they give room back without losing work: a slot is *drained*, i.e. its task
ends and no other follows. A job further ahead in the queue therefore *claims* room that arrays behind it hold;
it starts when enough of it has been seen to be empty, and nobody behind it may use that room meanwhile. The
first job for which even that is not enough gets a *reservation* (reserve.py).

An array that has lost its last slot is expected to be QUEUED again, with the tasks it has not begun: it may
then start on another node.

Elastic jobs that can resume are treated alike: in the queue they keep their least width only, what they hold above it
is there for those who wait. A waiting job for which all this is not enough may take the room of jobs of lower
priority (preempt.py). Room that is being made is claimed, so nobody behind takes it, and of its priority nobody who
lines up later gets before the one it was promised to.
"""

from __future__ import annotations

from swell.model.job import JobId, JobState, ResizeMode
from swell.model.plan import Plan, Preempt, Resize, SetSlots, Snapshot, Verdict
from swell.model.reason import Code
from swell.planner.admit import Admitted, Preempted, Regrouped, admit
from swell.planner.devices import slots_of
from swell.planner.domains import with_domains
from swell.planner.interrupt import is_worth, weigh
from swell.planner.place import NewWidth, Placed, place
from swell.planner.preempt import deadline_s
from swell.planner.rank import line_up
from swell.planner.size import size


def make_plan(snapshot: Snapshot) -> Plan:
    """The recipe: admit, size, place."""
    if not snapshot.nodes:
        return _without_nodes(snapshot)
    snapshot = with_domains(snapshot)
    admitted = admit(snapshot)
    widths = size(snapshot, admitted)
    placed = place(snapshot, admitted, widths)
    return _plan(admitted, placed, snapshot.now)


def _without_nodes(snapshot: Snapshot) -> Plan:
    waiting = (job for job in line_up(snapshot) if job.state is JobState.QUEUED)
    return Plan((), {job.id: Verdict(Code.NO_WORKER) for job in waiting})


def _plan(admitted: Admitted, placed: Placed, now: float) -> Plan:
    """Room is given back before anybody starts."""
    changes = (_set_slots(one) for one in admitted.arrays)
    preempts = (_preempt(one) for one in admitted.preempted)
    resizes = (_resize(one, admitted.claimer, now) for one in placed.resizes)
    return Plan((*changes, *preempts, *resizes, *placed.starts), {**admitted.verdicts, **placed.waiting})


def _set_slots(one: Regrouped) -> SetSlots:
    first_number = 1 + max(slot.number for slot in one.slots)
    return SetSlots(one.job.id, one.slots + slots_of(one.added, first_number=first_number))


def _preempt(one: Preempted) -> Preempt:
    if one.is_evicted:
        return Preempt(one.job.id, ResizeMode.IMMEDIATE, None, one.room_for, evicts=True)
    return Preempt(one.job.id, one.job.mode, deadline_s(one.job), one.room_for)


def _resize(one: NewWidth, claimer: JobId | None, now: float) -> Resize:
    job, room_for = one.job, claimer if one.width < one.job.width else None
    stop = weigh(job, now)
    if stop is not None and is_worth(stop, one.gain(now)):
        return Resize(job.id, one.width, ResizeMode.IMMEDIATE, None, room_for, stop)
    return Resize(job.id, one.width, job.mode, None if room_for is None else deadline_s(job), room_for, stop)
