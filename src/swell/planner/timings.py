"""How long does an epoch of a job take where that was measured, by itself or by jobs of the same script?"""

from __future__ import annotations

from swell.model.plan import JobView
from swell.throughput import Measured, blend


def timings(job: JobView) -> Measured:
    """Empty: nobody has measured anything. Where only others have, just the shape of it counts (`has_measured`)."""
    own = () if job.training is None else job.training.epoch_s
    return own if job.curve is None else blend(own, job.curve.epoch_s)


def has_measured(job: JobView) -> bool:
    """Has it measured anything itself?"""
    return job.training is not None and bool(job.training.epoch_s)
