"""A script in the shape of those written for kubernetesdlprofile: it saves by itself, after `end_epoch()`."""

from __future__ import annotations

import json
import os
from pathlib import Path

from kubernetesdlprofile import kubeprofiler

STEPS = 50


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
            weight += 0.05 * (1.0 - weight)
        profiler.end_epoch()
        draft = checkpoint.with_suffix(".new")
        draft.write_text(json.dumps(weight))
        draft.replace(checkpoint)
        print(f"epoch {epoch + 1}: loss {(1.0 - weight) ** 2:.9f}", flush=True)
    profiler.end()


if __name__ == "__main__":
    main()
