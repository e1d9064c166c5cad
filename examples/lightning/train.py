"""Lightning under Swell: one callback reports, saves and stops; `ckpt_path` resumes.

Lightning starts a rank for each GPU by itself. A step takes 64 samples whatever the width, so the loss of an epoch is
the same on one GPU and on two, and learning rates stay right when the job is resized.
"""

from __future__ import annotations

import os
import time

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

import swell_sdk
from swell_sdk.lightning import SwellCallback
from swell_sdk.torch import ResumableSampler

BATCH = 64  # of all ranks together
STEP_S = float(os.environ.get("STEP_S", "0"))  # how long a step pretends to take, on one GPU


class Model(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
        self.steps = 0

    def on_train_epoch_start(self) -> None:
        self.steps = 0

    def training_step(self, batch, _):  # type: ignore[no-untyped-def]
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

    def train_dataloader(self):  # type: ignore[no-untyped-def]
        """With a sampler that goes on inside an epoch: Lightning's own begins it again."""
        inputs = torch.rand(512, 4, generator=torch.Generator().manual_seed(7))
        data = TensorDataset(inputs, (inputs**2).sum(dim=1, keepdim=True))
        sampler = ResumableSampler(
            data, BATCH // self.trainer.world_size, rank=self.trainer.global_rank, world_size=self.trainer.world_size
        )
        return DataLoader(data, batch_sampler=sampler)

    def configure_optimizers(self):  # type: ignore[no-untyped-def]
        return torch.optim.Adam(self.parameters(), lr=0.01)


def main() -> None:
    run = swell_sdk.attach()
    pl.seed_everything(7)
    trainer = pl.Trainer(
        max_epochs=run.epochs_total or 5,
        devices=max(1, run.environment.num_gpus),
        accelerator="auto",
        callbacks=[SwellCallback()],
        default_root_dir=run.folder,
        enable_checkpointing=False,  # the callback saves
        use_distributed_sampler=False,  # the sampler above deals out the samples
        enable_progress_bar=False,
        logger=False,
    )
    trainer.fit(Model(), ckpt_path=run.checkpoint_path)


if __name__ == "__main__":
    main()
