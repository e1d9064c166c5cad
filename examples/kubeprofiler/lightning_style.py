"""The profiler in a callback, as Lightning users have it: `measure` and `end_epoch` only, no `start_epoch`.

Runs with Lightning where it is installed (1.5, for which such scripts were written, or a newer one), otherwise with a
loop that calls the same hooks. Lightning starts a rank for each GPU by itself; a step takes 64 samples whatever the
width, so the loss of an epoch is the same on one GPU and on two. The samples are divided among the ranks that there
should be, as Lightning's own sampler does: where one was not started, its share is missing and the loss is another.
"""

from __future__ import annotations

import json
import os
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from kubernetesdlprofile.kubeprofiler import KubeProfiler

STEPS = 50
RATE = 0.001
BATCH = 64  # of all ranks together
STEP_S = float(os.environ.get("STEP_S", "0"))  # how long a step pretends to take, on one GPU


def find_lightning() -> Any:
    for name in ("lightning.pytorch", "pytorch_lightning"):
        try:
            return import_module(name)
        except ImportError:
            continue
    return None


pl = find_lightning()
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


def make_model(ranks: int) -> Any:
    import torch
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    class Model(pl.LightningModule):  # type: ignore[misc,unused-ignore,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
            self.steps = 0

        def on_train_epoch_start(self) -> None:
            self.steps = 0

        def training_step(self, batch: Any, *_: Any) -> Any:
            inputs, targets = batch
            loss = torch.nn.functional.mse_loss(self.net(inputs), targets)
            self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
            self.steps += 1
            time.sleep(STEP_S / self.trainer.world_size)
            return loss

        def on_train_epoch_end(self) -> None:
            if self.trainer.is_global_zero:
                loss = float(self.trainer.callback_metrics["loss"])
                told = f"{self.steps} steps, ranks: {self.trainer.world_size}"
                print(f"epoch {self.current_epoch + 1}: loss {loss:.9f} in {told}", flush=True)

        def train_dataloader(self) -> Any:
            """With a sampler of our own: Lightning's, which is for several ranks only, has another order."""
            inputs = torch.rand(512, 4, generator=torch.Generator().manual_seed(7))
            data = TensorDataset(inputs, (inputs**2).sum(dim=1, keepdim=True))
            sampler = DistributedSampler(data, num_replicas=ranks, rank=self.trainer.global_rank, shuffle=False)
            return DataLoader(data, batch_size=BATCH // ranks, sampler=sampler)

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=0.01)

    return Model()


def fit_with_lightning(profiler: KubeProfiler, callback: Profile) -> None:
    import torch

    pl.seed_everything(7)
    gpus = max(1, profiler.NUM_GPUS)
    trainer = pl.Trainer(
        max_epochs=profiler.EPOCHS,
        accelerator="gpu" if torch.cuda.is_available() else "cpu",
        devices=gpus,
        num_nodes=max(1, profiler.NUM_NODES),
        default_root_dir=profiler.root_dir,
        callbacks=[callback],
        enable_progress_bar=False,
        log_every_n_steps=1,
        **({"strategy": "ddp"} if gpus > 1 else {}),
    )
    ranks = gpus * max(1, profiler.NUM_NODES)
    trainer.fit(make_model(ranks), ckpt_path=profiler.ckpt_path if profiler.RESTARTED else None)


def main() -> None:
    profiler = KubeProfiler()
    (fit_plainly if pl is None else fit_with_lightning)(profiler, Profile(profiler))


if __name__ == "__main__":
    main()
