"""The training script of the demo's jobs: a small model in plain Python that really learns and can be resized.

Logistic regression by gradient descent on points in a plane. Every gradient is computed; a simulated GPU only sets the
pace: a step takes as long as `NUM_GPUS` of them would need for their shares of the batch, and a little more for
each that has to be waited for. The order of the points depends on the epoch alone, so however often the job is stopped
and resized it ends with the same weights.
"""

from __future__ import annotations

import json
import math
import random
import sys
import time
from pathlib import Path

import swell_sdk

STEPS, BATCH, RATE = 10, 40, 0.05
EPOCH_S = 1.0  # of one simulated GPU
WAITING = 0.12  # of a step, for every further GPU: two are not twice as fast, and four no faster than three


def batches(epoch: int) -> list[list[tuple[float, float, int]]]:
    draw = random.Random(epoch)  # noqa: S311
    points = [(draw.gauss(0, 1), draw.gauss(0, 1)) for _ in range(STEPS * BATCH)]
    labelled = [(x, y, int(2 * x - y + draw.gauss(0, 0.3) > 0.5)) for x, y in points]
    return [labelled[n : n + BATCH] for n in range(0, len(labelled), BATCH)]


def train(weights: list[float], batch: list[tuple[float, float, int]]) -> float:
    """Do one gradient step; return the loss before it."""
    loss, slopes = 0.0, [0.0, 0.0, 0.0]
    for x, y, label in batch:
        guess = 1 / (1 + math.exp(-(weights[0] * x + weights[1] * y + weights[2])))
        loss -= math.log(max(guess if label else 1 - guess, 1e-12)) / len(batch)
        for place, term in enumerate((x, y, 1.0)):
            slopes[place] += (guess - label) * term / len(batch)
    for place, slope in enumerate(slopes):
        weights[place] -= RATE * slope
    return loss


def main() -> None:
    run = swell_sdk.attach()
    weights = [0.0, 0.0, 0.0]
    if run.checkpoint_path:
        weights = json.loads(Path(run.checkpoint_path).read_text())
    step_s = EPOCH_S / STEPS * (1 / run.width + WAITING * (run.width - 1))
    for epoch in run.epochs():
        losses = []
        for batch in run.steps(batches(epoch)):
            began = time.monotonic()
            losses.append(train(weights, batch))
            time.sleep(max(0.0, began + step_s - time.monotonic()))
        loss = sum(losses) / len(losses)
        run.metric("loss", loss)
        run.save(lambda path: Path(path).write_text(json.dumps(weights)), suffix=".json")
        print(f"epoch {epoch + 1} on {run.width} GPU(s): loss {loss:.5f}", flush=True)
    print("weights", json.dumps(weights), file=sys.stdout)


if __name__ == "__main__":
    main()
