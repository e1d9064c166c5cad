"""How does a Lightning Trainer report to Swell, save, and stop when it is asked to?

    run = swell_sdk.attach()
    trainer = Trainer(max_epochs=run.epochs_total or 10, callbacks=[SwellCallback()])
    trainer.fit(model, ckpt_path=run.checkpoint_path)

Saves at the end of every epoch, on every rank as Lightning wants it. Strategies that write one file per rank
(sharded FSDP, DeepSpeed) need `SwellCallback(save=False)` and a `ModelCheckpoint` of their own.
"""

from __future__ import annotations

import importlib
from typing import Any, Optional

from swell_sdk.attachment import attach
from swell_sdk.run import Run


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

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self.run.note_epoch_begun(trainer.current_epoch)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        self.run.step_done()

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
            trainer.save_checkpoint(f"{self.run.folder}/.partial-of-rank-{self.run.rank}")


def _epochs_total(trainer: Any) -> Optional[int]:
    return trainer.max_epochs if trainer.max_epochs is not None and trainer.max_epochs >= 0 else None
