"""Should a job stop now and do a part of its epoch again, or go on to the end of the epoch?

Both are open to a job that saves between epochs alone and whose user allows either (`resize: either`). What it did
since its last checkpoint would be done again; until the end of the epoch, the GPUs that it would leave to others, or
the speed that it would gain, are missing. Both are counted in seconds of its own work, and the cheaper is taken.
"""

from __future__ import annotations

from swell.model.plan import JobView, Weighed
from swell.planner.timings import has_measured, timings
from swell.throughput import predict

UNKNOWN_EPOCH = 2.0  # how often as long as until now an epoch still takes, before any was measured
RESTART_S_DEFAULT = 30.0  # until measured; what published schedulers assume


def restart_s(job: JobView) -> float:
    known = None if job.training is None else job.training.restart_s
    return RESTART_S_DEFAULT if known is None else known


def weigh(job: JobView, now: float) -> Weighed | None:
    """None: it is not for us to choose, or it loses nothing wherever it stops."""
    training = job.training
    if not job.is_at_once or job.started_at is None or training is None or training.saves_at_steps:
        return None
    if training.checkpoint_at is None and training.left is None:
        return None  # it does not tell of its epochs
    again_s = max(0.0, now - max(training.checkpoint_at or 0.0, job.started_at + restart_s(job)))
    if not has_measured(job):
        return Weighed(again_s, UNKNOWN_EPOCH * again_s)
    epoch_s = predict(timings(job), job.width, len(job.sums))
    return Weighed(again_s, max(0.0, epoch_s - again_s))


def gain(job: JobView, width: int, left_s: float, new_left_s: float) -> float:
    """What is missing until the width changes, as a part of what the job does meanwhile.

    Its own gain, if it grows; else the part of its room that others are to get.
    """
    return max(0.0, left_s / new_left_s - 1.0) if width > job.width else 1.0 - width / job.width


def is_worth(stop: Weighed, gain: float) -> bool:
    """Is it cheaper to stop now?"""
    return stop.again_s < gain * stop.epoch_left_s


def cost_s(stop: Weighed, gain: float) -> float:
    """Of the cheaper way, in seconds of the job's own work."""
    return min(stop.again_s, gain * stop.epoch_left_s)
