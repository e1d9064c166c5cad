"""First come, first served: nobody starts before one that came earlier."""

from __future__ import annotations

from swell.model.plan import Plan, Snapshot
from swell.planner.policies.allocate import enact, runnable, width_of


def fifo(snapshot: Snapshot) -> Plan:
    chosen = [(job, job.width if job.slots else width_of(job)) for job in runnable(snapshot)]
    return enact(snapshot, chosen, is_strict=True)
