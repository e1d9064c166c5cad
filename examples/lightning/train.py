"""Lightning under Swell: one callback reports, saves and stops; `ckpt_path` resumes."""

from __future__ import annotations

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

import swell_sdk
from swell_sdk.lightning import SwellCallback


class Model(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))

    def training_step(self, batch, _):  # type: ignore[no-untyped-def]
        inputs, targets = batch
        loss = torch.nn.functional.mse_loss(self.net(inputs), targets)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):  # type: ignore[no-untyped-def]
        return torch.optim.Adam(self.parameters(), lr=0.01)


def main() -> None:
    run = swell_sdk.attach()
    inputs = torch.rand(512, 4, generator=torch.Generator().manual_seed(7))
    loader = DataLoader(TensorDataset(inputs, (inputs**2).sum(dim=1, keepdim=True)), batch_size=32, shuffle=True)
    trainer = pl.Trainer(
        max_epochs=run.epochs_total or 5,
        devices=max(1, run.environment.num_gpus),
        accelerator="auto",
        callbacks=[SwellCallback()],
        default_root_dir=run.folder,
        enable_checkpointing=False,  # the callback saves
    )
    trainer.fit(Model(), loader, ckpt_path=run.checkpoint_path)


if __name__ == "__main__":
    main()
