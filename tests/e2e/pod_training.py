"""What does a training script do in a pod? Standard library and swell_sdk; it trains until somebody says enough.

Every epoch that is durable is a line of `ledger`, beside the checkpoints: its number, the width, the GPUs it saw.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import swell_sdk

EPOCH_S = 0.8  # of one GPU
WAITING = 0.03  # of an epoch, for every further GPU: two are not quite twice as fast

run = swell_sdk.attach()
folder = Path(run.folder)
enough = folder.parent / f"{run.environment.job_name}.enough"
devices = os.environ["NVIDIA_VISIBLE_DEVICES"].split(",")
loss = json.loads(Path(run.checkpoint_path).read_text()) if run.checkpoint_path else 1.0
for epoch in run.epochs():
    if enough.exists():
        break
    for _ in run.steps(range(4)):
        time.sleep(EPOCH_S / 4 * (1 / run.width + WAITING * (run.width - 1)))
    if str(epoch + 1) == os.environ.get("CRASH_AT") and not (folder / "crashed").exists():
        (folder / "crashed").touch()
        sys.exit(1)
    loss *= 0.99
    run.metric("loss", loss)
    run.save(lambda path, loss=loss: Path(path).write_text(json.dumps(loss)), suffix=".json")
    with (folder / "ledger").open("a") as ledger:
        print(epoch + 1, run.width, len(devices), file=ledger)
    print(f"epoch {epoch + 1}: loss {loss:.5f}", flush=True)
