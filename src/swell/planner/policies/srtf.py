"""Shortest remaining time first, preempting: needs to know how long jobs take."""

from __future__ import annotations

from swell.model.plan import Plan, Snapshot
from swell.planner.policies.allocate import Totals, enact, runnable, width_of
from swell.planner.policies.remaining import remaining_s


def srtf(snapshot: Snapshot) -> Plan:
    widths = [(job, job.width if job.slots else width_of(job)) for job in runnable(snapshot)]
    by_time = sorted(widths, key=lambda one: (-one[0].priority, remaining_s(one[0], one[1], snapshot.now), one[0].id))
    return enact(snapshot, Totals(snapshot).choose(by_time))
