"""How does a loop over an epoch begin where the attempt before it stopped, and stop where it is asked to?

The first `run.steps` loop in the body of an epoch is that epoch's own: its steps say where this rank is, so that all
ranks can stop at the same one. A second loop (validation) is timed, and nothing else.

A batch sampler that knows how to begin inside an epoch (`swell_sdk.torch.ResumableSampler`) has the attribute
`swell_resumes`; every other iterable is read from its beginning, and what was done before is dropped.
"""

from __future__ import annotations

import itertools
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, Iterable, Iterator, Optional, Sized, TypeVar

from swell_sdk.news import Inside

if TYPE_CHECKING:
    from swell_sdk.run import Run

Item = TypeVar("Item")


class Steps(Generic[Item]):
    """Hands items through. A step is the time from the end of the one before, so loading its data counts."""

    def __init__(self, run: Run, iterable: Iterable[Item]) -> None:
        self._run, self._iterable = run, iterable

    def __iter__(self) -> Iterator[Item]:
        own = self._run.enter_steps(self._iterable)
        try:
            yield from _timed(self._run, self._iterable) if own is None else _counted(self._run, self._iterable, own)
        finally:
            self._run.leave_steps()


class SizedSteps(Steps[Item]):
    def __len__(self) -> int:
        assert isinstance(self._iterable, Sized)
        return len(self._iterable)


class EpochSteps:
    """The steps of the epoch under way."""

    def __init__(self, epoch: int, iterable: Iterable[Any], before: Optional[Inside]) -> None:
        """`before`: what earlier attempts did of this epoch; None: nothing."""
        self.epoch = epoch
        self.done = 0  #: in this attempt
        self._sampler = _resuming_sampler(iterable)
        self.total = self._sampler.steps_total if self._sampler is not None else _length(iterable)
        self.skipped = 0 if self._sampler is not None or before is None else _scaled(before, self.total)
        self.was_begun = before is not None
        #: Torch's own random samplers, and only those, have a generator: another process draws another order.
        self.is_order_random = self._sampler is None and hasattr(getattr(iterable, "sampler", None), "generator")

    def inside(self) -> Inside:
        if self._sampler is None:
            return Inside(self.skipped + self.done, self.total)
        samples = self._sampler.samples_after(self.done)
        return Inside(self._sampler.steps_of(samples), self.total, samples)

    def whole_s(self, seconds: float) -> Optional[float]:
        """What the whole epoch would have taken, where a part of it took so long. None: nobody knows."""
        if not self.was_begun:
            return seconds
        if not self.total or not self.done:
            return None
        return seconds * self.total / self.done

    @property
    def is_over(self) -> bool:
        """Was that the last step?"""
        if self._sampler is not None:
            return self.done >= len(self._sampler)
        return self.total is not None and self.skipped + self.done >= self.total


def _timed(run: Run, iterable: Iterable[Item]) -> Iterator[Item]:
    news, last = run.news, perf_counter()
    for item in iterable:
        yield item
        now = perf_counter()
        news.steps += 1
        news.step_seconds += now - last
        last = now


def _counted(run: Run, iterable: Iterable[Item], own: EpochSteps) -> Iterator[Item]:
    news, orders, last = run.news, run.orders, perf_counter()
    items = itertools.islice(iterable, own.skipped, None) if own.skipped else iterable
    for item in items:
        yield item
        now = perf_counter()
        news.steps += 1
        news.step_seconds += now - last
        last = now
        own.done += 1
        news.position = own.epoch, own.done
        if not news.can_stop_at_steps:
            run.tell_that_it_can_stop()
        if orders.may_stop:
            run.stop_inside(own)
        if now >= run.save_due_at:
            run.save_if_due(own)


def _length(iterable: Iterable[Any]) -> Optional[int]:
    try:
        return len(iterable) if isinstance(iterable, Sized) else None
    except TypeError:  # a DataLoader of a stream has the method, and no length
        return None


def _resuming_sampler(iterable: Iterable[Any]) -> Any:
    sampler = getattr(iterable, "batch_sampler", None)
    return sampler if getattr(sampler, "swell_resumes", False) else None


def _scaled(before: Inside, total: Optional[int]) -> int:
    """How many steps to drop. At another width an epoch has another number of steps: the same part of it is done."""
    if before.steps_total and total and total != before.steps_total:
        return before.steps_done * total // before.steps_total
    return before.steps_done
