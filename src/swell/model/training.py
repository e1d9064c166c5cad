"""What does a job say of itself while it trains, what is remembered of that, and what is it asked to do?"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from swell.model import codec
from swell.model.job import AttemptId


@dataclass(frozen=True, slots=True)
class Training:
    """What the planner may know of a job that reports: how fast, how far, what a restart costs."""

    left: float | None = None  #: epochs still to do after the last durable one; None: nobody knows
    epoch_s: tuple[tuple[int, int, float], ...] = ()  #: width, nodes → seconds for one epoch, as measured; ascending
    restart_s: float | None = None  #: from the stop of training to training again; None: never measured
    checkpoint_at: float | None = None  #: when work was last made durable; None: never
    checkpoint_every_s: float | None = None  #: how long from one to the next; None: not known
    saves_at_steps: bool = False  #: asked to stop, it saves within seconds, wherever it is
    lengths: float = 1.0  #: the mean length of the epochs that are left, beside the present one
    counted_at: float | None = None  #: when it had `left` to do, if it trains now; None: it does not
    left_error: float = 0.0  #: of the logarithm of the time that is left, as a standard deviation; 0: it is sure
    total: float | None = None  #: epochs in all; None: nobody knows
    mean_length: float = 1.0  #: of the epochs that are done, beside the present one


@dataclass(frozen=True, slots=True)
class SharedCurve:
    """What jobs of one user that run the same script have measured, all together."""

    epoch_s: tuple[tuple[int, int, float], ...]  #: as in `Training`, of one of the jobs
    epochs: float | None = None  #: that such a job has in all; None: none has done all of them yet
    length: float = 1.0  #: of an epoch, as the mean over a whole training, beside one of `epoch_s`


NEW_WEIGHT = 0.3  # of a new measurement against all before it: follows a change within a few epochs
PACE_WEIGHT = 0.8  # of an epoch against those before it at one width: all widths follow, so noise favours none
TREND_WEIGHT = 0.5  # of the last two epochs against all before, in how epochs become shorter or longer
TREND_FADES = 0.6  # each epoch goes on with this part of the change before it; all of it would soon end at none
TREND_EPOCHS = 10  # after so many nothing is left of it
TREND_MAX = 2.0  # of the logarithm: no epoch counts as more than 7 times as long as the one before
FIRST_ERROR = 1.3  # how far off is what an epoch that has not ended tells of all; with each that has, it is less
METRICS_MAX = 50
WARM_UP_S = 300.0  # of a first epoch longer than this warming up is a small part
WARM_STEPS = 20  # so many steps say how long an epoch takes, where none was finished
SPEED_ERROR = 0.35  # of the logarithm: by how much a width inside a node is faster or slower than expected
NODES_ERROR = 1.3  # the same where it is on more or fewer nodes than others: nearly four times
SAME_STEPS = 0.1  # of the logarithm: batches that do not come out even change the steps of an epoch by less
EPOCH_S_MAX, STEPS_MAX, LENGTHS_MAX = 1e9, 1e12, 1e15  # reports are multiplied: without an end they would overflow
LONGER_MAX = 1000.0  # how much longer an epoch may be than the one before; more is a mistake, or meant to break this
STEP_S_MIN = 0.0001  # no training step is shorter; keeps a false figure from becoming a step in the far future


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A durable point the job can resume from."""

    epochs_done: float  #: with the part of the epoch under way, where its steps can be counted
    path: str | None  #: None: the job finds it by itself
    at: float
    attempt: int
    steps_done: int = 0  #: of the epoch under way; 0: it was made between epochs
    steps_total: int | None = None  #: of that epoch, at the width it was made at; None: not known
    samples_done: int | None = None  #: of that epoch, by all ranks together; None: only steps are counted


