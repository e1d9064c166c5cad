"""Hugging Face's Trainer under Swell: one callback reports and stops; the Trainer saves and resumes by itself.

Started by a launcher, one rank for each GPU. A step takes 64 samples whatever the width, so the loss of an epoch is
the same on one GPU and on two, and learning rates stay right when the job is resized.
"""

from __future__ import annotations

import os
import time
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

import swell_sdk
from swell_sdk.huggingface import SwellCallback

BATCH = 64  # of all ranks together
STEP_S = float(os.environ.get("STEP_S", "0"))  # how long a step pretends to take, on one GPU


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))

    def forward(self, inputs, labels):  # type: ignore[no-untyped-def]
        outputs = self.net(inputs)
        return {"loss": torch.nn.functional.mse_loss(outputs, labels), "logits": outputs}


class Printing(TrainerCallback):  # type: ignore[misc,unused-ignore]
    def __init__(self) -> None:
        self.steps = 0

    def on_step_end(self, args: Any, *_: Any, **__: Any) -> None:
        self.steps += 1
        time.sleep(STEP_S / args.world_size)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        is_whole = abs(state.epoch - round(state.epoch)) < 1e-6  # it also logs where it stops inside an epoch
        if state.is_world_process_zero and is_whole and "loss" in (logs or {}):
            told = f"{self.steps} steps, ranks: {args.world_size}"
            print(f"epoch {round(state.epoch)}: loss {float(logs['loss']):.9f} in {told}", flush=True)
        self.steps = 0


def main() -> None:
    run = swell_sdk.attach()
    torch.manual_seed(7)
    inputs = torch.rand(512, 4, generator=torch.Generator().manual_seed(7))
    data = [{"inputs": one, "labels": (one**2).sum().reshape(1)} for one in inputs]
    arguments = TrainingArguments(
        output_dir=run.folder,
        num_train_epochs=run.epochs_total or 5,
        per_device_train_batch_size=BATCH // run.world_size,
        learning_rate=0.01,
        lr_scheduler_type="constant",
        save_strategy="epoch",
        save_total_limit=2,
        logging_strategy="epoch",
        disable_tqdm=True,
        report_to=[],
        use_cpu=not torch.cuda.is_available(),  # otherwise ranks without GPUs would each train alone
    )
    trainer = Trainer(Model(), arguments, train_dataset=data, callbacks=[Printing(), SwellCallback()])
    trainer.train(resume_from_checkpoint=run.checkpoint_path)


if __name__ == "__main__":
    main()
