"""A script in the shape of those written for kubernetesdlprofile: it saves by itself, after `end_epoch()`."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from kubernetesdlprofile import kubeprofiler

STEPS = 50
RATE = 0.001
STEP_S = float(os.environ.get("STEP_S", "0"))  # how long a step pretends to take, on one GPU


def main() -> None:
    profiler = kubeprofiler.KubeProfiler(
        job_manager_hostname=os.environ.get("JOB_MANAGER", "jobmanager"), db_hostname=os.environ.get("DB", "db")
    )
    checkpoint = Path(profiler.root_dir) / "weight.json"
    weight = json.loads(checkpoint.read_text()) if profiler.RESTARTED and checkpoint.exists() else 0.0
    for epoch in range(profiler.EPOCHS_DONE, profiler.EPOCHS):
        profiler.start_epoch()
        for _ in range(STEPS):
            profiler.measure()
            weight += RATE * (1.0 - weight)
            time.sleep(STEP_S / max(1, profiler.NUM_GPUS))
        profiler.end_epoch()
        draft = checkpoint.with_suffix(".new")
        draft.write_text(json.dumps(weight))
        draft.replace(checkpoint)
        print(f"epoch {epoch + 1}: loss {(1.0 - weight) ** 2:.9f}", flush=True)
    profiler.end()


if __name__ == "__main__":
    main()
