"""Optimus (EuroSys '18): the next GPU goes to whom it saves the most time.

Everybody has one first; then one after the other is given where it shortens the remaining time most, until none is left
or none helps. It needs speeds at every width and the epochs that are left, and counts no restart: widths follow
the sums at every decision.
"""

from __future__ import annotations

import heapq
import math

from swell.model.plan import JobView, Plan, Snapshot
from swell.planner.policies.allocate import Totals, enact, runnable
from swell.planner.timings import has_measured, timings
from swell.throughput import predict

UNMEASURED = ((1, 1, 1800.0),)  # seconds of an epoch of a job of which nothing is known
LAST_EPOCH = 0.001  # what is left of a job in its last epoch: it gets little


def optimus(snapshot: Snapshot) -> Plan:
    totals = Totals(snapshot)
    jobs = {job.id: job for job in runnable(snapshot)}
    widths = {job.id: job.shape.width_min for job in jobs.values() if totals.take(job, job.shape.width_min)}
    gains = [(-_gain(jobs[job], width), job) for job, width in widths.items()]
    heapq.heapify(gains)
    while gains and gains[0][0] < 0:
        _, found = heapq.heappop(gains)
        if totals.widen(jobs[found], widths[found]):
            widths[found] += 1
            heapq.heappush(gains, (-_gain(jobs[found], widths[found]), found))
    narrowest_first = sorted(widths, key=lambda job: (widths[job], job))
    return enact(snapshot, [(jobs[job], widths[job]) for job in narrowest_first])


def _gain(job: JobView, width: int) -> float:
    """Seconds that one more saves."""
    if width >= job.shape.width_max or job.shape.is_array:
        return 0.0
    training = job.training
    measured = timings(job) if has_measured(job) else UNMEASURED
    left = 1.0 if training is None or training.left is None else training.left
    whole = max(math.ceil(round(left, 9)) - 1, LAST_EPOCH)  # as published: without the epoch that it is in
    return (predict(measured, width) - predict(measured, width + 1)) * whole
