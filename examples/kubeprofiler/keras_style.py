"""The profiler as Keras users have it: hooks around epochs and batches, checkpoints in a folder `tf_ckpts`.

Runs with TensorFlow where it is installed, otherwise with a loop that calls the same hooks.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from kubernetesdlprofile import kubeprofiler

try:
    import tensorflow as tf
except ImportError:
    tf = None

STEPS = 50
RATE = 0.001
STEP_S = float(os.environ.get("STEP_S", "0"))  # how long a step pretends to take, on one GPU
Base: Any = object if tf is None else tf.keras.callbacks.Callback


class Profile(Base):  # type: ignore[misc,unused-ignore]
    def __init__(self, profiler: kubeprofiler.KubeProfiler) -> None:
        super().__init__()
        self.profiler = profiler

    def on_epoch_begin(self, *_: Any, **__: Any) -> None:
        self.profiler.start_epoch()

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        self.profiler.measure()
        time.sleep(STEP_S / max(1, self.profiler.NUM_GPUS))

    def on_epoch_end(self, *_: Any, **__: Any) -> None:
        self.profiler.end_epoch()


def fit_plainly(profiler: kubeprofiler.KubeProfiler, callback: Profile) -> None:
    """What Keras would do: the same hooks, and a checkpoint at the end of every epoch."""
    weight = newest(Path(profiler.ckpt_path)) if profiler.ckpt_path else 0.0
    folder = Path(profiler.root_dir) / "tf_ckpts"
    folder.mkdir(exist_ok=True)
    for epoch in range(profiler.EPOCHS_DONE, profiler.EPOCHS):
        callback.on_epoch_begin()
        for _ in range(STEPS):
            weight += RATE * (1.0 - weight)
            callback.on_train_batch_end()
        callback.on_epoch_end()
        (folder / f"ckpt-{epoch + 1}").write_text(json.dumps(weight))
        print(f"epoch {epoch + 1}: loss {(1.0 - weight) ** 2:.9f}", flush=True)


def newest(folder: Path) -> float:
    saved = sorted(folder.glob("ckpt-*"), key=lambda path: int(path.name.partition("-")[2]))
    return float(json.loads(saved[-1].read_text())) if saved else 0.0


def fit_with_keras(profiler: kubeprofiler.KubeProfiler, callback: Profile) -> None:
    tf.keras.utils.set_random_seed(7)
    model = tf.keras.Sequential(
        [tf.keras.Input((4,)), tf.keras.layers.Dense(32, activation="tanh"), tf.keras.layers.Dense(1)]
    )
    model.compile(optimizer=tf.keras.optimizers.SGD(0.01), loss="mse")
    inputs = tf.random.stateless_uniform((STEPS * 8, 4), seed=(7, 7))
    targets = tf.reduce_sum(inputs**2, axis=1, keepdims=True)

    checkpoint = tf.train.Checkpoint(model=model)
    manager = tf.train.CheckpointManager(checkpoint, str(Path(profiler.root_dir) / "tf_ckpts"), max_to_keep=2)
    if profiler.ckpt_path:
        checkpoint.restore(tf.train.latest_checkpoint(profiler.ckpt_path))

    class Save(tf.keras.callbacks.Callback):  # type: ignore[misc,name-defined,unused-ignore]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            manager.save(checkpoint_number=epoch + 1)
            print(f"epoch {epoch + 1}: loss {logs['loss']:.9f}", flush=True)

    model.fit(
        inputs,
        targets,
        batch_size=8,
        shuffle=False,  # so that the order of the data depends on nothing
        epochs=profiler.EPOCHS,
        initial_epoch=profiler.EPOCHS_DONE,
        callbacks=[callback, Save()],
        verbose=0,
    )


def main() -> None:
    profiler = kubeprofiler.KubeProfiler()
    (fit_plainly if tf is None else fit_with_keras)(profiler, Profile(profiler))
    profiler.end()


if __name__ == "__main__":
    main()
