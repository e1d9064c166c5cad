"""The profiler in a callback, as Lightning users have it: `measure` and `end_epoch` only, no `start_epoch`.

Runs with Lightning where it is installed, otherwise with a loop that calls the same hooks.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from kubernetesdlprofile.kubeprofiler import KubeProfiler

try:
    import lightning.pytorch as pl
except ImportError:
    pl = None  # type: ignore[assignment,unused-ignore]

STEPS = 50
RATE = 0.001
STEP_S = float(os.environ.get("STEP_S", "0"))  # how long a step pretends to take, on one GPU
Base: Any = object if pl is None else pl.Callback


class Profile(Base):  # type: ignore[misc,unused-ignore]
    def __init__(self, profiler: KubeProfiler) -> None:
        self.profiler = profiler

    def on_train_batch_end(self, *_: Any) -> None:
        self.profiler.measure()

    def on_train_epoch_end(self, *_: Any) -> None:
        self.profiler.end_epoch()


def fit_plainly(profiler: KubeProfiler, callback: Profile) -> None:
    """What Lightning would do: the same hooks, and a checkpoint at the end of every epoch, under its own names."""
    weight = 0.0
    if profiler.RESTARTED and profiler.ckpt_path and Path(profiler.ckpt_path).is_file():
        weight = json.loads(Path(profiler.ckpt_path).read_text())
    folder = Path(profiler.root_dir) / "lightning_logs" / f"version_{profiler.EPOCHS_DONE}" / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    for epoch in range(profiler.EPOCHS_DONE, profiler.EPOCHS):
        for _ in range(STEPS):
            weight += RATE * (1.0 - weight)
            time.sleep(STEP_S / max(1, profiler.NUM_GPUS))
            callback.on_train_batch_end()
        callback.on_train_epoch_end()
        (folder / f"epoch={epoch}.ckpt").write_text(json.dumps(weight))
        print(f"epoch {epoch + 1}: loss {(1.0 - weight) ** 2:.9f}", flush=True)


def fit_with_lightning(profiler: KubeProfiler, callback: Profile) -> None:
    from lightning.pytorch.demos.boring_classes import BoringModel

    trainer = pl.Trainer(
        max_epochs=profiler.EPOCHS, default_root_dir=profiler.root_dir, callbacks=[callback], limit_train_batches=STEPS
    )
    trainer.fit(BoringModel(), ckpt_path=profiler.ckpt_path if profiler.RESTARTED else None)


def main() -> None:
    profiler = KubeProfiler()
    (fit_plainly if pl is None else fit_with_lightning)(profiler, Profile(profiler))


if __name__ == "__main__":
    main()
