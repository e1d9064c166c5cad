"""How does a Keras model report to Swell, save, and stop when it is asked to?

run = swell_sdk.attach()
model = keras.models.load_model(run.checkpoint_path) if run.checkpoint_path else build()
model.fit(data, epochs=run.epochs_total or 10, initial_epoch=run.epochs_done, callbacks=[SwellCallback()])

Works with Keras 3, with TensorFlow's own Keras and with `tf_keras`, when that is imported before this.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from typing import Any, Dict, Optional

from swell_sdk.attachment import attach
from swell_sdk.run import Run


def _callback() -> Any:
    """Of Keras 2 beside TensorFlow where the script has it already, as those have who train on several machines."""
    legacy = ("tf_keras.callbacks",) if "tf_keras" in sys.modules else ()
    for name in (*legacy, "keras.callbacks", "tensorflow.keras.callbacks", "tf_keras.callbacks"):
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
            self._save_model(epoch + 1)
        self.run.end_epoch()
        if self.run.must_stop(self._epochs_total()):
            self._is_yielding = self.model.stop_training = True

    def on_train_end(self, logs: Optional[Dict[str, Any]] = None) -> None:
        if self._is_yielding:
            self.run.leave()

    def _save_model(self, epochs_done: int) -> None:
        """TensorFlow's workers save together: what they add up among themselves is brought together for it."""
        if self.run.rank == 0:
            self.run.save(self.model.save, epochs_done=epochs_done, keep=self._keep, suffix=self._suffix)
        elif _has_workers(self.model):
            with tempfile.TemporaryDirectory() as folder:
                self.model.save(f"{folder}/of-rank-{self.run.rank}{self._suffix}")

    def _epochs_total(self) -> Optional[int]:
        """What `fit` was called with."""
        total = (self.params or {}).get("epochs")
        return None if total is None else int(total)


def _has_workers(model: Any) -> bool:
    """Is it one of several copies of TensorFlow's MultiWorkerMirroredStrategy?"""
    extended = getattr(getattr(model, "distribute_strategy", None), "extended", None)
    is_one = getattr(extended, "_in_multi_worker_mode", None)
    return bool(is_one is not None and is_one())
