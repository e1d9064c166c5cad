"""A stand-in, see README.md: Lightning's hooks in Lightning's order."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class Callback:
    """Every hook that a callback leaves out does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):
            return lambda *_: None
        raise AttributeError(name)


class Trainer:
    def __init__(self, *, max_epochs: int, callbacks: list[Any], global_rank: int = 0) -> None:
        self.max_epochs, self.callbacks, self.global_rank = max_epochs, callbacks, global_rank
        self.current_epoch = 0
        self.should_stop = False
        self.callback_metrics: dict[str, float] = {}
        self.met = 0  #: how often all ranks met to save

    def save_checkpoint(self, path: str) -> None:
        self.met += 1
        if self.global_rank == 0:
            Path(path).write_text(str(self.current_epoch + 1))

    def fit(self, model: Any, ckpt_path: str | None = None) -> None:
        self.current_epoch = int(Path(ckpt_path).read_text()) if ckpt_path else 0
        self._call("setup", "fit")
        while self.current_epoch < self.max_epochs and not self.should_stop:
            self._call("on_train_epoch_start")
            for number in range(4):
                self._call("on_train_batch_end", None, None, number)
            self.callback_metrics = {"train/loss": 1.0 / (self.current_epoch + 1)}
            model(self.current_epoch)
            self._call("on_train_epoch_end")
            self.current_epoch += 1
        self._call("on_train_end")
        self._call("on_fit_end")

    def _call(self, hook: str, *more: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, hook)(self, None, *more)