@dataclass(frozen=True, slots=True)
class Report:
    """One report of a job; docs/reports.md is the contract."""

    attempt: AttemptId
    rank: int
    begun: int | None = None  #: None: not said; so for all of them
    epochs_done: float | None = None
    epochs_total: float | None = None
    epochs: tuple[tuple[int, float], ...] = ()
    steps: tuple[int, float] | None = None
    steps_per_epoch: int | None = None
    memory_mib: float | None = None
    checkpoint: Checkpoint | None = None
    metrics: tuple[tuple[str, float], ...] = ()
    left_s: float | None = None  #: the job's own estimate of what is left
    is_yielding: bool = False
    is_ready: bool = False  #: to be stopped: all it did is durable, and it only waits for that
    is_deaf: bool = False  #: it never asks what it should do, so it is stopped where it has made its work durable
    saves_later: bool = False  #: it saves an epoch after it has reported it: durable at the latest by a clean end


@dataclass(frozen=True, slots=True)
class Control:
    """What a job is told in answer."""

    stop_after_epoch: int | None = None  #: None: go on
    yield_now: bool = False
    stop_at_step: tuple[int, int] | None = None  #: epoch from 0, and step of this attempt; None: not inside an epoch
    tell_step: bool = False  #: say where you are: a step for all ranks is about to be chosen

    @property
    def known(self) -> str:
        """What somebody who knows this says that they know; the library spells it the same way."""
        text = "" if self.stop_after_epoch is None else str(self.stop_after_epoch)
        text += "?" if self.tell_step else ""
        return text if self.stop_at_step is None else f"{text}@{self.stop_at_step[0]}.{self.stop_at_step[1]}"


@dataclass(frozen=True, slots=True)
class RankPosition:
    """Where a rank that can stop at any step said that it is."""

    epoch: int  #: under way, from 0
    step: int  #: steps of that epoch that it has done in this attempt
    step_s: float  #: how long one takes it
    ranks: int  #: of the whole job, itself included
    at: float  #: when it said so
    was_asked: bool  #: it knew that a step is about to be chosen

    def step_by(self, now: float) -> int:
        """Where it is by now, if it went on as before."""
        return self.step + int(max(0.0, now - self.at) / max(self.step_s, STEP_S_MIN))


@dataclass(frozen=True, slots=True)
class Measure:
    """What was measured at one width, on so many nodes."""

    width: int
    nodes: int
    epochs: int = 0
    epoch_s: float | None = None  #: None: no epoch was finished at this width
    is_warm: bool = False  #: `epoch_s` is of epochs that were not the first of their attempt
    steps: int = 0
    step_s: float | None = None
    memory_mib: float | None = None
    steps_per_epoch: float | None = None  #: of the present epoch; None: not known

    @property
    def whole_epoch_s(self) -> float | None:
        """As measured, or from its steps where no epoch beside the first was finished; None: neither is known."""
        by_steps_s = self._epoch_by_steps_s
        return self.epoch_s if self.is_warm or by_steps_s is None else by_steps_s

    @property
    def _epoch_by_steps_s(self) -> float | None:
        if self.step_s is None or self.steps_per_epoch is None or self.steps < WARM_STEPS:
            return None
        return self.step_s * self.steps_per_epoch

    @property
    def has_settled(self) -> bool:
        """Is `whole_epoch_s` free of warming up?"""
        return self.is_warm or self._epoch_by_steps_s is not None

    def with_epoch(self, seconds: float, *, is_first: bool, weight: float = NEW_WEIGHT) -> Measure:
        """The first of an attempt includes its warming up: it counts until one that does not is known."""
        known = self.epoch_s
        if is_warming_up(seconds, is_first=is_first):
            if not self.is_warm:
                known = seconds if known is None else min(known, seconds)
            return replace(self, epochs=self.epochs + 1, epoch_s=known)
        mix = mixed(known if self.is_warm else None, seconds, weight)
        return replace(self, epochs=self.epochs + 1, epoch_s=mix, is_warm=True)

    def with_steps(self, count: int, seconds: float, per_epoch: float | None = None) -> Measure:
        if count < 1:
            return self
        return replace(
            self,
            steps=self.steps + count,
            step_s=mixed(self.step_s, seconds / count),
            steps_per_epoch=self.steps_per_epoch if per_epoch is None else per_epoch,
        )

    def scaled(self, factor: float) -> Measure:
        """Of epochs that are longer by this factor."""
        epoch_s = None if self.epoch_s is None else min(EPOCH_S_MAX, factor * self.epoch_s)
        steps = None if self.steps_per_epoch is None else min(STEPS_MAX, factor * self.steps_per_epoch)
        return self if factor == 1.0 else replace(self, epoch_s=epoch_s, steps_per_epoch=steps)

    def with_memory(self, mib: float) -> Measure:
        return replace(self, memory_mib=max(self.memory_mib or 0.0, mib))


