"""Keras under Swell: one callback reports, saves and stops; `initial_epoch` and `load_model` resume."""

from __future__ import annotations

import keras
import numpy

import swell_sdk
from swell_sdk.keras import SwellCallback


def build() -> keras.Model:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(32, activation="tanh"), keras.layers.Dense(1)])
    model.compile(optimizer="adam", loss="mse")
    return model


def main() -> None:
    run = swell_sdk.attach()
    model = keras.models.load_model(run.checkpoint_path) if run.checkpoint_path else build()
    inputs = numpy.random.default_rng(7).random((512, 4))
    model.fit(
        inputs,
        (inputs**2).sum(axis=1),
        batch_size=32,
        epochs=run.epochs_total or 5,
        initial_epoch=run.epochs_done,
        callbacks=[SwellCallback()],
    )


if __name__ == "__main__":
    main()
