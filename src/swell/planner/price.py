"""What is width worth to each job?

The question behind it: with known remaining work and known speed at each width, who should get how much now, so that
the average job is done soonest? Each job has a *price*: what one unit of its remaining work costs everybody in flow
time. Prices are constant while a job lives and follow from the order in which jobs will be done alone: at every
moment the sum of price x speed over what runs is the number of unfinished jobs. So they are worked out backwards
from the job that will be done last, each as the cheapest that keeps that sum right. The value of a width is then
price x speed, and a running job that would change its width is worth less by what the restart costs over the time
the change will last. `share.py` spends the units.

Widths that are not faster than a narrower one are never offered: more is not assumed to be faster.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from swell.model.job import JobId, ResizeMode
from swell.model.plan import JobView
from swell.planner.rank import rank
from swell.throughput import predict

RESTART_S_DEFAULT = 30.0  # until measured; what published schedulers assume
UNKNOWN_LEFT_S = 1800.0  # a job that says nothing about its length, at its least width
FINE_WIDTH_MAX, COARSE_STEP = 16, 4  # above this width only multiples of the step are looked at
EXPLORE_FACTOR = 4  # how far beyond the widest measured width a job is sent in one step
ORDER_EXPONENT = 0.75  # expected completion order: least time x width^this; anything from 0 to 1 does
HEADROOM = 0.8  # prices are worked out as if only this part of the units were there; 0.6 to 1 makes no difference
SHRINK_LASTS_S, GROW_LASTS_S = 300.0, 600.0  # how long a change of width is expected to last, in busy times
GAIN_MIN = 0.02  # a change that gains less is noise of measurement, however cheap the restart
KEPT_MIN = 0.001  # however dear a change is: one that must shrink anyway keeps as much width as there is
UNTOLD_RESTARTS = 4.0  # a job that resumes by itself and tells nobody from where loses as much as so many restarts take
PREEMPT_AFTER_RESTARTS = 4.0  # a job is not preempted before it has run for this many restarts: no live-lock


@dataclass(frozen=True, slots=True)
class Option:
    """One width a job could have."""

    width: int
    cost: int  #: units it takes
    left_s: float  #: until the job is done at this width
    kept: float  #: the part of its worth that is left after paying for the change; 1: no change


@dataclass(frozen=True, slots=True)
class Contender:
    """A job that can use more or less."""

    job: JobId
    rank: int
    present: int  #: width; 0: none yet
    options: tuple[Option, ...]  #: ascending; the first is the least it must have
    fixed: int | None = None  #: the width that is decided already; None: open

    def option(self, width: int) -> Option:
        return next(option for option in self.options if option.width == width)


def restart_s(job: JobView) -> float:
    known = None if job.training is None else job.training.restart_s
    return RESTART_S_DEFAULT if known is None else known


def lost_s(job: JobView, now: float) -> float:
    """Work that would have to be done again if it were stopped now; at a checkpoint there is none."""
    if job.mode is not ResizeMode.IMMEDIATE or job.started_at is None:
        return 0.0
    durable_at = None if job.training is None else job.training.checkpoint_at
    since_s = max(0.0, now - max(durable_at or 0.0, job.started_at))
    return since_s if durable_at is not None else min(since_s, UNTOLD_RESTARTS * restart_s(job))


def contender(job: JobView, unit: int, now: float, quiet: float) -> Contender:
    """All widths it may have; `unit`: what one step of width costs, `quiet`: see `quietness`."""
    present = job.width
    least_s = _left_s(job, job.shape.width_min, now)
    options = [_option(job, job.shape.width_min, unit, least_s, now, quiet)]
    fastest = least_s
    for width in _widths(job):
        left_s = _left_s(job, width, now)
        if left_s < fastest or width in (present, job.yielding, job.wanted):
            options.append(_option(job, width, unit, left_s, now, quiet))
        fastest = min(fastest, left_s)
    return Contender(job.id, rank(job, now), present, tuple(options), job.yielding or None)


def quietness(arrivals: Sequence[float], now: float) -> float:
    """How much longer than in busy times a change will last: nobody is coming to undo it."""
    if not arrivals:
        return 1.0
    mean_gap_s = (now - arrivals[0]) / len(arrivals)  # the silence since the last one counts as a gap
    return max(1.0, 2.0 * mean_gap_s / SHRINK_LASTS_S)


def _widths(job: JobView) -> list[int]:
    """Above the least: fine steps where they matter, coarse ones where they do not; the present one always."""
    low, high = job.shape.width_min, min(job.shape.width_max, _explored(job))
    steps = [n for n in range(low + 1, high + 1) if n <= FINE_WIDTH_MAX or n % COARSE_STEP == 0 or n == high]
    decided = [width for width in (job.width, job.yielding or 0, job.wanted or 0) if width > low]
    return sorted({*steps, *decided})


def _explored(job: JobView) -> int:
    """A job that was never measured may never be: it is not held back, it might not be able to grow later.

    Nor is one held back from widths below its present one because it has yet to be measured there.
    """
    measured = () if job.training is None else job.training.epoch_s
    return max(job.width, EXPLORE_FACTOR * measured[-1][0]) if measured else job.shape.width_max


def _left_s(job: JobView, width: int, now: float) -> float:
    """Seconds until it is done at this width, as far as anybody knows."""
    training = job.training
    if training is None or not training.epoch_s:
        return _guess_s(job, now) * predict(((job.shape.width_min, 1.0),), width)
    epoch_s = predict(training.epoch_s, width)
    if training.left is not None:
        return max(training.left, 0.01) * epoch_s
    return _guess_s(job, now) * epoch_s / predict(training.epoch_s, job.shape.width_min)


def _guess_s(job: JobView, now: float) -> float:
    """Nobody said how long it is: what its user guessed, else as long again as it has run; at its least width.

    Always the same width: a guess that depends on the present one makes a job flap between two.
    """
    ran_s = job.used_s + (0.0 if job.started_at is None else max(0.0, now - job.started_at))
    if job.estimate_s is not None and ran_s < job.estimate_s:
        return job.estimate_s - ran_s
    return max(UNKNOWN_LEFT_S, ran_s)


def _option(job: JobView, width: int, unit: int, left_s: float, now: float, quiet: float) -> Option:
    if job.width in (0, width):
        return Option(width, width * unit, left_s, 1.0)
    pause_s = restart_s(job) + lost_s(job, now)
    lasts_s = quiet * (GROW_LASTS_S if width > job.width else SHRINK_LASTS_S)
    paid = max(GAIN_MIN, pause_s / min(lasts_s, left_s + pause_s))
    return Option(width, width * unit, left_s, max(KEPT_MIN, 1.0 - paid))


def prices(contenders: Iterable[Contender], units: int) -> dict[JobId, float]:
    """By job; the sum over all of them is the flow time still to come."""
    in_order = sorted(contenders, key=lambda one: (_completion_key(one), -one.present, one.job))
    room = max(1, int(HEADROOM * units))
    best = [0.0] * (room + 1)  # best[g]: the most that the jobs priced so far are worth on g units
    priced: dict[JobId, float] = {}
    for count, one in enumerate(reversed(in_order), 1):
        priced[one.job] = min(_price(option, count, best, room) for option in one.options)
        best = _with(one, priced[one.job], best)
    return priced


def _completion_key(one: Contender) -> float:
    return min(option.left_s * math.pow(option.width, ORDER_EXPONENT) for option in one.options)


def _price(option: Option, count: int, best: list[float], room: int) -> float:
    return (count - best[max(0, room - option.cost)]) * option.left_s


def _with(one: Contender, price: float, best: list[float]) -> list[float]:
    after = best[:]
    for option in one.options:
        worth = price / option.left_s
        for units in range(option.cost, len(best)):
            after[units] = max(after[units], best[units - option.cost] + worth)
    return after
