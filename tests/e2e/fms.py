"""Does the real fms-hf-tuning tell Swell of its checkpoints, with the notifier as examples/ has it?

Its trainer controller with a small Trainer on a CPU; its own entry point wants a language model to download.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from server import Server

from .training import EXAMPLES, SDK

PATIENCE_S = 420.0
SCRIPT = """
import sys
import torch
from transformers import Trainer, TrainingArguments
from tuning.trainercontroller import TrainerControllerCallback
import swell_sdk
from swell_sdk.fms import Notifier

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 1)

    def forward(self, inputs, labels):
        outputs = self.net(inputs)
        return {"loss": torch.nn.functional.mse_loss(outputs, labels), "logits": outputs}

data = [{"inputs": torch.rand(4), "labels": torch.rand(1)} for _ in range(16)]
controller = TrainerControllerCallback(sys.argv[1])
controller.register_operation_handlers([Notifier])
arguments = TrainingArguments(
    output_dir=swell_sdk.attach().folder, num_train_epochs=2, per_device_train_batch_size=4, save_strategy="epoch",
    save_safetensors=False, report_to=[], use_cpu=True, disable_tqdm=True,
)
Trainer(Model(), arguments, train_dataset=data, callbacks=[controller]).train()
"""


def play_fms(python: str) -> list[str]:
    """What went wrong."""
    with tempfile.TemporaryDirectory(prefix="swell-fms-") as folder:
        script = Path(folder) / "train.py"
        script.write_text(SCRIPT)
        notifier = str(EXAMPLES / "fms-hf-tuning/notifier.yaml")
        with Server(Path(folder), gpus=0, cpus=2) as server:
            job = server.start("--epochs", "2", f"--env=PYTHONPATH={SDK}", "--", python, str(script), notifier)
            server.until(job, "succeeded", "failed", patience_s=PATIENCE_S)
            shown = server.client().show(job)
            log = b"".join(server.client().logs(job)).decode()
    checkpoint = (shown["training"] or {}).get("checkpoint") or {}
    if (shown["state"], checkpoint.get("epochs_done"), checkpoint.get("path")) != ("succeeded", 2.0, "checkpoint-8"):
        return [f"fms-hf-tuning: {shown['state']}, {checkpoint}: {log[-2000:]}"]
    return []
