"""What is width worth to each job?

The question behind it: with known remaining work and known speed at each width, who should get how much now, so that
the average job is done soonest? Each job has a *price*: what one unit of its remaining work costs everybody in flow
time. Prices are constant while a job lives and follow from the order in which jobs will be done alone: at every
moment the sum of price x speed over what runs is the number of unfinished jobs. So they are worked out backwards
from the job that will be done last, each as the cheapest that keeps that sum right. The value of a width is then
price x speed, and a running job that would change its width is worth less by what the restart costs over the time
the change will last. `knapsack.py` spends the units.

Widths that are not faster than a narrower one are never offered: more is not assumed to be faster.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from swell.model.job import Dimension, JobId, ResizeMode
from swell.model.plan import JobView, Weighed
from swell.model.training import Training
from swell.planner.interrupt import cost_s, gain, restart_s, weigh
from swell.planner.rank import rank
from swell.planner.timings import has_measured, timings
from swell.throughput import Measured, align, predict

Table = NDArray[np.float64]
Counts = NDArray[np.int64]

GRIDS_KEPT_MAX, TIMES_KEPT_MAX = 4096, 16_384  # half a kilobyte each
EXACT_CELLS_MAX = 2_000_000  # jobs x units: a table of so many takes 0.1 s; above it slopes lose some percent
ONE_MACHINE = 1 << 30  # tasks a node holds, where all nodes are one
UNKNOWN_LEFT_S = 1800.0  # a job that says nothing about its length, at its least width
ALIKE_SPREAD = 0.3  # the same where jobs of its script have ended: most are like each other
LEFT_MIN, LEFT_PART_MIN = 0.01, 0.1  # epochs that are left at the least; and as a part of what the job says
UNKNOWN_SPREAD = 2.0  # of the logarithm of that: most jobs are short, some take days
FINE_WIDTH_MAX, COARSE_STEP = 16, 4  # above this width only multiples of the step are looked at
FIRST_GPUS_MAX = 4  # of tasks that were never measured
EXPLORE_FACTOR = 4  # how far beyond the widest measured width a job is sent in one step
ORDER_EXPONENT = 0.75  # expected completion order: least time x width^this; anything from 0 to 1 does
HEADROOM = 0.8  # prices are worked out as if only this part of the units were there; 0.6 to 1 makes no difference
SHRINK_LASTS_S, GROW_LASTS_S = 300.0, 600.0  # how long a change of width is expected to last, in busy times
GAIN_MIN = 0.02  # a change that gains less is noise of measurement, however cheap the restart
KEPT_MIN = 0.001  # however dear a change is: one that must shrink anyway keeps as much width as there is
UNDER_WAY_MAX = 0.95  # of an epoch that is not over yet, however long it takes
UNTOLD_RESTARTS = 4.0  # a job that resumes by itself and tells nobody from where loses as much as so many restarts take
PREEMPT_AFTER_RESTARTS = 4.0  # a job is not preempted before it has run for this many restarts: no live-lock


class Option(NamedTuple):
    """One width a job could have."""

    width: int
    cost: int  #: units it takes
    left_s: float  #: until the job is done at this width
    kept: float  #: the part of its worth that is left after paying for the change; 1: no change
    nodes: int = 1  #: the fewest it can be on


@dataclass(frozen=True)
class Contender:
    """A job that can use more or less."""

    job: JobId
    rank: int
    present: int  #: width; 0: none yet
    options: tuple[Option, ...]  #: ascending; the first is the least it must have
    fixed: int | None = None  #: the width that is decided already; None: open
    may_wait: bool = False  #: it has no width yet, and none at this moment would do, too

    @property
    def least(self) -> int:
        """The units it must have."""
        return 0 if self.may_wait else self.options[0].cost

    def above_least(self, width: int) -> int:
        """What a width takes of the others' units; 0: it waits."""
        return self.option(width).cost - self.least if width else 0

    def option(self, width: int) -> Option:
        return next(option for option in self.options if option.width == width)

    @cached_property
    def completion_key(self) -> float:
        """Those with the least are expected to be done first."""
        return min([option.left_s * _spread(option.width) for option in self.options])

    @cached_property
    def in_order_of_ties(self) -> list[Option]:
        """Of options that are worth the same, the present width comes first, then the narrower one."""
        present = [option for option in self.options if option.width == self.present]
        return [*present, *[option for option in self.options if option.width != self.present]]

    @cached_property
    def steps_of_speed(self) -> list[Step]:
        """What each is worth at a price of one, from no units at all."""
        return steps([(option.cost, 1 / option.left_s) for option in self.options], first=0)

    @cached_property
    def steps_of_worth(self) -> list[Step]:
        """The same from what it must have, for what is left after paying for the change."""
        points = [(option.cost, option.kept / option.left_s) for option in self.options]
        return steps(points, first=0 if self.may_wait else None)


