"""Keras under Swell: one callback reports, saves and stops; `initial_epoch` and `load_model` resume.

One task uses all of its GPUs (`MirroredStrategy`). With several tasks TensorFlow's workers find each other by
TF_CONFIG, which Swell sets; TensorFlow does that with Keras 2 (`tf_keras`) only. A batch is divided among all copies of
the model, so the loss of an epoch is the same on one GPU and on two.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

import numpy

try:
    import tf_keras as keras
except ImportError:
    import keras

import swell_sdk
from swell_sdk.keras import SwellCallback

BATCH = 64  # of all ranks together
STEP_S = float(os.environ.get("STEP_S", "0"))  # how long a step pretends to take, on one GPU


class Printing(keras.callbacks.Callback):  # type: ignore[misc,unused-ignore]
    def __init__(self, ranks: int) -> None:
        super().__init__()
        self.ranks, self.steps = ranks, 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps += 1
        time.sleep(STEP_S / self.ranks)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        strategy = getattr(self.model, "distribute_strategy", None)  # Keras 3 has none without TensorFlow
        ranks = 1 if strategy is None else strategy.num_replicas_in_sync
        print(f"epoch {epoch + 1}: loss {float(logs['loss']):.9f} in {self.steps} steps, ranks: {ranks}", flush=True)
        self.steps = 0


def copies(run: swell_sdk.Run) -> Any:
    """Where the model lives: a copy on each task, or on each GPU of the only task, or nothing in particular."""
    if run.world_size > 1:
        import tensorflow

        return tensorflow.distribute.MultiWorkerMirroredStrategy().scope()
    if run.environment.num_gpus > 1:
        import tensorflow

        return tensorflow.distribute.MirroredStrategy(devices(run.environment.num_gpus)).scope()
    return contextlib.nullcontext()


def devices(gpus: int) -> list[str]:
    """The GPUs of this task. Where they are simulated, the CPU is divided into as many."""
    import tensorflow

    if tensorflow.config.list_physical_devices("GPU"):
        return [f"GPU:{number}" for number in range(gpus)]
    parts = [tensorflow.config.LogicalDeviceConfiguration() for _ in range(gpus)]
    tensorflow.config.set_logical_device_configuration(tensorflow.config.list_physical_devices("CPU")[0], parts)
    return [f"CPU:{number}" for number in range(gpus)]


def build() -> keras.Model:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(32, activation="tanh"), keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse")
    return model


def main() -> None:
    run = swell_sdk.attach()
    keras.utils.set_random_seed(7)
    ranks = max(run.world_size, run.environment.num_gpus)
    with copies(run):
        model = keras.models.load_model(run.checkpoint_path) if run.checkpoint_path else build()
    inputs = numpy.random.default_rng(7).random((512, 4))
    model.fit(
        inputs,
        (inputs**2).sum(axis=1),
        batch_size=BATCH,
        epochs=run.epochs_total or 5,
        initial_epoch=run.epochs_done,
        shuffle=False,
        verbose=0,
        callbacks=[Printing(ranks), SwellCallback()],
    )


if __name__ == "__main__":
    main()
