"""A workload to try things with, made from a seed: many short jobs, some long ones, arriving at random."""

from __future__ import annotations

import random

from swell.engines.simulated.behavior import Table
from swell.sim.workload import SimJob, Workload

#: share of jobs, GPU-hours of work, GPUs asked for, part of the work that cannot be shared out
KINDS = (
    ("small", 0.55, (0.05, 0.5), (1, 1), 0.0),
    ("medium", 0.33, (0.3, 4.0), (1, 4), 0.02),
    ("large", 0.12, (4.0, 40.0), (4, 8), 0.01),
)
EPOCHS = 20


def generate(jobs: int, hours: float, seed: int) -> Workload:
    chance = random.Random(seed)  # noqa: S311  a workload, no secret
    moments = sorted(round(chance.uniform(0, 3600 * hours), 3) for _ in range(jobs))
    return Workload(f"seed-{seed}", tuple(_job(chance, number, at) for number, at in enumerate(moments, 1)))


def _job(chance: random.Random, number: int, at: float) -> SimJob:
    kinds = {kind[0]: kind for kind in KINDS}
    name = chance.choices(list(kinds), [kind[1] for kind in KINDS])[0]
    _, _, (least, most), (low, high), serial = kinds[name]
    work_s = 3600 * least * (most / least) ** chance.random()
    width = chance.randint(low, high)
    width_max = 1 if name == "small" else 4 * high
    speeds = {n: n / (1 + serial * (n - 1)) for n in range(1, width_max + 1)}
    table = Table({(1, n): work_s / EPOCHS / speed for n, speed in speeds.items()})
    user = f"user-{chance.randint(1, 5)}"
    return SimJob(f"{name}-{number}", at, table, EPOCHS, width, 1, max(width, width_max), user=user)
