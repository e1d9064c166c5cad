"""Which samples are left of an epoch that was begun at another width?

    sampler = ResumableSampler(dataset, batch_size=32)
    loader = DataLoader(dataset, batch_sampler=sampler)
    for epoch in run.epochs(10):
        for batch in run.steps(loader):
            ...

Takes the place of `DistributedSampler` and of the loader's `batch_size` and `shuffle`. The order of an epoch follows
from the seed and the epoch's number alone. A step takes the next `batch_size` samples for each rank, so all that was
done is a number of samples, and another number of ranks goes on from there: none twice, none left out. Where fewer
samples than ranks are left at the very end of an epoch, the ranks without one repeat the last, as they must: a
training step is a meeting of all ranks.
"""

from __future__ import annotations

import importlib
from typing import Any, Iterator, List, Optional, Sized, Union

from swell_sdk.attachment import attach
from swell_sdk.run import Run

_torch: Any = importlib.import_module("torch")


class ResumableSampler:
    """A batch sampler. What it yields is for one rank."""

    swell_resumes = True

    def __init__(
        self,
        data: Union[int, Sized],
        batch_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        run: Optional[Run] = None,
        rank: Optional[int] = None,
        world_size: Optional[int] = None,
    ) -> None:
        """`batch_size`: samples of one rank in one step. `rank`, `world_size`: where the environment does not say."""
        self._run = attach() if run is None else run
        self._samples = data if isinstance(data, int) else len(data)
        self._rank = self._run.rank if rank is None else rank
        self._world_size = self._run.world_size if world_size is None else world_size
        if self._samples < 1 or batch_size < 1:
            raise ValueError(f"{self._samples} samples in batches of {batch_size}; both must be at least 1")
        if not 0 <= self._rank < self._world_size:
            raise ValueError(f"rank {self._rank} of {self._world_size}; ranks count from 0")
        self._batch_size, self._shuffle, self._seed = batch_size, shuffle, seed

    @property
    def steps_total(self) -> int:
        """Of a whole epoch at this width."""
        return self.steps_of(self._samples)

    def steps_of(self, samples: int) -> int:
        return -(-samples // (self._batch_size * self._world_size))

    def samples_after(self, steps: int) -> int:
        """How many samples of the epoch under way are done after so many steps of this attempt."""
        return min(self._samples, self._start() + steps * self._batch_size * self._world_size)

    @property
    def steps_before(self) -> int:
        """Of the epoch under way, at this width, that earlier attempts have done: as if all steps had this size."""
        return self.steps_total - self._steps_left

    @property
    def _steps_left(self) -> int:
        return self.steps_of(self._samples - self._start())

    def __len__(self) -> int:
        """Steps of the epoch under way that are left to this attempt; under a framework that counts those before
        itself (`swell_sdk.lightning`), of the whole epoch."""
        return self.steps_total if self._run.counts_whole_epochs else self._steps_left

    def __iter__(self) -> Iterator[List[int]]:
        order = self._order(self._run.epoch)
        left = order[self._start() :]
        at_once = self._batch_size * self._world_size
        for first in range(0, len(left), at_once):
            yield self._mine(left[first : first + at_once])

    def _mine(self, step: List[int]) -> List[int]:
        """This rank's part of one step; of the last one of an epoch about as many as everybody's."""
        if len(step) == self._batch_size * self._world_size:
            return step[self._rank * self._batch_size : (self._rank + 1) * self._batch_size]
        return step[self._rank :: self._world_size] or step[-1:]

    def _start(self) -> int:
        """Samples of the epoch under way that earlier attempts have done."""
        before = self._run.begun_before
        if before is None:
            return 0
        if before.samples_done is not None:
            return min(before.samples_done, self._samples)
        return min(before.steps_done * self._batch_size * self._world_size, self._samples)

    def _order(self, epoch: int) -> List[int]:
        if not self._shuffle:
            return list(range(self._samples))
        generator = _torch.Generator()
        generator.manual_seed(self._seed + 1_000_003 * epoch)  # seeds of neighbouring runs and epochs do not meet
        order: List[int] = _torch.randperm(self._samples, generator=generator).tolist()
        return order
