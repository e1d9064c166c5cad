"""A small model in plain Python that can be stopped, resized and resumed at the end of every epoch.

It fits a parabola to noisy points by gradient descent. The order of the points depends on the epoch alone, so a run
that was interrupted ends with the same weights as one that was not.
"""

from __future__ import annotations

import argparse
import json
import random
import time

import swell_sdk

RATE = 0.05
BATCH = 20


def points() -> list[tuple[float, float]]:
    draw = random.Random(7)  # noqa: S311
    xs = [draw.uniform(-1, 1) for _ in range(400)]
    return [(x, 3 * x * x - 2 * x + 0.5 + draw.gauss(0, 0.05)) for x in xs]


def batches(epoch: int) -> list[list[tuple[float, float]]]:
    shuffled = points()
    random.Random(epoch).shuffle(shuffled)  # noqa: S311
    return [shuffled[start : start + BATCH] for start in range(0, len(shuffled), BATCH)]


def train(weights: list[float], batch: list[tuple[float, float]]) -> float:
    """One step of gradient descent; the mean squared error before it."""
    gradient, loss = [0.0, 0.0, 0.0], 0.0
    for x, y in batch:
        error = weights[0] * x * x + weights[1] * x + weights[2] - y
        loss += error * error / len(batch)
        for place, term in enumerate((x * x, x, 1.0)):
            gradient[place] += 2 * error * term / len(batch)
    for place, slope in enumerate(gradient):
        weights[place] -= RATE * slope
    return loss


def write(path: str, weights: list[float]) -> None:
    with open(path, "w") as file:  # noqa: PTH123
        json.dump(weights, file)


def read(path: str) -> list[float]:
    with open(path) as file:  # noqa: PTH123
        return [float(weight) for weight in json.load(file)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, help="all of them  [default: as the job says, or 5]")
    parser.add_argument("--step-s", type=float, default=0.0, help="how long a step pretends to take at width 1")
    options = parser.parse_args()

    run = swell_sdk.attach()
    weights = read(run.checkpoint_path) if run.checkpoint_path else [0.0, 0.0, 0.0]
    print(f"width {run.width}, {'resumed' if run.restarted else 'new'}, {run.epochs_done} epochs done", flush=True)
    for epoch in run.epochs(options.epochs or run.epochs_total or 5):
        losses = []
        for batch in run.steps(batches(epoch)):
            losses.append(train(weights, batch))
            time.sleep(options.step_s / run.width)
        loss = sum(losses) / len(losses)
        run.metric("loss", loss)
        run.save(lambda path: write(path, weights), suffix=".json")
        print(f"epoch {epoch + 1}: loss {loss:.6f}", flush=True)


if __name__ == "__main__":
    main()
