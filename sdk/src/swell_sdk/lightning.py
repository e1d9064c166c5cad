"""How does a Lightning Trainer report to Swell, save, and stop when it is asked to?

    run = swell_sdk.attach()
    trainer = Trainer(max_epochs=run.epochs_total or 10, callbacks=[SwellCallback()])
    trainer.fit(model, ckpt_path=run.checkpoint_path)

Saves at the end of every epoch, on every rank as Lightning wants it. Strategies that write one file per rank
(sharded FSDP, DeepSpeed) need `SwellCallback(save=False)` and a `ModelCheckpoint` of their own.

Lightning 2 goes on inside an epoch with the step that its checkpoint tells, but reads the loader from its beginning.
So it stops inside an epoch only where the loader's batch sampler is a `swell_sdk.torch.ResumableSampler`, which begins
where the attempt before stopped (with `Trainer(use_distributed_sampler=False)`, since it deals out the samples itself).
"""

from __future__ import annotations

import importlib
from typing import Any, Optional

from swell_sdk.attachment import attach
from swell_sdk.news import Inside
from swell_sdk.run import Run, Saving
from swell_sdk.voice import say


def _callback() -> Any:
    for name in ("lightning.pytorch", "pytorch_lightning"):
        try:
            return importlib.import_module(name).Callback
        except ModuleNotFoundError:
            continue
    raise ModuleNotFoundError("swell_sdk.lightning needs Lightning: pip install lightning")


_Callback: Any = _callback()


class SwellCallback(_Callback):  # type: ignore[misc]
    def __init__(self, *, save: bool = True, keep: int = 2) -> None:
        super().__init__()
        self._save, self._keep = save, keep
        self._is_yielding = False
        self._run: Optional[Run] = None  #: None: the trainer has not begun

    @property
    def run(self) -> Run:
        if self._run is None:
            self._run = attach()
        return self._run

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._run = attach(rank=trainer.global_rank)
        self._run.note_world(trainer.world_size)
        self._run.counts_whole_epochs = True

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Lightning begins an epoch whose middle it was in without saying so."""
        if self.run.begun_before is None:
            return
        sampler = _resuming_sampler(trainer)
        self.run.note_epoch_begun(trainer.current_epoch)
        if sampler is None:
            say("lightning", "the checkpoint was made inside an epoch, but the loader has no ResumableSampler to go on")
        else:
            _go_on_after(sampler.steps_before, trainer.fit_loop.epoch_loop)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self.run.note_epoch_begun(trainer.current_epoch)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.run.step_done()
        if not self.run.news.can_stop_at_steps:
            sampler = _resuming_sampler(trainer)
            if not self._save or sampler is None:
                return
            self.run.news.steps_per_epoch = sampler.steps_total
            self.run.tell_can_stop()
        if self.run.orders.may_stop and not _is_between_updates(trainer, batch_idx) and self.run.stops_here():
            self._save_inside(trainer)
            self.run.leave()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self.run.metrics(**trainer.callback_metrics)
        if self._save:
            self._save_checkpoint(trainer)
        self.run.end_epoch()
        if self.run.must_stop(_epochs_total(trainer)):
            self._is_yielding = trainer.should_stop = True

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        if self._is_yielding and self.run.must_stop(_epochs_total(trainer)):  # `min_epochs` may have overruled it
            self.run.leave()

    def _save_checkpoint(self, trainer: Any) -> None:
        """Lightning's save is a meeting of all ranks, of which only rank 0 writes."""
        if self.run.rank == 0:
            self.run.save(
                trainer.save_checkpoint, epochs_done=trainer.current_epoch + 1, keep=self._keep, suffix=".ckpt"
            )
        else:
            self._join_save(trainer)

    def _save_inside(self, trainer: Any) -> None:
        if self.run.rank != 0:
            self._join_save(trainer)
            return
        sampler, (epoch, done) = _resuming_sampler(trainer), self.run.news.position
        samples = sampler.samples_after(done)
        inside = Inside(sampler.steps_of(samples), sampler.steps_total, samples)
        self.run.save_inside(Saving(trainer.save_checkpoint, self._keep, ".ckpt"), epoch, inside)

    def _join_save(self, trainer: Any) -> None:
        trainer.save_checkpoint(f"{self.run.folder}/.partial-of-rank-{self.run.rank}")


def _resuming_sampler(trainer: Any) -> Any:
    """Of the training data, if it can begin inside an epoch."""
    sampler = getattr(trainer.train_dataloader, "batch_sampler", None)
    return sampler if getattr(sampler, "swell_resumes", False) else None


def _is_between_updates(trainer: Any, batch_idx: int) -> bool:
    """After the last step of an epoch it is at its end; and gradients that are being summed up are not saved."""
    return bool(trainer.is_last_batch or (batch_idx + 1) % trainer.accumulate_grad_batches)


def _go_on_after(steps: int, epoch_loop: Any) -> None:
    """So many steps of the epoch are done, counted at this width; the checkpoint has counted them at its own."""
    progress = epoch_loop.batch_progress
    # Lightning 2.5 saves before it counts the step that is being done as completed, and counts it when it resumes.
    counted_later = 1 if getattr(epoch_loop, "restarted_on_train_batch_end", False) else 0
    for name in ("ready", "started", "processed"):
        setattr(progress.current, name, steps)
    progress.current.completed = steps - counted_later
    progress.is_last_batch = False


def _epochs_total(trainer: Any) -> Optional[int]:
    return trainer.max_epochs if trainer.max_epochs is not None and trainer.max_epochs >= 0 else None
