"""Hugging Face's Trainer under Swell: one callback reports and stops; the Trainer saves and resumes by itself."""

from __future__ import annotations

import torch
from transformers import Trainer, TrainingArguments

import swell_sdk
from swell_sdk.huggingface import SwellCallback


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))

    def forward(self, inputs, labels):  # type: ignore[no-untyped-def]
        outputs = self.net(inputs)
        return {"loss": torch.nn.functional.mse_loss(outputs, labels), "logits": outputs}


def main() -> None:
    run = swell_sdk.attach()
    inputs = torch.rand(512, 4, generator=torch.Generator().manual_seed(7))
    data = [{"inputs": one, "labels": (one**2).sum().reshape(1)} for one in inputs]
    arguments = TrainingArguments(
        output_dir=run.folder,
        num_train_epochs=run.epochs_total or 5,
        per_device_train_batch_size=32,
        save_strategy="epoch",
        save_total_limit=2,
        logging_steps=5,
        report_to=[],
    )
    trainer = Trainer(Model(), arguments, train_dataset=data, callbacks=[SwellCallback()])
    trainer.train(resume_from_checkpoint=run.checkpoint_path)


if __name__ == "__main__":
    main()
