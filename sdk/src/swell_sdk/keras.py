"""How does a Keras model report to Swell, save, and stop when it is asked to?

run = swell_sdk.attach()
model = keras.models.load_model(run.checkpoint_path) if run.checkpoint_path else build()
model.fit(data, epochs=run.epochs_total or 10, initial_epoch=run.epochs_done, callbacks=[SwellCallback()])
"""

from __future__ import annotations

import importlib
from typing import Any, Dict, Optional

from swell_sdk.attachment import attach
from swell_sdk.run import Run


def _callback() -> Any:
    for name in ("keras.callbacks", "tensorflow.keras.callbacks"):
        try:
            return importlib.import_module(name).Callback
        except ModuleNotFoundError:
            continue
    raise ModuleNotFoundError("swell_sdk.keras needs Keras: pip install keras")


_Callback: Any = _callback()


class SwellCallback(_Callback):  # type: ignore[misc]
    def __init__(self, *, save: bool = True, keep: int = 2, suffix: str = ".keras") -> None:
        """`suffix` tells Keras the format: ".keras", or ".h5" for older ones."""
        super().__init__()
        self.run: Run = attach()
        self._is_yielding = False
        self._save, self._keep, self._suffix = save, keep, suffix

    def on_epoch_begin(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self.run.note_epoch_begun(epoch)

    def on_train_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self.run.step_done()

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self.run.metrics(**(logs or {}))
        if self._save:
            self.run.save(self.model.save, epochs_done=epoch + 1, keep=self._keep, suffix=self._suffix)
        self.run.end_epoch()
        if self.run.must_stop(self._epochs_total()):
            self._is_yielding = self.model.stop_training = True

    def on_train_end(self, logs: Optional[Dict[str, Any]] = None) -> None:
        if self._is_yielding:
            self.run.leave()

    def _epochs_total(self) -> Optional[int]:
        """What `fit` was called with."""
        total = (self.params or {}).get("epochs")
        return None if total is None else int(total)
