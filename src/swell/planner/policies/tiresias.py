"""Tiresias (NSDI '19), two-dimensional least attained service in two queues.

A job that has had less than 16 GPU-hours is in the first queue, others are in the second; within a queue who came first
goes first. In that order every job gets what it asked for as long as there is enough, and whoever is left over is
preempted. Nothing needs to be known about jobs.
"""

from __future__ import annotations

from swell.model.plan import JobView, Plan, Snapshot
from swell.planner.policies.allocate import Totals, enact, gpus_at, runnable, width_of

THRESHOLD_GPU_S = 16 * 3600.0  # as published with Pollux


def tiresias(snapshot: Snapshot) -> Plan:
    in_order = sorted(runnable(snapshot), key=lambda job: (-job.priority, _queue(job, snapshot), job.id))
    chosen = [(job, job.width if job.slots else width_of(job)) for job in in_order]
    return enact(snapshot, Totals(snapshot).choose(chosen))


def _queue(job: JobView, snapshot: Snapshot) -> bool:
    """Is it in the second?"""
    ran_s = job.used_s + (0.0 if job.started_at is None else snapshot.now - job.started_at)
    width = job.width if job.slots else width_of(job)
    return ran_s * (gpus_at(job, width, snapshot.card_mib) or 1.0) >= THRESHOLD_GPU_S
