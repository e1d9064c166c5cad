"""The profiler as Keras users have it: hooks around epochs and batches, checkpoints in a folder `tf_ckpts`.

A plain loop calls the hooks, so that it runs without TensorFlow.
"""

from __future__ import annotations

import json
from pathlib import Path

from kubernetesdlprofile import kubeprofiler

STEPS = 50


class Profile:
    def __init__(self, profiler: kubeprofiler.KubeProfiler) -> None:
        self.profiler = profiler

    def on_epoch_begin(self) -> None:
        self.profiler.start_epoch()

    def on_train_batch_end(self) -> None:
        self.profiler.measure()

    def on_epoch_end(self) -> None:
        self.profiler.end_epoch()


def newest(folder: Path) -> float:
    saved = sorted(folder.glob("ckpt-*"), key=lambda path: int(path.name.partition("-")[2]))
    return float(json.loads(saved[-1].read_text())) if saved else 0.0


def main() -> None:
    profiler = kubeprofiler.KubeProfiler()
    callback = Profile(profiler)
    weight = newest(Path(profiler.ckpt_path)) if profiler.ckpt_path else 0.0
    folder = Path(profiler.root_dir) / "tf_ckpts"
    folder.mkdir(exist_ok=True)
    for epoch in range(profiler.EPOCHS_DONE, profiler.EPOCHS):
        callback.on_epoch_begin()
        for _ in range(STEPS):
            weight += 0.05 * (1.0 - weight)
            callback.on_train_batch_end()
        callback.on_epoch_end()
        (folder / f"ckpt-{epoch + 1}").write_text(json.dumps(weight))
        print(f"epoch {epoch + 1}: loss {(1.0 - weight) ** 2:.9f}", flush=True)
    profiler.end()


if __name__ == "__main__":
    main()