def is_warming_up(seconds: float, *, is_first: bool) -> bool:
    """Is a large part of this epoch the warming up of its attempt?"""
    return is_first and seconds < WARM_UP_S


def mixed(known: float | None, new: float, weight: float = NEW_WEIGHT) -> float:
    return new if known is None else (1 - weight) * known + weight * new


def _fading(trend: float, epochs: int) -> float:
    """How long the last of so many epochs is, beside the one before the first of them."""
    return math.exp(trend * TREND_FADES * (1 - TREND_FADES**epochs) / (1 - TREND_FADES))


def _drift(before: Measure, after: Measure) -> float:
    """By how much epochs of one width have become longer; 1: nobody knows."""
    if not before.is_warm or not before.epoch_s or not after.epoch_s:
        return 1.0
    return after.epoch_s / before.epoch_s


@dataclass(frozen=True, slots=True)
class EpochSteps:
    """How many steps an epoch has, as a job said last."""

    epoch: int  #: its number, from 1
    width: int
    steps: float


@dataclass(frozen=True, slots=True)
class TrainingRecord:
    """All that is remembered of a job's training, over all its attempts."""

    epochs_done: float = 0.0  #: finished, durable or not
    epochs_total: float | None = None  #: None: nobody said
    checkpoint: Checkpoint | None = None  #: the last that was reported; None: none yet
    every_s: float | None = None  #: from one checkpoint to the next; None: not known
    restart_s: float | None = None  #: from the stop of training to training again; None: not measured
    profile: tuple[Measure, ...] = ()  #: by width, then nodes
    metrics: dict[str, float] = field(default_factory=dict)
    ends_at: float | None = None  #: when it is expected to be done, were nothing to change; None: not known
    yielded: int | None = None  #: the attempt that said it ends because it was asked to; None: none did
    saves_later: int | None = None  #: the attempt whose epochs are durable once it has ended cleanly; None: none
    only_saves: bool = False  #: it tells of its checkpoints and of nothing between them
    measured_in: int | None = None  #: the attempt that measured an epoch last, warm; None: none has
    last_epoch: tuple[int, float] | None = None  #: number of that epoch, and its seconds
    trend: float = 0.0  #: of the logarithm of an epoch's length, from one to the next; 0: all are alike
    told_steps: EpochSteps | None = None  #: None: it has not said how many steps an epoch has
    counted: float = 0.0  #: epochs whose lengths are added up; those before an upgrade are not
    counted_lengths: float = 0.0  #: the sum, in epochs as long as the present one

    @property
    def is_complete(self) -> bool:
        """Has it trained all that it said there is?"""
        return self.epochs_total is not None and self.epochs_done >= self.epochs_total

    @property
    def lacks_epochs(self) -> bool:
        """Is at least a whole one missing? Of a last one some frameworks count a little less."""
        return self.epochs_total is not None and self.epochs_total - self.epochs_done >= 1

    @property
    def left(self) -> float | None:
        """Epochs after the durable ones; None: not known."""
        durable = self.checkpoint.epochs_done if self.checkpoint else 0.0
        return None if self.epochs_total is None else max(0.0, self.epochs_total - durable)

    def measure(self, width: int, nodes: int) -> Measure:
        known = (one for one in self.profile if (one.width, one.nodes) == (width, nodes))
        return next(known, Measure(width, nodes))

    def with_epoch(
        self,
        at: tuple[int, int],
        number: int,
        seconds: float,
        *,
        is_first: bool,
        attempt: int,
        expected_s: float | None = None,
    ) -> TrainingRecord:
        """An epoch `at` a width and a number of nodes. `expected_s`: as far as other widths tell; None: they do not.

        The first that an attempt measures says how fast this width is beside the others. Epochs may become shorter or
        longer as training goes on: then they do so at every width, and that is what the attempt's later ones tell.
        Without that a width that was measured again would look faster than all that were measured early. Of a job that
        counts its steps `with_steps` knows it already.
        """
        before = self.measure(*at)
        if is_warming_up(seconds, is_first=is_first):
            return self.with_measure(before.with_epoch(seconds, is_first=is_first))
        if number <= 1:  # it is not like the others, however long it is: it counts until another does
            known = self.with_measure(replace(before, epochs=before.epochs + 1, epoch_s=seconds))
            return replace(known, measured_in=attempt, last_epoch=(number, seconds))
        is_later = self.measured_in == attempt
        if before.steps_per_epoch is not None:
            known = self.with_measure(before.with_epoch(seconds, is_first=is_first))
            return replace(known, measured_in=attempt, last_epoch=(number, seconds))
        followed = self._noting_trend(number, seconds) if is_later else self._scaled_by_trend(number)
        if not is_later and not before.is_warm and expected_s:
            ratio = seconds / (expected_s * self._trend_since(number))
            followed = followed.scaled(math.exp(self._beyond_speed(at, ratio)))
        before = followed.measure(*at)
        after = before.with_epoch(seconds, is_first=is_first, weight=PACE_WEIGHT if is_later else NEW_WEIGHT)
        known = followed.scaled(_drift(before, after) if is_later else 1.0).with_measure(after)
        return replace(known, measured_in=attempt, last_epoch=(number, seconds))

    def _beyond_speed(self, at: tuple[int, int], ratio: float) -> float:
        """What is left for the epoch, of the logarithm, where a new width took it so much longer than expected.

        Between nodes much may be slow, so one that is on more of them than any before may be much slower, and one on
        fewer much faster. The rest cannot be its speed: four GPUs of one node are not half as fast as one.
        """
        nodes = [one.nodes for one in self.profile if one.epoch_s is not None and (one.width, one.nodes) != at]
        if not nodes or ratio <= 0:
            return 0.0
        slowest = NODES_ERROR if at[1] > max(nodes) else SPEED_ERROR
        fastest = NODES_ERROR if at[1] < min(nodes) else SPEED_ERROR
        bounded = max(-TREND_MAX, min(TREND_MAX, math.log(ratio)))
        return bounded - max(-fastest, min(slowest, bounded))

    def _gap(self, number: int) -> int:
        """Epochs since the last one that was measured."""
        return 0 if self.last_epoch is None else max(0, number - self.last_epoch[0])

    def with_steps(
        self, at: tuple[int, int], count: int, seconds: float, per_epoch: int | None, epoch: int
    ) -> TrainingRecord:
        """Some steps `at` a width and a number of nodes, of the epoch with this number, which has so many.

        If it has more or fewer than the one before had, epochs have become longer or shorter, at every width: so all
        are compared in epochs of one length.
        """
        followed = self if not per_epoch else self._in_epochs_of(at, per_epoch, epoch)
        return followed.with_measure(followed.measure(*at).with_steps(count, seconds, per_epoch))

    def _in_epochs_of(self, at: tuple[int, int], per_epoch: int, epoch: int) -> TrainingRecord:
        change = self._change_of_length(at, per_epoch, epoch)
        told, last = EpochSteps(max(epoch, self._told_until), at[0], per_epoch), self.told_steps
        if last is None or (epoch <= last.epoch and not change):
            return replace(self, told_steps=told)
        bounded = max(-TREND_MAX, min(TREND_MAX, change / max(1, epoch - last.epoch)))
        trend = mixed(self.trend, bounded, TREND_WEIGHT)
        return replace(self.scaled(math.exp(change)), told_steps=told, trend=trend)

    @property
    def _told_until(self) -> int:
        return 0 if self.told_steps is None else self.told_steps.epoch

    def _change_of_length(self, at: tuple[int, int], per_epoch: int, epoch: int) -> float:
        """Of the logarithm of an epoch's length since it was told last.

        At a width that is new, an epoch has as many steps as at others, if all tasks together share out a batch; or
        fewer in proportion, if each has a batch of its own. What is neither tells of the epoch.
        """
        before, last = self.measure(*at).steps_per_epoch, self.told_steps
        if before:
            return math.log(per_epoch / before)
        if last is None or epoch <= last.epoch:
            return 0.0
        as_many = math.log(per_epoch / last.steps)
        in_proportion = as_many + math.log(at[0] / last.width)
        if abs(in_proportion) < SAME_STEPS and not self._has_as_many_everywhere:
            return 0.0
        return 0.0 if abs(as_many) < SAME_STEPS else as_many

    @property
    def _has_as_many_everywhere(self) -> bool:
        """Is it known that an epoch has as many steps at one width as at another?"""
        steps = {one.width: one.steps_per_epoch for one in self.profile if one.steps_per_epoch}
        return len(steps) > 1 and max(steps.values()) < math.exp(SAME_STEPS) * min(steps.values())

    def _noting_trend(self, number: int, seconds: float) -> TrainingRecord:
        """With what the epoch after the last one tells of the trend."""
        if self.last_epoch is None or self._gap(number) != 1 or min(seconds, self.last_epoch[1]) <= 0:
            return self
        change = max(-TREND_MAX, min(TREND_MAX, math.log(seconds / self.last_epoch[1])))
        return replace(self, trend=mixed(self.trend, change, TREND_WEIGHT))

    def _scaled_by_trend(self, number: int) -> TrainingRecord:
        """As the trend tells, where this is a later epoch than the last one."""
        return self.scaled(self._trend_since(number))

    def _trend_since(self, number: int) -> float:
        return _fading(self.trend, min(1, self._gap(number)))

    def scaled(self, factor: float) -> TrainingRecord:
        """Epochs of all widths have become longer, by this factor; by no more than one report is believed."""
        factor = max(1 / LONGER_MAX, min(LONGER_MAX, factor))
        profile = tuple(one.scaled(factor) for one in self.profile)
        return replace(self, profile=profile, counted_lengths=min(LENGTHS_MAX, self.counted_lengths / factor))

    def counting(self, epochs: float) -> TrainingRecord:
        """With so many more that are done, as long as the present one."""
        if epochs <= 0:
            return self
        return replace(self, counted=self.counted + epochs, counted_lengths=self.counted_lengths + epochs)

    @property
    def mean_length(self) -> float:
        """Of the epochs that are done, beside the present one."""
        return self.counted_lengths / self.counted if self.counted else 1.0

    @property
    def lengths(self) -> float:
        """The mean length of the epochs that are left, beside the present one, as far as the trend tells."""
        left = math.ceil(self.left or 0.0)
        if not self.trend or not left:
            return 1.0
        near = [_fading(self.trend, count) for count in range(1, min(left, TREND_EPOCHS) + 1)]
        return (sum(near) + (left - len(near)) * near[-1]) / left

    def with_measure(self, measure: Measure) -> TrainingRecord:
        """In the place of what was known of its width, on as many nodes."""
        others = [one for one in self.profile if (one.width, one.nodes) != (measure.width, measure.nodes)]
        return replace(self, profile=tuple(sorted([*others, measure], key=lambda one: (one.width, one.nodes))))

    def epoch_s(self) -> tuple[tuple[int, int, float], ...]:
        """By width and number of nodes.

        A width whose epochs were all the first of their attempts is as good as unknown, unless all are: it would look
        no faster than a narrower one, and the job would give it up before it was measured.
        """
        known = (one for one in self.profile if one.has_settled >= self.has_settled)
        return tuple((one.width, one.nodes, whole_s) for one in known if (whole_s := one.whole_epoch_s) is not None)

    @property
    def has_settled(self) -> bool:
        """Is any width measured free of warming up?"""
        return any(one.has_settled for one in self.profile)

    def for_planner(self) -> Training:
        at = None if self.checkpoint is None else self.checkpoint.at
        error = FIRST_ERROR / (1 + int(self.epochs_done))
        return Training(
            self.left,
            self.epoch_s(),
            self.restart_s,
            at,
            self.every_s,
            lengths=self.lengths,
            left_error=error,
            total=self.epochs_total,
            mean_length=self.mean_length,
        )

    def to_document(self) -> dict[str, Any]:
        document: dict[str, Any] = codec.to_document(self)
        return document

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> TrainingRecord:
        return codec.from_document(cls, document)
