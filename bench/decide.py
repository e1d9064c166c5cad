"""How long does one decision take? Snapshots of growing clusters, in CPU time of this process.

Running jobs are elastic, measured and hold about half of the GPUs, so there is width to be shared out: that is the hard
case. Waiting ones are of a few shapes, and there is no room for most of them. A calibration row says how fast this
machine is: a million additions in plain Python. Garbage is looked for as seldom as the server does.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.rows import Row, Setting, middle
from swell.model.cluster import Device, Node
from swell.model.job import Dimension, JobState, ResizeMode
from swell.model.plan import JobView, Shape, Slot, Snapshot
from swell.model.resources import Resources
from swell.model.training import Training
from swell.planner import make_plan
from swell.server.__main__ import GARBAGE

GPU = Resources(0, 0, 1)
WIDTHS_MAX = (8, 16, 64)
NOW = 10_000.0


@dataclass(frozen=True, slots=True)
class Size:
    nodes: int
    gpus_per_node: int
    running: int
    waiting: int
    aim_ms: float

    def __str__(self) -> str:
        return f"{self.nodes * self.gpus_per_node} GPUs, {self.running} running, {self.waiting} waiting"


SIZES = (
    Size(16, 4, 40, 120, 10),
    Size(64, 8, 200, 0, 50),
    Size(256, 8, 600, 0, 250),
    Size(256, 8, 0, 5000, 250),
    Size(1000, 8, 1500, 0, 1000),
    Size(10_000, 8, 5000, 5000, 2000),
)


def run(setting: Setting) -> Iterator[Row]:
    gc.set_threshold(*GARBAGE)
    yield Row("decide", "calibration: a million additions", "ms", None, _ms(lambda: sum(range(1_000_000)), 3))
    for size in SIZES:
        snapshot = make_snapshot(size, setting.random())
        ours = _ms(lambda snapshot=snapshot: make_plan(snapshot), setting.repeats)  # type: ignore[misc]
        yield Row("decide", str(size), "CPU ms", ours, None, f"<= {size.aim_ms:g}")


def _ms(decide: Callable[[], object], repeats: int) -> float:
    taken = []
    for _ in range(repeats):
        began = time.process_time()
        decide()
        taken.append(1000 * (time.process_time() - began))
    return middle(taken)


def make_snapshot(size: Size, chance: random.Random) -> Snapshot:
    """Jobs side by side from the first node on, about half of each node's GPUs."""
    nodes = tuple(
        Node(f"n{n:05}", 64_000, 512_000, tuple(Device(f"g{gpu}", 16_384, "test") for gpu in range(size.gpus_per_node)))
        for n in range(size.nodes)
    )
    shapes = [Shape(((GPU, 1),), Dimension.TASKS, 1, width, is_array=False, time_limit_s=None) for width in WIDTHS_MAX]
    free = [(node.id, device.id) for node in nodes for device in node.devices[: size.gpus_per_node // 2 or 1]]
    running = []
    for job in range(1, size.running + 1):
        width = min(chance.choice((1, 1, 2, 2, 4)), len(free) - (size.running - job))
        slots = tuple(Slot(rank, node, GPU, (device,)) for rank, (node, device) in enumerate(free[:width]))
        free = free[width:]
        running.append(_running(job, chance.choice(shapes), slots, chance))
    first = size.running + 1
    waiting = [
        JobView(job, chance.choice(shapes), 0, JobState.QUEUED, lined_up_at=NOW - 100)
        for job in range(first, first + size.waiting)
    ]
    return Snapshot(NOW, nodes, (*running, *waiting), arrivals=tuple(NOW - 30 * n for n in range(10, 0, -1)))


def _running(job: int, shape: Shape, slots: tuple[Slot, ...], chance: random.Random) -> JobView:
    one_s = chance.uniform(50.0, 500.0)
    measured = tuple((width, 1, one_s / width**0.9) for width in (1, 2, 4))
    training = Training(chance.uniform(1.0, 100.0), measured, 30.0, NOW, None)
    mode = ResizeMode.IMMEDIATE
    return JobView(
        job, shape, 0, JobState.RUNNING, slots, 0.0, width=len(slots), mode=mode, training=training, lined_up_at=0.0
    )
