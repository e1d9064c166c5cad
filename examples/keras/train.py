"""Keras under Swell: one callback reports, saves and stops; `initial_epoch` and `load_model` resume.

With several tasks TensorFlow's workers find each other by TF_CONFIG, which Swell sets; a batch is divided among them,
so the loss of an epoch is the same on one GPU and on two. TensorFlow does that with Keras 2 (`tf_keras`) only.
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


def workers(ranks: int) -> Any:
    """Where the model lives: one copy on each of several ranks, or nothing in particular."""
    if ranks == 1:
        return contextlib.nullcontext()
    import tensorflow

    return tensorflow.distribute.MultiWorkerMirroredStrategy().scope()


def build() -> keras.Model:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(32, activation="tanh"), keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse")
    return model


def main() -> None:
    run = swell_sdk.attach()
    keras.utils.set_random_seed(7)
    with workers(run.world_size):
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
        callbacks=[Printing(run.world_size), SwellCallback()],
    )


if __name__ == "__main__":
    main()
