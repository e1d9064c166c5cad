"""A training job as genai's workload manager knows them: it saves every epoch and tells a URL, and that is all.

It really learns (a parabola, by gradient descent, in plain Python); a step takes the longer the fewer GPUs it has. It
knows nothing of Swell: after every save it PUTs four fields, as fms-hf-tuning's notifier does, and when it is started
again it goes on from the checkpoint it finds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
import urllib.request
from pathlib import Path

STEPS, BATCH, RATE = 20, 50, 0.1
EPOCH_S = 8.0  # on one GPU


def batch(epoch: int, step: int) -> list[tuple[float, float]]:
    draw = random.Random(epoch * STEPS + step)  # noqa: S311
    xs = [draw.uniform(-1, 1) for _ in range(BATCH)]
    return [(x, 3 * x * x - 2 * x + 0.5 + draw.gauss(0, 0.05)) for x in xs]


def train(weights: list[float], points: list[tuple[float, float]]) -> float:
    """One step of gradient descent; the mean squared error before it."""
    loss, slopes = 0.0, [0.0, 0.0, 0.0]
    for x, y in points:
        error = weights[0] * x * x + weights[1] * x + weights[2] - y
        loss += error * error / len(points)
        for place, term in enumerate((x * x, x, 1.0)):
            slopes[place] += 2 * error * term / len(points)
    for place, slope in enumerate(slopes):
        weights[place] -= RATE * slope
    return loss


def notify(url: str, name: str, done: int, total: int) -> None:
    told = {
        "job_name": name,
        "last_checkpoint_time": time.time(),
        "completed_epochs": float(done),
        "total_epochs": total,
    }
    request = urllib.request.Request(  # noqa: S310
        url, json.dumps(told).encode(), {"Content-Type": "application/json"}, method="PUT"
    )
    urllib.request.urlopen(request, timeout=10).close()  # noqa: S310


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--num_processes", type=int, required=True, help="one per GPU")
    parser.add_argument("--num_train_epochs", type=int, default=3)
    parser.add_argument("--output_dir", type=Path, required=True)
    options = parser.parse_args()
    url = os.environ["SWELL_DOOR"] + "/update_last_checkpoint"  # all that changed: the address
    options.output_dir.mkdir(parents=True, exist_ok=True)
    checkpoint = options.output_dir / "checkpoint.json"
    done, weights = json.loads(checkpoint.read_text()) if checkpoint.exists() else (0, [0.0, 0.0, 0.0])
    for epoch in range(done, options.num_train_epochs):
        for step in range(STEPS):
            loss = train(weights, batch(epoch, step))
            time.sleep(EPOCH_S / STEPS / options.num_processes)
        draft = checkpoint.with_suffix(".new")
        draft.write_text(json.dumps([epoch + 1, weights]))
        draft.replace(checkpoint)
        print(f"epoch {epoch + 1} on {options.num_processes} GPUs: loss {loss:.5f}", flush=True)
        notify(url, options.name, epoch + 1, options.num_train_epochs)


if __name__ == "__main__":
    main()
