"""How long will a job still take, as far as anybody knows?"""

from __future__ import annotations

from swell.model.plan import ENDLESS, JobView
from swell.planner.timings import has_measured, timings
from swell.throughput import predict


def remaining_s(job: JobView, width: int, now: float) -> float:
    """From its own measurements, its user's estimate or its time limit, in this order; endless without any."""
    training = job.training
    if training is not None and training.left is not None and has_measured(job):
        return training.left * predict(timings(job), width)
    ran_s = job.used_s + (0.0 if job.started_at is None else max(0.0, now - job.started_at))
    for told in (job.estimate_s, job.shape.time_limit_s):
        if told is not None and told > ran_s:
            return told - ran_s
    return ENDLESS
