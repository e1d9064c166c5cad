"""A stand-in, see README.md: Keras's hooks in Keras's order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


class Model:
    def __init__(self, work: Callable[[int], None]) -> None:
        self._work = work
        self.stop_training = False
        self.saves = 0

    def save(self, path: str) -> None:
        assert path.endswith(".keras"), "Keras tells the format by the name"
        Path(path).write_text("model")
        self.saves += 1

    def fit(self, *, epochs: int, initial_epoch: int, callbacks: list[Any]) -> None:
        for callback in callbacks:
            callback.model, callback.params = self, {"epochs": epochs}
        for epoch in range(initial_epoch, epochs):
            for callback in callbacks:
                callback.on_epoch_begin(epoch, {})
                for batch in range(4):
                    callback.on_train_batch_end(batch, {})
            self._work(epoch)
            for callback in callbacks:
                callback.on_epoch_end(epoch, {"loss": 1.0 / (epoch + 1)})
            if self.stop_training:
                break
        for callback in callbacks:
            callback.on_train_end({})


class Many:
    """What a model of TensorFlow's MultiWorkerMirroredStrategy has."""

    class extended:  # noqa: N801
        @staticmethod
        def _in_multi_worker_mode() -> bool:
            return True


MANY = Many