def lost_s(job: JobView, now: float) -> float:
    """Work that would have to be done again if it were stopped now; at a checkpoint there is none."""
    if job.mode is not ResizeMode.IMMEDIATE or job.started_at is None:
        return 0.0
    durable_at = None if job.training is None else job.training.checkpoint_at
    since_s = max(0.0, now - max(durable_at or 0.0, job.started_at))
    return since_s if durable_at is not None else min(since_s, UNTOLD_RESTARTS * restart_s(job))


def contender(job: JobView, unit: int, now: float, quiet: float, per_node: int = ONE_MACHINE) -> Contender:
    """All widths it may have.

    `unit`: what one step of width costs, `quiet`: see `quietness`, `per_node`: how many of its tasks a node holds.
    """
    options: list[Option] = []
    fastest = math.inf
    work, decided = _work(job, now), (job.width, job.yielding, job.wanted, job.returns)
    change = _Change.of(job, work, now) if job.width else None
    widths = _widths(job)
    for width, epoch_s in zip(widths, _compact_s(tuple(work.timings), widths, per_node), strict=True):
        nodes = -(-width // per_node)
        is_present = width == job.width and bool(job.slots)
        left_s = work.left_s(width, nodes_of(job)) if is_present else work.whole_s(epoch_s)
        if left_s < fastest or width in decided:
            kept = 1.0 if change is None or width == job.width else change.kept(width, left_s, quiet)
            options.append(Option(width, width * unit, left_s, kept, nodes))
        fastest = min(fastest, left_s)
    return Contender(job.id, rank(job, now), job.width, tuple(options), job.yielding or None)


@lru_cache(maxsize=TIMES_KEPT_MAX)
def _compact_s(timings: Measured, widths: tuple[int, ...], per_node: int) -> tuple[float, ...]:
    """How long an epoch takes at each width, on as few nodes as possible. Of most jobs it is as in the last plan."""
    return tuple([predict(timings, width, -(-width // per_node)) for width in widths])


def nodes_of(job: JobView) -> int:
    return len(job.sums)


def quietness(arrivals: Sequence[float], now: float) -> float:
    """How much longer than in busy times a change will last: nobody is coming to undo it."""
    if not arrivals:
        return 1.0
    mean_gap_s = (now - arrivals[0]) / len(arrivals)  # the silence since the last one counts as a gap
    return max(1.0, 2.0 * mean_gap_s / SHRINK_LASTS_S)


def _widths(job: JobView) -> tuple[int, ...]:
    """From the least: fine steps where they matter, coarse ones where they do not; the present one always."""
    low, high = job.shape.width_min, min(job.shape.width_max, _explored(job))
    return _grid(low, high, (job.width, job.yielding, job.wanted, job.returns))


@lru_cache(maxsize=GRIDS_KEPT_MAX)
def _grid(low: int, high: int, decided: tuple[int | None, ...]) -> tuple[int, ...]:
    steps = [n for n in range(low + 1, high + 1) if n <= FINE_WIDTH_MAX or n % COARSE_STEP == 0 or n == high]
    return low, *sorted({*steps, *[width for width in decided if width and width > low]})


def _explored(job: JobView) -> int:
    """The widest it may have now: some steps beyond what was measured.

    Tasks with GPUs that were never measured begin on a few: over several nodes they may be slower than on one. Others
    are not held back before they are measured, as they may never be and might not be able to grow later. Nor is a job
    held back from widths below its present one because it has yet to be measured there. What jobs of the same script
    have measured counts as its own.
    """
    gpus, measured = job.shape.roles[0][0].gpus, timings(job)
    is_held_back = job.shape.dimension is Dimension.TASKS and gpus and job.mode is not ResizeMode.NEVER
    if not is_held_back and not has_measured(job):
        return job.shape.width_max
    widest = EXPLORE_FACTOR * measured[-1][0] if measured else FIRST_GPUS_MAX // gpus
    return max(job.width, job.shape.width_min, widest)


class _Work(NamedTuple):
    """What a job has still to do."""

    timings: Measured  #: how long a part of it takes at each width
    parts: float
    unit_s: float  #: what the timings count as one

    def left_s(self, width: int, nodes: int) -> float:
        return self.whole_s(predict(self.timings, width, nodes))

    def whole_s(self, part_s: float) -> float:
        return self.parts * part_s / self.unit_s


def _work(job: JobView, now: float) -> _Work:
    training, least, measured = job.training, job.shape.width_min, timings(job)
    if not measured:
        return _Work(((least, 1, 1.0),), _guess_s(job, now), 1.0)
    least_s = predict(measured, least)
    if training is None or not training.epoch_s or training.left is None:
        return _Work(measured, _guess_s(job, now), least_s)
    return _Work(measured, _parts(job, training, training.left, least_s, now), 1.0)


def _parts(job: JobView, training: Training, left: float, least_s: float, now: float) -> float:
    """Epochs that are left, in epochs as long as the present one.

    What it says itself is believed only in part, the less the less is known of it. Early on, hours may turn out to be
    minutes: epochs become shorter, and a job may stop before all it said is done. The rest is what jobs of the same
    script had left at this point; where none has done all of its epochs, what is taken for any unknown job.
    """
    under_way = _under_way(job, now)
    told = max(left - under_way, LEFT_MIN) * training.lengths
    expected = _as_others(job, training, left - under_way)
    spread = UNKNOWN_SPREAD if expected is None else ALIKE_SPREAD
    other = UNKNOWN_LEFT_S / least_s if expected is None else max(expected, told * LEFT_PART_MIN)
    weight = spread**2 / (spread**2 + training.left_error**2)
    return told * math.pow(other / told, 1.0 - weight)


def _as_others(job: JobView, training: Training, left: float) -> float | None:
    """What is left, if its epochs become as much shorter as those of others did; None: nobody knows."""
    curve = job.curve
    if curve is None or curve.epochs is None or training.total is None:
        return None
    length = curve.length / align(training.epoch_s, curve.epoch_s)
    return training.total * length - (training.total - left) * training.mean_length


def time_left_s(job: JobView, width: int, nodes: int, now: float) -> float:
    """Seconds until it is done at this width, on so many nodes, as far as anybody knows."""
    return _work(job, now).left_s(width, nodes)


def has_known_length(job: JobView) -> bool:
    """Is it known how much it has still to do, and how fast that goes?"""
    if job.curve is not None and job.curve.epochs is not None:
        return True
    return job.training is not None and job.training.left is not None and has_measured(job)


def _under_way(job: JobView, now: float) -> float:
    """The part of an epoch that it has done since it was counted."""
    training = job.training
    if training is None or training.counted_at is None or not job.slots:
        return 0.0
    epoch_s = predict(timings(job), job.width, nodes_of(job))
    return min(UNDER_WAY_MAX, max(0.0, now - training.counted_at) / epoch_s)


def _guess_s(job: JobView, now: float) -> float:
    """Nobody said how long it is: what its user guessed, else as long again as it has run; at its least width.

    Always the same width: a guess that depends on the present one makes a job flap between two.
    """
    ran_s = job.used_s + (0.0 if job.started_at is None else max(0.0, now - job.started_at))
    if job.estimate_s is not None and ran_s < job.estimate_s:
        return job.estimate_s - ran_s
    return max(_whole_s(job), ran_s)


def _whole_s(job: JobView) -> float:
    """How long jobs of its script took in all; where none has ended, what is taken for any job."""
    curve = job.curve
    if curve is None or curve.epochs is None:
        return UNKNOWN_LEFT_S
    return curve.epochs * curve.length * predict(curve.epoch_s, job.shape.width_min)


@dataclass(frozen=True, slots=True)
class _Change:
    """What it costs a running job to have another width."""

    job: JobView
    stop: Weighed | None  #: now or at the end of the epoch; None: that is not for us to choose
    present_s: float  #: until it is done as it is
    restart_s: float
    lost_s: float

    @classmethod
    def of(cls, job: JobView, work: _Work, now: float) -> _Change:
        return cls(job, weigh(job, now), work.left_s(job.width, nodes_of(job)), restart_s(job), lost_s(job, now))

    def kept(self, width: int, left_s: float, quiet: float) -> float:
        """The part of its worth that is left after paying for it."""
        lasts_s = quiet * (GROW_LASTS_S if width > self.job.width else SHRINK_LASTS_S)
        if self.stop is None:
            pause_s = self.restart_s + self.lost_s
        else:
            pause_s = self.restart_s + cost_s(self.stop, gain(self.job, width, self.present_s, left_s))
            lasts_s = max(lasts_s, self.stop.epoch_left_s)  # such a job seldom changes inside an epoch
        paid = max(GAIN_MIN, pause_s / min(lasts_s, left_s + pause_s))
        return max(KEPT_MIN, 1.0 - paid)


def prices(contenders: Iterable[Contender], units: int) -> dict[JobId, float]:
    """By job; the sum over all of them is the flow time still to come."""
    in_order = sorted(contenders, key=lambda one: (one.completion_key, -one.present, one.job))
    room = max(1, int(HEADROOM * units))
    return _prices_by_slopes(in_order, room) if is_large(len(in_order), units) else _exact_prices(in_order, room)


def is_large(jobs: int, units: int) -> bool:
    return jobs * units > EXACT_CELLS_MAX


def _prices_by_slopes(in_order: Sequence[Contender], room: int) -> dict[JobId, float]:
    """Where the exact table would be too large: what units are worth beside each other, the dearest first."""
    taken: list[tuple[float, int]] = []  # steps of width that find room: worth of a unit, units; the cheapest first
    free, value = room, 0.0
    priced: dict[JobId, float] = {}
    for count, one in enumerate(reversed(in_order), 1):
        cheapest = taken[0][0] if taken else 0.0
        alternatives = [
            (count - max(value - max(option.cost - free, 0) * cheapest, 0.0)) * option.left_s for option in one.options
        ]
        priced[one.job] = price = min(alternatives)
        for step in one.steps_of_speed if price > 0 else ():
            heappush(taken, (price * step.slope, step.units))
            free, value = free - step.units, value + price * step.slope * step.units
        while free < 0:
            slope, units = heappop(taken)
            free, value = free + units, value - slope * units
    return priced


class Step(NamedTuple):
    """From one width that is worth its units to the next."""

    slope: float  #: what each further unit is worth
    units: int
    option: int  #: the number of the wider one


def steps(points: Sequence[tuple[int, float]], *, first: int | None) -> list[Step]:
    """The upper hull of what a job's widths are worth, from the least one up; `first`: its units, None: it has it.

    `points`: what each costs and is worth.
    """
    found: list[Step] = []
    corners = [(-1, first, 0.0)] if first is not None else [(0, *points[0])]
    for number, (cost, value) in enumerate(points):
        if number == corners[0][0] or cost <= corners[-1][1]:
            continue
        while len(corners) > 1 and _slope(corners[-1], cost, value) >= _slope(corners[-2], *corners[-1][1:]):
            corners.pop()
        corners.append((number, cost, value))
    for before, after in pairwise(corners):
        slope = _slope(before, *after[1:])
        if slope > 0:
            found.append(Step(slope, after[1] - before[1], after[0]))
    return found


def _slope(before: tuple[int, int, float], cost: int, value: float) -> float:
    return (value - before[2]) / (cost - before[1])


def _exact_prices(in_order: Sequence[Contender], room: int) -> dict[JobId, float]:
    worths = Worths(room)  # of the jobs priced so far
    priced: dict[JobId, float] = {}
    for count, one in enumerate(reversed(in_order), 1):
        others = worths.best[[max(room - option.cost, 0) for option in one.options]].tolist()
        left_s = [option.left_s for option in one.options]
        priced[one.job] = price = min([(count - most) * each for most, each in zip(others, left_s, strict=True)])
        worths.add([(option.cost, price / option.left_s) for option in one.options], may_leave_out=True)
    return priced


class Worths:
    """The most that some jobs are worth together, by the number of units they share; one more job at a time."""

    def __init__(self, units: int) -> None:
        self._size = size = units + 1
        # In front of the numbers of each of the two there is minus infinity: what does not fit. Row n of a view is
        # what begins at n, without a copy; numpy's sliding_window_view does that too, and takes ten times as long.
        self._padded = [np.full(2 * size, -np.inf) for _ in range(2)]
        self._views = [np.ndarray((size + 1, size), one.dtype, one, 0, 2 * one.strides) for one in self._padded]
        self._present = 0
        self.best[:] = 0.0

    @property
    def best(self) -> Table:
        """Changed by the next job but one."""
        return self._padded[self._present][self._size :]

    def add(self, points: Sequence[tuple[int, float]], *, may_leave_out: bool) -> None:
        """`points`: what each width of the job costs and is worth; one of them it has, unless it may be left out."""
        rows = [self._size - min(cost, self._size) for cost, _ in points]
        found = self._views[self._present][rows]
        found += np.array([worth for _, worth in points])[:, np.newaxis]
        before, self._present = self.best, 1 - self._present
        np.maximum.reduce(found, axis=0, out=self.best)
        if may_leave_out:
            np.maximum(self.best, before, out=self.best)


@lru_cache(maxsize=GRIDS_KEPT_MAX)
def _spread(width: int) -> float:
    return float(np.power(np.array([width]), ORDER_EXPONENT)[0])
